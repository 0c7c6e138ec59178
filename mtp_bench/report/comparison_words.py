"""What the parts of a comparison's report are called and how they are worded, the same in every format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtp_bench.report.comparison_view import ComparisonView, RunView, ValuesView
from mtp_bench.report.sites_view import SiteOutcome, SiteView
from mtp_bench.report.words import change
from mtp_bench.statistics import CONFIDENCE, RESAMPLES

ENVIRONMENTS = "different environments"
CAUTIONS = "cautions"
NOTES = "what was left out, and what varies"
DISTRIBUTION = "distribution of the windows"
RUN_ORDER = "windows in the order measured"
SITES = "syncs a step by call site"
JOB_SITES = "syncs a call of the loss by call site"
VALUES = "values"
REPRODUCTION = "how to reproduce"
COMPARED = "compared"


def forest_title(view: ComparisonView) -> str:
    """What the forest plot shows; modelled ratios have no interval, and say that they are modelled."""
    known = [entry for entry in view.forest if entry.ratio is not None]
    modelled = [entry.modelled for entry in known]
    if all(modelled):
        return "ratios of step times to the baseline, modelled"
    some = ", some modelled" if any(modelled) else ""
    return f"ratios of step times to the baseline, with {CONFIDENCE * 100:g} % intervals{some}"


def sites_title(view: ComparisonView) -> str:
    """What the lines that wait are counted by."""
    return JOB_SITES if view.of_jobs else SITES


def outcome_line(outcome: SiteOutcome) -> str:
    """``packed-sft: 32 > 0, went: host_lens``."""
    moved = f" from line {outcome.moved_from}" if outcome.moved_from is not None else ""
    if moved and outcome.change != "moved":
        moved = f", moved{moved}"
    counts = change(str(outcome.before), str(outcome.after))
    return f"{outcome.workload}: {counts}, {outcome.change}{moved}: {outcome.who}"


def outcomes(site: SiteView) -> Iterator[tuple[str, list[SiteOutcome]]]:
    """Why a line waits, ``item, aten::_local_scalar_dense``, with what there is to say of it."""
    reasons: dict[str, list[SiteOutcome]] = {}
    for outcome in site.outcomes:
        reasons.setdefault(f"{outcome.kind}, {outcome.op}", []).append(outcome)
    yield from reasons.items()


def values_notes(views: Sequence[ValuesView]) -> Iterator[str]:
    """What is wrong with values, variants with the same fault together."""
    said: dict[str, list[str]] = {}
    for view in views:
        if view.numerics.detail:
            said.setdefault(view.numerics.detail, []).append(view.who)
        if view.numerics.head_gradient == "detached":
            said.setdefault("the MTP loss does not train the output layer", []).append(view.who)
    yield from (f"{', '.join(dict.fromkeys(who))}: {text}" for text, who in said.items())


def values_heading(view: ValuesView) -> str:
    """The workload, its scope, and the size at which values were judged."""
    size = view.numerics.at
    return f"{view.workload}, scope {view.scope}, hidden_size {size.hidden_size}, vocab_size {size.vocab_size}"


def run_title(run: RunView) -> str:
    """Which run of which side."""
    return run.label if run.label == run.side else f"{run.side}: {run.label}"


def run_facts(run: RunView) -> str:
    """When and by what a run was made, and the machine."""
    version = f"mtp-bench {run.version}" if run.version else "an unknown version of mtp-bench"
    return ", ".join(filter(None, [run.created_at, run.ranks, version, run.environment]))


def how_compared(view: ComparisonView) -> str:
    """Version, threshold and statistics: all that decides verdicts besides the runs."""
    largest = ", whichever is larger" if " or " in view.threshold else ""
    parts = [f"Compared by mtp-bench {view.version}", f"threshold {view.threshold} of the baseline's step{largest}"]
    if any(entry.low is not None for entry in view.forest):
        parts.append(f"{CONFIDENCE * 100:g} % intervals from {RESAMPLES:,} resamples seeded by the samples")
    return f"{'; '.join(parts)}."
