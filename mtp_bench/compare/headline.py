"""The sentence that a run is made for: what the guard costs, and what the packed rolls cost. No torch, no I/O."""

from __future__ import annotations

from mtp_bench.compare.comparison import compare
from mtp_bench.compare.summary import summary
from mtp_bench.compare.verdicts import difference, finite
from mtp_bench.results import Result, Run

PREFERRED_LEAD_MS = 1.0
GUARD = "The `num_tokens > 0` guard"


def headline(run: Run) -> str:
    """Return one sentence or two: the costs on the first packed workload, and the guard's on the first padded one.

    Guard: ``patched`` less ``sync_free``. Packed rolls: ``sync_free`` less ``boundary_roll``, of which syncs:
    ``sync_free`` less ``host_lens``. Where a cost cannot be told, the sentence says why. Of a rank of a training job,
    what the comparison of its variants comes to.
    """
    if run.job is not None:
        return summary(compare([("this run", [("this run", run)])]))
    packed = next((name for name, keys in run.workloads.items() if keys.get("packed")), None)
    padded = next((name for name, keys in run.workloads.items() if not keys.get("packed")), None)
    sentences = []
    if packed is not None:
        sentences.append(_packed_sentence(run, packed))
    if padded is not None:
        sentences.append(_padded_sentence(run, padded))
    if packed is None:
        sentences.append("No packed workload was run, so what packed rolls cost cannot be told.")
    return " ".join(sentences)


def preferred_lead(run: Run, workload: str) -> float | None:
    """The lead that is shown first: 1 ms where it was measured, else the first one."""
    leads = [result.lead_ms for result in run.results if result.workload == workload]
    return PREFERRED_LEAD_MS if PREFERRED_LEAD_MS in leads else next(iter(leads), None)


def _packed_sentence(run: Run, workload: str) -> str:
    costs = _Costs(run, workload)
    guard, guard_obstacle = costs.of("patched", "sync_free")
    rolls, rolls_obstacle = costs.of("sync_free", "boundary_roll")
    syncs, syncs_obstacle = costs.of("sync_free", "host_lens")
    of_which = f"of which syncs {syncs}" if syncs else f"what of it are syncs cannot be told: {syncs_obstacle}"
    if guard and rolls:
        return f"{GUARD} costs {guard} a step, packed rolls cost {rolls} ({of_which}){costs.where}."
    if guard:
        return f"{GUARD} costs {guard} a step; what packed rolls cost cannot be told: {rolls_obstacle}{costs.where}."
    if rolls:
        return (
            f"What the `num_tokens > 0` guard costs cannot be told: {guard_obstacle}; "
            f"packed rolls cost {rolls} a step ({of_which}){costs.where}."
        )
    return (
        f"What the `num_tokens > 0` guard and packed rolls cost cannot be told: "
        f"{'; '.join(dict.fromkeys([guard_obstacle, rolls_obstacle]))}{costs.where}."
    )


def _padded_sentence(run: Run, workload: str) -> str:
    costs = _Costs(run, workload)
    guard, obstacle = costs.of("patched", "sync_free")
    if guard:
        return f"{GUARD} costs {guard} a step{costs.where}."
    return f"What the `num_tokens > 0` guard costs cannot be told: {obstacle}{costs.where}."


class _Costs:
    """Differences between the variants of one workload at one lead, in words."""

    def __init__(self, run: Run, workload: str) -> None:
        self.lead_ms = preferred_lead(run, workload)
        self.results: dict[str, Result] = {
            result.variant: result
            for result in run.results
            if result.workload == workload and result.lead_ms == self.lead_ms
        }
        modelled = ", modelled" if run.environment.device.modelled else ", 98 % intervals"
        lead = "" if self.lead_ms is None else f" at {self.lead_ms:g} ms lead"
        self.where = f" on {workload}{lead}{modelled}"

    def of(self, with_it: str, without_it: str) -> tuple[str, str]:
        """The cost, or "" and why it cannot be told."""
        times = []
        for name in (with_it, without_it):
            result = self.results.get(name)
            if result is None:
                return "", f"variant {name} was not run"
            if result.time is None:
                return "", f"variant {name} {result.status if result.status != 'ok' else 'has no times'}"
            if not finite(result.time):
                return "", f"variant {name} has step times that are not finite"
            times.append(result.time)
        # Candidate less baseline: the variant that pays for it is the candidate.
        found = difference([times[1]], [times[0]], paired=True)
        text = f"{found.ns / 1e3:,.1f} us"
        if found.low is not None and found.high is not None:
            text += f" [{found.low / 1e3:,.1f}, {found.high / 1e3:,.1f}]"
        return text, ""
