"""What a report of ``mtp-bench check`` says, whatever its format: a failing case reads as a report of a bug."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mtp_bench.conformance.judging import shown
from mtp_bench.conformance.model import Case, Inputs, Ranks
from mtp_bench.conformance.results import Report, Result
from mtp_bench.report.words import plural

_WORDS = {
    "coefficients": "losses multiplied by",
    "targets": "trained on",
    "logged": "logged loss",
    "interval_average": "average in the log",
    "main_gradient": "main model's gradient",
    "result": "hidden states returned",
    "head_trained": "output layer trained",
    "inputs_changed": "inputs changed",
    "process_changed": "changed in the process",
    "acceptance": "accepted, of",
}
_CELLS = {"passed": "ok", "failed": "FAIL", "not_applicable": "-", "follows": "def"}
LEGEND = (
    "ok: passes. FAIL: fails. known: fails as expected. FIXED: passes unexpectedly. def: follows a definition, "
    "see below. -: does not apply."
)


@dataclass(frozen=True)
class Group:
    """Variants of which the same was seen, and what that is, in some lines."""

    variants: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """A case with what was seen of the variants that it is about."""

    case: Case
    groups: tuple[Group, ...]

    @property
    def variants(self) -> list[str]:
        """All of them."""
        return [name for group in self.groups for name in group.variants]


@dataclass(frozen=True)
class CheckView:
    """A report of a check, in the order in which it is read."""

    report: Report

    @property
    def first_line(self) -> str:
        """What was checked where."""
        named = {"torch": "torch", "megatron_core": "megatron-core", "verl": "verl"}
        found = self.report.environment
        versions = [f"{word} {found[name]}" for name, word in named.items() if found.get(name)]
        return ", ".join([f"mtp-bench {found.get('mtp_bench', '')} check on {self.report.device}", *versions])

    @property
    def verdict(self) -> str:
        """Whether the check passed, and of what."""
        where = f"{plural(len(self.report.cases), 'case')} of {plural(len(self.report.variants), 'variant')}"
        unexpected = [result for result in self.report.results if result.unexpected]
        failed = sum(result.status == "failed" for result in unexpected)
        fixed = len(unexpected) - failed
        parts = [plural(failed, "failure") if failed else "", f"{fixed} unexpectedly passed" if fixed else ""]
        return f"{' and '.join(filter(None, parts)) or 'no unexpected result'} in {where}"

    @property
    def summaries(self) -> list[str]:
        """A line a variant: how many cases passed, failed, and so on."""
        return [self._summary(name) for name in self.report.variants]

    def _summary(self, name: str) -> str:
        results = self.report.of(name)
        counts = {
            "passed": sum(result.status == "passed" for result in results),
            "failed": sum(result.status == "failed" for result in results),
            "as expected": sum(result.status == "failed" and result.expected_failure for result in results),
            "following a definition": sum(result.status == "follows" for result in results),
            "not applicable": sum(result.status == "not_applicable" for result in results),
        }
        expected = counts.pop("as expected")
        words = [f"{count} {word}" for word, count in counts.items() if count]
        known = f" ({expected} of the failures expected)" if expected else ""
        return f"{name} {results[0].version}: {', '.join(words)}{known}"

    @property
    def failures(self) -> list[Finding]:
        """The cases that some variant fails, expected or not."""
        return self._findings("failed", seen)

    @property
    def definitions(self) -> list[Finding]:
        """The cases about which people disagree, and whose definition each variant follows."""
        return self._findings("follows", lambda result: (result.detail,))

    @property
    def not_applicable(self) -> list[Finding]:
        """The cases that some variant cannot be asked, and why."""
        return self._findings("not_applicable", lambda result: (result.detail,))

    @property
    def fixed(self) -> list[Result]:
        """What ``--expect-fail`` names and passes."""
        return [result for result in self.report.results if result.unexpected and result.status == "passed"]

    @property
    def passed(self) -> list[str]:
        """Ids of the cases that every variant passes."""
        failing = {result.case.id for result in self.report.results if result.status != "passed"}
        return [case.id for case in self.report.cases if case.id not in failing]

    def matrix(self) -> Iterator[tuple[Case, list[str]]]:
        """A row a case, a cell a variant."""
        cells = {(result.case.id, result.variant): cell(result) for result in self.report.results}
        for case in self.report.cases:
            yield case, [cells[case.id, name] for name in self.report.variants]

    def _findings(self, status: str, say: Callable[[Result], tuple[str, ...]]) -> list[Finding]:
        found = []
        for case in self.report.cases:
            groups: dict[tuple[str, ...], list[str]] = {}
            for result in self.report.results:
                if result.case.id == case.id and result.status == status:
                    groups.setdefault(say(result), []).append(result.variant)
            if groups:
                found.append(Finding(case, tuple(Group(tuple(names), lines) for lines, names in groups.items())))
        return found


def cell(result: Result) -> str:
    """A result in one word; ``LEGEND`` explains them."""
    if result.expected_failure and result.status in ("failed", "passed"):
        return "known" if result.status == "failed" else "FIXED"
    return _CELLS[result.status]


def seen(result: Result) -> tuple[str, ...]:
    """What was observed; what happened instead where nothing could be."""
    if not result.observed:
        return (result.detail,)
    syncs = result.observed.get("syncs") or ()
    others = {name: found for name, found in result.observed.items() if name != "syncs"}
    return (*([values(others)] if others else []), *([syncs] if isinstance(syncs, str) else syncs))


def right(case: Case) -> str:
    """What ``case`` expects, in words; of several definitions, all."""
    if case.definitions:
        return "; or ".join(f"{values(one.expected)} ({one.name}: {one.text})" for one in case.definitions)
    return values(case.expected)


def values(named: Mapping[str, Any]) -> str:
    """Values by name: ``coefficients 1, 1, 0; logged loss nan``."""
    return "; ".join(f"{_WORDS.get(name, name)} {value(shown(inner))}" for name, inner in named.items())


def value(found: Any) -> str:
    """A value without the brackets of what there is only one of."""
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, float):
        return f"{found:.6g}"
    if isinstance(found, str) or not isinstance(found, Sequence):
        return str(found)
    if not found:
        return "none"
    if len(found) == 1:
        return value(found[0])
    return ", ".join(f"[{value(item)}]" if _has_several(item) else value(item) for item in found)


def _has_several(item: Any) -> bool:
    return isinstance(item, Sequence) and not isinstance(item, str) and (len(item) > 1 or _has_several(item[0]))


def given(case: Case) -> str:
    """The inputs of a case, and the ranks that share them."""
    return "; ".join(filter(None, [call(case.inputs), _ranks(case.ranks)]))


def _ranks(ranks: Ranks | None) -> str:
    if ranks is None:
        return ""
    data = f"{ranks.data_parallel} data-parallel ranks with a row each" if ranks.data_parallel > 1 else ""
    context = f"{ranks.context_parallel} context-parallel ranks, {ranks.split}" if ranks.context_parallel > 1 else ""
    return "; ".join(filter(None, [data, context]))


def call(inputs: Inputs) -> str:
    """The inputs of a case as a call can be made from: what differs from one plain padded row is named."""
    said = {
        "labels": inputs.labels,
        "input_ids": inputs.input_ids,
        "loss_mask": inputs.loss_mask,
        "losses": inputs.losses,
        "cu_seqlens_q": inputs.cu_seqlens,
        "cu_seqlens_q_padded": inputs.cu_seqlens_padded,
    }
    words = [f"{name} {_long(rows)}" for name, rows in said.items() if rows is not None or name == "loss_mask"]
    words += [
        f"depths {inputs.depths}" if inputs.depths > 1 else "",
        f"lambda {inputs.scaling_factor:g}",
        f"calculate_per_token_loss={inputs.per_token}",
        f"mask in {inputs.mask_dtype}" if inputs.mask_dtype != "float32" else "",
        f"labels in {inputs.labels_dtype}" if inputs.labels_dtype != "int64" else "",
        f"{inputs.layout} labels and mask" if inputs.layout != "contiguous" else "",
        {"linear": "", "cross_entropy": "uniform logits over 4 tokens", "overwriting": "a loss that overwrites logits"}[
            inputs.loss
        ],
        f"logits times {inputs.logits_factor:g}" if inputs.logits_factor is not None else "",
        "" if inputs.training else "is_training=False",
        f"loss scale {inputs.loss_scale:g}" if inputs.loss_scale is not None else "",
        plural(inputs.microbatches, "microbatch").replace("microbatchs", "microbatches") if inputs.microbatches else "",
        plural(inputs.steps, "step") if inputs.steps else "",
        *(f"{name}={setting}" for name, setting in inputs.config.items()),
    ]
    return "; ".join(filter(None, words))


def _long(rows: Any) -> str:
    if rows is None:
        return "None"
    return value(shown([list(row) if isinstance(row, Sequence) else row for row in rows]))


def references(case: Case) -> list[str]:
    """Where the fault was reported, with the address."""
    return [f"{reference}: {reference.url}" for reference in case.references]


def releases(case: Case) -> str:
    """Which releases have the fault; "" where that is not known."""
    return ", ".join(map(str, case.affected))
