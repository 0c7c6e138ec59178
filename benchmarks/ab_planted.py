"""Whether `mtp_bench.ab` and `compare` find what a variant costs a job, and find nothing where there is nothing.

    python tools/hostcuda/run.py -m benchmarks.ab_planted [EXPERIMENTS]

Planted: variants that read 1, 8 or 64 more scalars from the device than another. What that costs the job is measured
directly too: blocks of the job with one variant each, by turns, between two waits for the device.
"""

from __future__ import annotations

import math
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

import mtp_bench
from benchmarks import ab_job
from benchmarks.ab_job import Job
from mtp_bench.compare import Row, Threshold, compare
from mtp_bench.results import Run
from mtp_bench.statistics import Interval, paired_difference
from mtp_bench.variants.sync_free import sync_free

PLANTED = (1, 8, 64)
WINDOW = 5
ROUNDS = 100  # windows a variant
BLOCKS, BLOCK = 50, 10  # before the experiment and again behind it: blocks a variant, of so many iterations
EQUAL_ROUNDS = 20
RIGHT = 0.95  # of the experiments with equal variants, at least


def waits_0(**arguments: Any) -> Tensor:
    """The variant that the others are compared with."""
    return sync_free(**arguments)


def waits_1(**arguments: Any) -> Tensor:
    """One wait more."""
    return _waiting(1, **arguments)


def waits_8(**arguments: Any) -> Tensor:
    """Eight more."""
    return _waiting(8, **arguments)


def waits_64(**arguments: Any) -> Tensor:
    """Sixty-four more."""
    return _waiting(64, **arguments)


def also_waits_0(**arguments: Any) -> Tensor:
    """As ``waits_0``, under another name."""
    return sync_free(**arguments)


def _waiting(count: int, *, hidden_states: Tensor, **arguments: Any) -> Tensor:
    """Read ``count`` scalars that the device has yet to compute, one after the other."""
    probe = hidden_states.detach().flatten()[:1]
    for _ in range(count):
        probe = probe + 1
        probe.item()
    return sync_free(hidden_states=hidden_states, **arguments)


BASELINE = "benchmarks.ab_planted:waits_0"
EQUAL = "benchmarks.ab_planted:also_waits_0"


def run_of(job: Job, variants: Sequence[str], rounds: int, seed: int) -> Run:
    """One experiment in the job: ``rounds`` windows of every variant."""
    steps = rounds * len(variants) * WINDOW
    with tempfile.TemporaryDirectory() as out:
        experiment = mtp_bench.ab(
            job.ddp, variants, steps, WINDOW, out, optimizer=job.optimizer, seed=seed, allow_different_gradients=True
        )
        job.iterations(2 + steps)
        experiment.stop()
        if experiment.refusal or experiment.folder is None:
            raise SystemExit(f"no experiment: {experiment.refusal}")
        return mtp_bench.load_run(experiment.folder)


def rows_of(run: Run, threshold: Threshold | None = None) -> dict[str, Row]:
    """What ``compare`` says of each candidate."""
    return {row.candidate: row for row in compare([("ab", [("ab", run)])], baseline=BASELINE, threshold=threshold).rows}


Samples = dict[str, list[float]]


def directly(job: Job, variants: Sequence[str], samples: Samples, blocks: int = BLOCKS) -> None:
    """Add microseconds an iteration by the host's clock, a block a sample."""
    for _ in range(blocks):
        for name in variants:
            with job.with_loss(name):
                job.iterations(2)
                samples.setdefault(name, []).append(1e6 * ab_job.seconds(job, BLOCK))


@dataclass(frozen=True)
class Found:
    """What was planted, as measured directly and by ``ab`` and ``compare``: microseconds, and bounds of them."""

    waits: int
    waits_found: int | None
    direct: tuple[float, float, float]
    found: tuple[float, float, float]
    verdict: str

    @property
    def right(self) -> bool:
        """Found slower, with as many more waits, and by what was measured directly as far as both intervals tell."""
        (direct, *direct_bounds), (found, *found_bounds) = self.direct, self.found
        sides = [direct_bounds[1] - direct, found - found_bounds[0]]
        if direct < found:
            sides = [direct - direct_bounds[0], found_bounds[1] - found]
        holds = abs(direct - found) <= math.hypot(*sides)
        return self.verdict == "slower" and self.waits_found == self.waits and holds

    def __str__(self) -> str:
        direct, found = (f"{us:9.1f} [{low:.1f}, {high:.1f}]" for us, low, high in (self.direct, self.found))
        return f"{self.waits:>4} waits  {direct:<34}{found:<34}{self.verdict:<10}{'' if self.right else 'wrong'}"


def planted(job: Job, seed: int, rounds: int = ROUNDS, blocks: int = BLOCKS) -> list[Found]:
    """Every planted difference, measured directly before and after the experiment, and by it. The threshold is 0."""
    names = {waits: f"benchmarks.ab_planted:waits_{waits}" for waits in PLANTED}
    variants, samples = [BASELINE, *names.values()], {}
    directly(job, variants, samples, blocks)
    rows = rows_of(run_of(job, variants, rounds, seed), Threshold(0.0, 0.0))
    directly(job, variants, samples, blocks)
    return [
        _found(waits, rows[name], paired_difference(samples[BASELINE], samples[name])) for waits, name in names.items()
    ]


def _found(waits: int, row: Row, direct: Interval) -> Found:
    apart = row.difference
    assert apart is not None
    assert apart.low is not None
    assert apart.high is not None
    return Found(
        waits,
        row.syncs_change,
        (direct.difference, direct.low, direct.high),
        (apart.ns / 1e3, apart.low / 1e3, apart.high / 1e3),
        row.verdict,
    )


def equal(job: Job, experiments: int, rounds: int = EQUAL_ROUNDS) -> Counter[str]:
    """Verdicts on one function under two names, an experiment each."""
    return Counter(rows_of(run_of(job, [BASELINE, EQUAL], rounds, seed))[EQUAL].verdict for seed in range(experiments))


def main() -> int:
    """Print what was found; 1 where a planted difference is missed, or too many equal variants are called different."""
    experiments = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    warnings.filterwarnings("ignore")
    with ab_job.running() as job:
        print(f"A job on hostcuda, kernels of {ab_job.KERNEL_NS / 1e3:g} us; {ab_job.shared_machine()}.\n")
        print(f"{'planted':<12}{'us a step, directly':<34}{'by ab and compare':<34}verdict")
        found = planted(job, seed=1)
        print("\n".join(map(str, found)), flush=True)
        verdicts = equal(job, experiments)
    right = verdicts["same"] + verdicts["unclear"]
    print(f"\nOne function under two names, {experiments} experiments: {dict(verdicts)}")
    print(f"same or unclear in {right} (at least {100 * RIGHT:g} %)")
    return int(not all(one.right for one in found) or right < RIGHT * experiments)


if __name__ == "__main__":
    sys.exit(main())
