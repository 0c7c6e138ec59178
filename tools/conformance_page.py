"""docs/conformance.md from the cases and what each release did in them: text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from itertools import groupby
from typing import Any

from mtp_bench.conformance.judging import shown
from mtp_bench.conformance.model import Case, Inputs, Ranks, Reference
from tools.conformance_notes import NOT_CASES, NOTES

SIGNS = {"passed": "ok", "failed": "FAULT", "not_applicable": "-"}
_LETTERS = "abcdef"
_LARGEST_DENOMINATOR = 64
_ALWAYS_SHOWN = {"labels", "loss_mask"}
_PLACE = re.compile(r" at \S+:\d+ in [^\s)]+|: [\d.]+ has no packed roll")  # what tells like reasons apart

INTRODUCTION = """\
# Known faults of MTP losses, and which releases have them

Each row is a fault that somebody has reported, or that was found by reading the code. `mtp-bench check` runs them
against any MTP loss, a function of your own too; this page shows what it finds in the released versions of
megatron-core and verl.

Made by

```
python -m tools.conformance_matrix
```

which gets each release with pip into a folder of its own, runs `mtp-bench check --json` with it in a process of its
own, on the simulated device, and writes this page and the results beside it (`docs/conformance.json`). This one was
made with {made_with}. Tests make it again and compare.

The columns:

- megatron-core: the loss that the release itself calls, `GPTModel._postprocess` up to 0.16, `process_mtp_loss` from
  0.17.
- verl: the loss that it carries for a megatron-core without `process_mtp_loss`, run with 0.16.1. With a later
  megatron-core verl calls Megatron's, so that the megatron-core columns hold.
- 1F1B overlap: the copy in verl's `models/mcore/model_forward_1f1b_overlap.py`, run with megatron-core 0.16.1. No
  caller of it is known in verl itself.

The signs:

- `ok`: the right value.
- `FAULT`: another value, or an error. The section of the case says which.
- `-`: the release cannot be asked this; the section says why.
- `a`, `b`, `c`: people disagree on what is right here. The section says what each letter means.

"""


def page(cases: Sequence[Case], made_with: str, results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """The page. ``results`` are column -> case id -> ``status``, ``observed``, ``detail``."""
    unknown = sorted(set(NOTES) - {case.id for case in cases})
    if unknown:
        raise ValueError(f"notes on {', '.join(unknown)}: no such case")
    parts = [INTRODUCTION.format(made_with=made_with), *_matrix(cases, results)]
    for case in cases:
        parts += _section(case, {column: found[case.id] for column, found in results.items()})
    return "".join([*parts, *_not_cases()])


def sign(case: Case, result: Mapping[str, Any]) -> str:
    """What a cell of the matrix shows."""
    if result["status"] != "follows":
        return SIGNS[result["status"]]
    names = [definition.name for definition in case.definitions]
    return _LETTERS[names.index(result["detail"].split(":")[0])]


def _matrix(cases: Sequence[Case], results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    yield "## The matrix\n\n"
    yield f"| case | {' | '.join(_short(column) for column in results)} |\n"
    yield f"|---|{'---|' * len(results)}\n"
    for case in cases:
        cells = [sign(case, found[case.id]) for found in results.values()]
        yield f"| [{case.id}](#{case.id}) | {' | '.join(cells)} |\n"
    faults = [str(sum(result["status"] == "failed" for result in found.values())) for found in results.values()]
    yield f"| faults, of {len(cases)} cases | {' | '.join(faults)} |\n\n"


def _short(column: str) -> str:
    """A heading that leaves room for ten: the version under the name."""
    name, version, *rest = column.replace(",", "").split(" ")
    return "<br>".join([name, version, *([" ".join(rest)] if rest else [])])


def _section(case: Case, results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield f"## {case.id}\n\n"
    yield f"{case.title[0].upper()}{case.title[1:]}. {case.fault}\n\n"
    yield f"- Input: {', '.join(_inputs(case.inputs))}{_ranks(case.ranks)}.\n"
    if case.definitions:
        yield f"- {case.arithmetic}\n"
        for letter, definition in zip(_LETTERS, case.definitions, strict=False):
            yield f"- `{letter}`, {definition.name}: {definition.text}: {_values(definition.expected)}.\n"
    else:
        yield f"- Right: {_values(case.expected)}. {case.arithmetic}\n"
    if case.references:
        yield f"- Reported: {_links(case.references)}.\n"
    if case.affected:
        yield f"- Releases that have it: {'; '.join(map(str, case.affected))}.\n"
    for seen, columns in _grouped(case, results):
        yield f"- {'All' if len(columns) == len(results) else _joined(columns)}: {seen}\n"
    if case.id in NOTES:
        yield f"\n{NOTES[case.id].strip()}\n"
    yield "\n"


def _not_cases() -> Iterator[str]:
    yield "## Reported, and not a case\n\n"
    yield "These are about what surrounds the loss, so that no MTP loss passes or fails them:\n\n"
    for references, text in NOT_CASES:
        yield f"- {_links(references)}: {text}\n"


def _links(references: Sequence[Reference]) -> str:
    return ", ".join(f"[{reference}]({reference.url})" for reference in references)


def _grouped(case: Case, results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """What was seen where it is not simply right, and the columns that showed it."""
    seen: dict[str, list[str]] = {}
    for column, result in results.items():
        if text := _seen(case, result):
            seen.setdefault(text, []).append(column)
    return list(seen.items())


def _seen(case: Case, result: Mapping[str, Any]) -> str:
    match result["status"]:
        case "failed":
            observed = f"{_values(result['observed'])}." if result["observed"] else ""
            return " ".join(filter(None, [observed, result["detail"]]))
        case "follows":
            return f"`{sign(case, result)}`."
        case "not_applicable":
            return f"not asked, {_PLACE.sub('', result['detail'])}."
    return ""


def _joined(columns: Sequence[str]) -> str:
    """``megatron-core 0.14.0, 0.15.3; verl 0.8.0`` out of the columns' titles."""
    by_project = groupby(columns, key=lambda column: column.split(" ")[0])
    return "; ".join(
        f"{project} {', '.join(column.split(' ', 1)[1].replace(', ', ' ') for column in group)}"
        for project, group in by_project
    )


def _inputs(inputs: Inputs) -> Iterator[str]:
    """``name=value`` of what is not as it is by default."""
    for field in fields(inputs):
        value = getattr(inputs, field.name)
        is_default = value == (field.default_factory() if callable(field.default_factory) else field.default)
        if field.name in _ALWAYS_SHOWN or not is_default:
            yield f"`{field.name}={_value(shown(value))}`"


def _ranks(ranks: Ranks | None) -> str:
    if ranks is None:
        return ""
    ways = [
        f"{ways} {how}-parallel"
        for how, ways in (("data", ranks.data_parallel), ("context", ranks.context_parallel))
        if ways > 1
    ]
    split = f", split {ranks.split}" if ranks.context_parallel > 1 else ""
    return f", on {' times '.join(ways)} ranks{split}"


def _values(expected: Mapping[str, Any] | Any) -> str:
    if not isinstance(expected, Mapping):
        return f"`{_value(shown(expected))}`"
    return ", ".join(f"`{name} {_value(shown(value))}`" for name, value in expected.items())


def _value(value: Any) -> str:
    """A JSON value, with numbers as people write them: 4/3, not 1.33333."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, float):
        return _number(value)
    return str(value)


def _number(value: float) -> str:
    near = Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
    if near.denominator not in (1, 2, 4, 5, 8, 10) and abs(near - value) < 1e-5 * abs(value):
        return str(near)
    return f"{value:g}"
