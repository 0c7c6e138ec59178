"""What to know about the jobs of a side: ranks that are not there, what was lost or refused. No torch, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mtp_bench.compare.cautions import Caution, Kind
from mtp_bench.compare.jobs import Replicate, ranks_in_words
from mtp_bench.compare.notes import varying
from mtp_bench.compare.pairs import Side, some
from mtp_bench.results import Job, Result

# What the end of a job begins with that did not measure, or not all it should.
_ENDED_BADLY = {"refused": Kind.REFUSED, "failed": Kind.FAILED}


def cautions(side: Side) -> Iterator[Caution]:
    """What makes its jobs say less than they seem to."""
    for replicate, jobs in _jobs(side):
        found = (*_ended_badly(jobs), *_missing(jobs), *_not_ended(jobs), *_lost(jobs), *_throttled(replicate))
        yield from (Caution(kind, "", f"{_who(side, replicate)}: {detail}") for kind, detail in found)


def notes(side: Side) -> Iterator[str]:
    """What of its jobs does not count, and what their ranks do not agree on."""
    for replicate, jobs in _jobs(side):
        found = (*_copies(replicate), *_cut_short(jobs), *_without_results(replicate), *_of_variants(replicate))
        yield from (f"{_who(side, replicate)}: {text}" for text in found)


def refusals(side: Side) -> Iterator[str]:
    """Why its jobs did not begin to measure, or stopped, each text once."""
    yield from dict.fromkeys(job.ended for _, jobs in _jobs(side) for job in jobs if _kind(job))


def _jobs(side: Side) -> Iterator[tuple[Replicate, list[Job]]]:
    for replicate in side.replicates:
        jobs = [run.job for _, run in replicate.runs if run.job]
        if jobs:
            yield replicate, jobs


def _who(side: Side, replicate: Replicate) -> str:
    return side.label if len(side.replicates) == 1 else f"{side.label}: {replicate.label}"


def _kind(job: Job) -> Kind | None:
    return _ENDED_BADLY.get(job.ended.partition(":")[0])


def _ended_badly(jobs: Sequence[Job]) -> Iterator[tuple[Kind, str]]:
    by_text: dict[tuple[Kind, str], list[int]] = {}
    for job in jobs:
        if kind := _kind(job):
            by_text.setdefault((kind, job.ended), []).append(job.rank)
    for (kind, text), ranks in by_text.items():
        yield kind, text if len(ranks) == len(jobs) else f"{ranks_in_words(ranks)}: {text}"


def _missing(jobs: Sequence[Job]) -> Iterator[tuple[Kind, str]]:
    world_size = max(job.world_size for job in jobs)
    missing = set(range(world_size)) - {job.rank for job in jobs}
    if missing:
        yield Kind.RANKS_MISSING, f"{ranks_in_words(missing)} of {world_size:,} {_are(missing)} not here"


def _not_ended(jobs: Sequence[Job]) -> Iterator[tuple[Kind, str]]:
    running = [job.rank for job in jobs if not job.ended]
    if running:
        at = max(job.iterations for job in jobs if not job.ended)
        yield Kind.NOT_ENDED, f"{ranks_in_words(running)}, after {at:,} of {jobs[0].steps:,} iterations"


def _lost(jobs: Sequence[Job]) -> Iterator[tuple[Kind, str]]:
    losers = {job.rank: job.windows_lost for job in jobs if job.windows_lost}
    if losers:
        most, up_to = max(losers.values()), "up to " if len({*losers.values()}) > 1 else ""
        yield Kind.WINDOWS_LOST, f"{up_to}{most:,} window{'' if most == 1 else 's'} of {ranks_in_words(losers)}"


def _throttled(replicate: Replicate) -> Iterator[tuple[Kind, str]]:
    """Which GPUs throttled, where there are several: the slowest rank's windows do not say it."""
    hot = {
        run.job.rank
        for _, run in replicate.runs
        for result in run.results
        if run.job and result.time and any(result.time.throttled)
    }
    if hot and len(replicate.runs) > 1:
        yield Kind.THROTTLED, f"the GPU of {ranks_in_words(hot)}"


def _copies(replicate: Replicate) -> Iterator[str]:
    if replicate.copies:
        yield f"left out, since their rank is there with no fewer windows: {some(replicate.copies)}"


def _cut_short(jobs: Sequence[Job]) -> Iterator[str]:
    """Jobs that ended otherwise than by themselves."""
    for text, job in {job.ended: job for job in jobs}.items():
        if text and job.iterations < job.steps and not _kind(job):
            yield f"ended after {job.iterations:,} of {job.steps:,} iterations: {text}"


def _without_results(replicate: Replicate) -> Iterator[str]:
    without = [run.job.rank for _, run in replicate.runs if run.job and not run.results]
    if without:
        yield f"without results: {ranks_in_words(without)}"


def _of_variants(replicate: Replicate) -> Iterator[str]:
    """What ranks do not agree on, and windows that some of them lack."""
    by_variant: dict[tuple[str, str], list[Result]] = {}
    for _, run in replicate.runs:
        for result in run.results:
            by_variant.setdefault((result.variant, result.workload), []).append(result)
    partial = total = 0
    for (variant, workload), results in by_variant.items():
        yield from (f"{variant} on {workload}: its ranks {text}" for text in varying(results))
        ranks = [result.time for result in results if result.time]
        counts = Counter(number for time in ranks for number in time.round)
        total += len(counts)
        partial += sum(count < len(ranks) for count in counts.values())
    if partial:
        yield f"{partial:,} of {total:,} windows are not there on every rank: the slowest is of those that have them"


def _are(ranks: set[int]) -> str:
    return "is" if len(ranks) == 1 else "are"
