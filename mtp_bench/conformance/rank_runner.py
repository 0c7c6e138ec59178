"""Cases across ranks: one launch of processes serves all variants, and another goes on where a variant ends it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mtp_bench.conformance.judging import judge
from mtp_bench.conformance.model import Case, Observation, Outcome
from mtp_bench.conformance.shares import Place, together
from mtp_bench.errors import RunError
from mtp_bench.ranks.launch import launch

CASE_SECONDS = 45  # a case takes milliseconds, or as long as a rank waits for another one and some
_START_S = 180.0  # for ranks to start, to be in step and to end
_CASE_S = 20.0  # on average; one that hangs ends the ranks by itself

Pair = tuple[str, str]
"""A variant and a case, by name and id."""


def run_on_ranks(names: Sequence[str], cases: Sequence[Case], device: str) -> Mapping[Pair, Outcome]:
    """Run ``cases`` on as many processes as they ask for, for every variant of ``names``.

    A variant that ends a rank, or hangs on it, fails that case, and the rest of its cases are not run; other variants
    go on in new ranks. Raises RunError where ranks cannot be started at all.
    """
    by_id = {case.id: case for case in cases}
    outcomes: dict[Pair, Outcome] = {}
    fit = _without_the_unfit(names, cases, device, outcomes)
    # Cases with the same groups one after the other; users' variants come last in ``names``.
    left = [(name, case.id) for name in names for case in fit]
    while left:
        with tempfile.TemporaryDirectory(prefix="mtp-bench-check-") as folder:
            died = _launch(left, [by_id[id_] for _, id_ in left], device, folder)
            found, begun = _read(Path(folder))
        done = {pair: _outcome(by_id[pair[1]], lines) for pair, lines in found.items() if _complete(by_id, pair, lines)}
        if died:
            if begun is None:
                raise RunError(died)
            if begun not in done:
                done.update(_death(begun, died, left, done))
        outcomes.update(done)
        before, left = len(left), [pair for pair in left if pair not in outcomes]
        if len(left) == before:
            raise RunError(f"the ranks got nowhere in {left[0][1]} of {left[0][0]}")
    return outcomes


def _without_the_unfit(
    names: Sequence[str], cases: Sequence[Case], device: str, outcomes: dict[Pair, Outcome]
) -> list[Case]:
    """The cases that this machine has devices for; the others get their outcome."""
    if device.partition(":")[0] != "cuda":
        return list(cases)
    import torch

    gpus = torch.cuda.device_count()
    for case in cases:
        if _count(case) > gpus:
            reason = f"it needs {_count(case)} GPUs, this machine has {gpus}"
            outcomes.update({(name, case.id): Outcome("not_applicable", detail=reason) for name in names})
    return [case for case in cases if _count(case) <= gpus]


def _death(begun: Pair, why: str, left: Sequence[Pair], done: Mapping[Pair, Outcome]) -> dict[Pair, Outcome]:
    """The outcomes of the case in which ranks died, and of what follows of its variant: it would be one more each."""
    name, died_in = begun
    rest = [pair for pair in left if pair[0] == name and pair not in done]
    not_run = Outcome("failed", detail=f"not run: it ended the ranks in {died_in}")
    return {**dict.fromkeys(rest, not_run), begun: Outcome("failed", detail=why)}


def _count(case: Case) -> int:
    assert case.ranks is not None
    return case.ranks.count


def _launch(left: Sequence[Pair], cases: Sequence[Case], device: str, folder: str) -> str:
    """Run as much of ``left`` as the ranks live for; return what ended them early, "" where nothing did."""
    job = {"device": device, "folder": folder, "cases": list(left)}
    limit_s = _START_S + _CASE_S * len(left)
    try:
        launch("mtp_bench.conformance.rank_worker:run", job, ranks=max(map(_count, cases)), time_limit_s=limit_s)
    except RunError as error:
        return str(error).replace("was killed by SIGALRM", f"took more than {CASE_SECONDS} s")
    return ""


def _read(folder: Path) -> tuple[dict[Pair, list[dict[str, Any]]], Pair | None]:
    """What each rank found by variant and case, and the case that was begun last."""
    found: dict[Pair, list[dict[str, Any]]] = {}
    begun: list[list[Pair]] = []
    for file in sorted(folder.glob("found.*")):
        begun.append([])
        for line in file.read_text().splitlines():
            message = json.loads(line)
            if "begun" in message:
                begun[-1].append(tuple(message["begun"]))
            else:
                found.setdefault((message["variant"], message["case"]), []).append(message)
    furthest = max(begun, key=len, default=[])
    return found, furthest[-1] if furthest else None


def _complete(by_id: Mapping[str, Case], pair: Pair, lines: Sequence[dict[str, Any]]) -> bool:
    """Whether all ranks of the first group have told what they found."""
    return any("not_applicable" in line for line in lines) or len(_first_group(lines)) == _count(by_id[pair[1]])


def _first_group(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line.get("group") == 0]


def _outcome(case: Case, lines: Sequence[dict[str, Any]]) -> Outcome:
    for line in lines:
        if "not_applicable" in line:
            return Outcome("not_applicable", detail=line["not_applicable"])
    lines = _first_group(lines)
    raised = [line for line in lines if line["raised_at"] is not None]
    if raised:  # what others raise later is for the sake of the first one
        first = min(raised, key=lambda line: line["raised_at"])
        return judge(case, Observation(error=first["observation"]["error"]))
    found: dict[Place, Observation] = {tuple(line["place"]): Observation(**line["observation"]) for line in lines}
    return judge(case, together(case, found))
