"""One check: cases times variants in a worker process, and what is left of them in another where it dies."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mtp_bench import __version__, variants
from mtp_bench.conformance import all_cases
from mtp_bench.conformance.expectations import Expectations
from mtp_bench.conformance.model import Case, Outcome
from mtp_bench.conformance.results import Report, Result
from mtp_bench.environment import version
from mtp_bench.errors import InputError, RunError, did_you_mean
from mtp_bench.megatron import versions
from mtp_bench.process import WorkerProcess

Progress = Callable[[int, int, str], None]
"""Told (results done, results in all, what runs now)."""

_WORKER = "mtp_bench.conformance.worker"
_CASE_SECONDS = 30  # a case takes milliseconds


def check(
    variants: Sequence[str] | None = None,
    cases: Sequence[str] | None = None,
    device: str = "auto",
    *,
    ranks: bool = True,
    expect_fail: Expectations | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run the known faults of MTP losses against ``variants`` (names or ``package.module:callable``; default: all).

    ``cases`` are globs of case ids; ``ranks`` says whether cases that need several processes run too. Raises
    InputError for names and globs that match nothing, and RunError where the worker dies outside of any variant.
    """
    chosen = choose(cases, ranks)
    names = _names(variants)
    expected = expect_fail or Expectations()
    expected.require_known(names)
    check = _Check(names, chosen, device, progress)
    found = check.run()
    return Report(
        [
            Result(
                case,
                name,
                check.versions.get(name) or __version__,
                outcome.status,
                outcome.observed,
                outcome.expected,
                outcome.detail,
                expected.names(name, case.id),
            )
            for name in names
            for case in chosen
            for outcome in [found[name, case.id]]
        ],
        check.spec,
        {
            "mtp_bench": __version__,
            "torch": version("torch") or "",
            "megatron_core": versions.version(),
            "verl": version("verl") or "",
        },
    )


def choose(globs: Sequence[str] | None, ranks: bool) -> list[Case]:
    """The cases whose id one of ``globs`` matches, in their own order. InputError for a glob that matches none."""
    if globs is not None and (isinstance(globs, str) or not globs):
        raise InputError(f"cases = {globs!r}: expected a list of ids or patterns, as in ['no-sync*', 'log-mean']")
    every = all_cases()
    for glob in globs or ():
        if not any(fnmatch.fnmatchcase(case.id, glob) for case in every):
            raise InputError(f"--case {glob}: no such case{did_you_mean(glob, [case.id for case in every])}")
    wanted = [case for case in every if globs is None or any(fnmatch.fnmatchcase(case.id, glob) for glob in globs)]
    chosen = [case for case in wanted if ranks or case.ranks is None]
    if not chosen:
        raise InputError("--no-ranks: every case that --case names runs on several ranks")
    return chosen


def _names(asked: Sequence[str] | None) -> list[str]:
    if asked is None:
        return list(variants.available_names())
    if isinstance(asked, str) or not asked:
        raise InputError(f"variants = {asked!r}: expected a list of names, as in ['patched', 'my_pkg.loss:fn']")
    known = variants.available_names()
    for name in asked:
        if ":" not in name and name not in known:  # said before a process is started
            raise InputError(f"--variant {name}: no such variant{did_you_mean(name, known)}")
    return list(dict.fromkeys(asked))


class _Check:
    """The outcomes so far."""

    def __init__(self, names: Sequence[str], cases: Sequence[Case], device: str, progress: Progress | None) -> None:
        self.names = names
        self.alone = [case.id for case in cases if case.ranks is None]
        self.on_ranks = [case for case in cases if case.ranks is not None]
        self.device = device
        self.progress = progress
        self.total = len(names) * len(cases)
        self.outcomes: dict[tuple[str, str], Outcome] = {}
        self.versions: dict[str, str] = {}
        self.spec = device

    def run(self) -> Mapping[tuple[str, str], Outcome]:
        """Every outcome by variant and case id."""
        left = {name: list(self.alone) for name in self.names}
        while left:  # where all cases are of several ranks, the first worker finds the device and has no more to do
            worker = WorkerProcess(self.device, _WORKER)
            try:
                self.spec = worker.spec
                self._work(worker, left)
            finally:
                worker.close()
        if self.on_ranks:
            from mtp_bench.conformance.rank_runner import run_on_ranks

            kind = self.spec.partition(":")[0]
            device = kind if kind == "cuda" else self.spec  # each rank has a GPU of its own
            self.outcomes.update(run_on_ranks(self.names, self.on_ranks, device))
        return self.outcomes

    def _work(self, worker: WorkerProcess, left: dict[str, list[str]]) -> None:
        """Let ``worker`` do what is ``left``, and take out of it what it has done, or died of."""
        worker.send({"left": left, "case_seconds": _CASE_SECONDS})
        now: dict[str, Any] | None = None
        while (event := worker.receive()) is not None:
            match event.pop("event"):
                case "done":
                    left.clear()
                    return
                case "loaded":
                    self.versions[event["variant"]] = event["version"]
                case "stage":
                    now = event
                    if self.progress is not None:
                        what = " ".join(filter(None, (event["variant"], event["case"])))
                        self.progress(len(self.outcomes), self.total, what)
                case "outcome":
                    name, case = event.pop("variant"), event.pop("case")
                    self.outcomes[name, case] = Outcome(**event)
                    left[name].remove(case)
        why = worker.why_it_died()
        if why.startswith("killed by SIGALRM"):
            why = f"it took more than {_CASE_SECONDS} s"
        if now is None:
            raise RunError(f"the worker process died outside of any variant: {why}")
        self._file_death(now["variant"], now["case"], why, left)

    def _file_death(self, name: str, died_in: str | None, why: str, left: dict[str, list[str]]) -> None:
        """The death fails the case that was running, and what follows of that variant: it would be one more each."""
        for case in left.pop(name):
            if died_in is None:
                detail = f"its import ended the process: {why}"
            elif case == died_in:
                detail = f"it ended the process: {why}"
            else:
                detail = f"not run: it ended the process in {died_in}"
            self.outcomes[name, case] = Outcome("failed", detail=detail)
