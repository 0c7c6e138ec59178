"""Is what a variant did what a case expects? The one comparison that nearly all cases share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from mtp_bench.conformance.model import Case, Observation, Outcome

NOT_LOGGED = "it logs no loss in Megatron's tracker"
_LONGEST_ROW = 16  # numbers that are shown one by one


def judge(case: Case, observation: Observation) -> Outcome:
    """Compare what ``case`` expects with ``observation``; where people disagree, say whose definition is followed."""
    return (case.judge or judge_as)(case, observation)


def judge_as(case: Case, observation: Observation) -> Outcome:
    """What :func:`judge` does where a case has no judge of its own."""
    if observation.error:
        return Outcome("failed", None, shown(_expected(case)), f"It raised {observation.error}.")
    if case.definitions:
        return _which_definition(case, observation)
    expected = {name: value for name, value in case.expected.items() if observation.logged or not _of_log(name, value)}
    if not expected:
        return Outcome("not_applicable", detail=NOT_LOGGED)
    observed = {name: getattr(observation, name) for name in expected}
    wrong = [name for name in expected if not close(observed[name], expected[name], case.tolerance)]
    return Outcome(
        "failed" if wrong else "passed",
        shown(observed),
        shown(expected),
        case.fault if wrong else "",
    )


def _of_log(name: str, value: Sequence[float]) -> bool:
    """Whether a variant that logs nothing, for its framework logs elsewhere, cannot be asked this."""
    return name in ("logged", "interval_average") and len(value) > 0


def _which_definition(case: Case, observation: Observation) -> Outcome:
    named = list(dict.fromkeys(name for definition in case.definitions for name in definition.expected))
    observed = shown({name: getattr(observation, name) for name in named})
    expected = shown(_expected(case))
    for definition in case.definitions:
        if matches(observation, definition.expected, case.tolerance):
            return Outcome("follows", observed, expected, f"{definition.name}: {definition.text}")
    return Outcome("failed", observed, expected, f"none of the known definitions. {case.fault}")


def matches(observation: Observation, expected: Mapping[str, Any], tolerance: float) -> bool:
    """Whether all attributes named in ``expected`` have their values."""
    return all(close(getattr(observation, name), value, tolerance) for name, value in expected.items())


def close(observed: Any, expected: Any, tolerance: float) -> bool:
    """Whether two nested sequences have the same shape and numbers that differ by ``tolerance`` at most, relatively."""
    if isinstance(expected, str) or not isinstance(expected, Sequence):
        if isinstance(expected, float) or (isinstance(expected, int) and not isinstance(expected, bool)):
            return isinstance(observed, int | float) and math.isclose(
                observed, expected, rel_tol=tolerance, abs_tol=1e-9
            )
        return bool(observed == expected)
    return (
        isinstance(observed, Sequence)
        and len(observed) == len(expected)
        and all(close(a, b, tolerance) for a, b in zip(observed, expected, strict=True))
    )


def shown(value: Any) -> Any:
    """``value`` as JSON: numbers to six digits, non-finite ones by name, long rows by runs (``"257 x 1"``)."""
    if isinstance(value, Mapping):
        return {name: shown(inner) for name, inner in value.items()}
    if isinstance(value, float):
        rounded = float(f"{value:.6g}")
        return rounded if math.isfinite(value) else str(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    if len(value) > _LONGEST_ROW:
        return ", ".join(_runs(shown(item) for item in value))
    return [shown(item) for item in value]


def _runs(items: Iterable[Any]) -> list[str]:
    runs = [(item, len(list(group))) for item, group in groupby(items)]
    words = [(f"{item:g}" if isinstance(item, float) else str(item), count) for item, count in runs]
    return [f"{count} x {word}" if count > 1 else word for word, count in words]


def _expected(case: Case) -> Any:
    return {one.name: one.expected for one in case.definitions} or case.expected
