"""Comparisons of small runs made by hand, for the tests of what a comparison says."""

from __future__ import annotations

from mtp_bench.compare import compare
from tests import runs


def alone(run, **options):
    """The variants of one run."""
    return compare([("a", [("a", run)])], **options)


def both(first, second, **options):
    """Two runs, a side each, called a and b."""
    return compare([("a", [("a", first)]), ("b", [("b", second)])], **options)


def pooled(*sides, **options):
    """Sides of several runs each: a with a1, a2, ..., b with b1, b2, ..."""
    named = zip("abc", sides, strict=False)
    return compare([(name, [(f"{name}{i}", run) for i, run in enumerate(side, 1)]) for name, side in named], **options)


def mine(*step_us, variant="mine", **changes):
    """One variant with modelled steps."""
    return runs.result(variant, time=runs.time(*step_us), **changes)


def measured(*step_us, variant="mine", **changes):
    """One variant with windows that a GPU has measured."""
    return runs.result(variant, device="cuda:0", time=runs.time(*step_us, modelled=False), **changes)


def gpu_run(*results, **environment):
    """A run on a GPU."""
    return runs.run(results, environment=runs.environment(**{"device": runs.GPU, **environment}))


def verdicts(found):
    """What every row says: candidate, verdict and reason."""
    return [(row.candidate, row.verdict, row.reason) for row in found.rows]
