"""What a capture of a run adds to its results: detector ``nsys``, and how long the syncs of a step block and idle."""

from __future__ import annotations

from collections.abc import Sequence

from mtp_bench.nsight.steps import Steps, StepSync, TimedSteps
from mtp_bench.results import Result, Run, Site, Syncs

DETECTOR = "nsys"
PACKAGE = "nsight-systems"  # its name among environment.packages

Place = tuple[tuple[str, ...], str]
"""Where nsys and another detector can be compared: the range path, and the kind as a capture has it."""

# What PyTorch's operators wait in is one copy to the host for a capture.
_SEEN_AS = {"item": "dtoh", "dynamic_shape": "dtoh", "data_dependent": "dtoh"}


def merge(run: Run, captured: TimedSteps) -> Run:
    """``run`` with what its capture has of it; what nsys cannot tell is a warning of that result."""
    packages = {**run.environment.packages, PACKAGE: captured.nsys}
    environment = run.environment.model_copy(update={"packages": packages})
    results = [_merged(result, captured) for result in run.results]
    return run.model_copy(update={"environment": environment, "results": results})


def _merged(result: Result, captured: TimedSteps) -> Result:
    if result.syncs is None or result.time is None:
        return result
    if not captured.has_cuda:
        why = "a simulated device makes no CUDA call" if result.time.modelled else "it recorded no CUDA call"
        return _unseen(result, result.syncs, why)
    steps = captured.steps.get((result.workload, result.variant, f"time at lead {result.lead_ms:g} ms"))
    if steps is None or not steps.count:
        return _unseen(result, result.syncs, "no timed step is in its capture")
    return _seen(result, result.syncs, steps)


def _unseen(result: Result, syncs: Syncs, why: str) -> Result:
    detectors = {**syncs.detectors, DETECTOR: None}
    warnings = [*result.warnings, f"nsys cannot tell the syncs: {why}"]
    return result.model_copy(update={"syncs": syncs.model_copy(update={"detectors": detectors}), "warnings": warnings})


def _seen(result: Result, syncs: Syncs, steps: Steps) -> Result:
    by_place: dict[Place, list[StepSync]] = {}
    for sync in steps.syncs:
        by_place.setdefault((sync.range, sync.kind), []).append(sync)
    sites_at: dict[Place, list[Site]] = {}
    for site in syncs.sites:
        sites_at.setdefault(_place(site), []).append(site)
    warnings = []
    if any(len(found) % steps.count for found in by_place.values()):
        warnings.append(f"syncs vary between steps: nsys saw {len(steps.syncs)} in {steps.count} steps")
    differing = []
    for place in sorted({*by_place, *sites_at}):
        seen = round(len(by_place.get(place, ())) / steps.count)
        expected = sum(site.count for site in sites_at.get(place, ()))
        if seen != expected:
            differing.append(place)
            warnings.append(_difference(place, seen, expected))
    sites = [
        site
        if _place(site) in differing
        else _seen_too(site, by_place[_place(site)], steps.count, alone=len(sites_at[_place(site)]) == 1)
        for site in syncs.sites
    ]
    update = {
        "detectors": {**syncs.detectors, DETECTOR: round(len(steps.syncs) / steps.count)},
        "agreed": syncs.agreed and not differing,
        "blocked_ns": _blocked_ns(steps.syncs, steps.count),
        "device_idle_ns": _idle_ns(steps.syncs, steps.count),
        "sites": sites,
    }
    return result.model_copy(
        update={"syncs": syncs.model_copy(update=update), "warnings": [*result.warnings, *warnings]}
    )


def _place(site: Site) -> Place:
    return tuple(site.range), _SEEN_AS.get(site.kind, site.kind)


def _seen_too(site: Site, syncs: Sequence[StepSync], steps: int, *, alone: bool) -> Site:
    """``site`` as nsys saw it too; a capture tells ranges, not lines, so lines that share a range get no times."""
    update: dict[str, object] = {"seen_by": sorted({*site.seen_by, DETECTOR})}
    if alone:
        update |= {"blocked_ns": _blocked_ns(syncs, steps), "device_idle_ns": _idle_ns(syncs, steps)}
    return site.model_copy(update=update)


def _blocked_ns(syncs: Sequence[StepSync], steps: int) -> int:
    return round(sum(sync.blocked_ns for sync in syncs) / steps)


def _idle_ns(syncs: Sequence[StepSync], steps: int) -> int | None:
    """Device idle a step, a gap that syncs share counted once; None where no gap is known though there are syncs."""
    gaps = {sync.gap for sync in syncs if sync.gap is not None}
    if syncs and not gaps:
        return None
    return round(sum(end - begin for begin, end in gaps) / steps)


def _difference(place: Place, seen: int, expected: int) -> str:
    path, kind = place
    within = path[path.index("step") :] if "step" in path else path
    return f"{kind} a step in {' > '.join(within)}: nsys saw {seen}, the other detectors {expected}"
