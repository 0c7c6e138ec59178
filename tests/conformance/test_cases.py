"""What the cases say of the variants that are built in: which of them fails what, and whose definition it follows."""

from __future__ import annotations

import re
from dataclasses import fields
from functools import cache

import pytest

from mtp_bench import variants
from mtp_bench.conformance import all_cases
from mtp_bench.conformance.model import PROPERTIES, Observation
from mtp_bench.conformance.worker import run_case
from mtp_bench.megatron import versions

ALONE = [case for case in all_cases() if case.ranks is None]

WITHOUT_CLAMP = {
    "empty-shard",
    "empty-shard-per-token",
    "all-masked",
    "one-token",
    "more-depths-than-tokens",
}
WITHOUT_RESCALING = {"per-token-scale", "per-token-depths"}
OF_ALL_BUT_EXACT = {"mask-bf16", "mask-fp16", "packed-padding", "log-infinite", "logical-end"}

FAILS = {
    "original": {*OF_ALL_BUT_EXACT, *WITHOUT_CLAMP, *WITHOUT_RESCALING, "no-sync-packed"},
    "patched": {*OF_ALL_BUT_EXACT, "mask-fractional", "no-sync", "no-sync-empty", "no-sync-packed"},
    "sync_free": {*OF_ALL_BUT_EXACT, "mask-fractional", "log-fractional", "no-sync-packed"},
    "host_lens": {*OF_ALL_BUT_EXACT, "mask-fractional", "log-fractional"},
    "boundary_roll": {*OF_ALL_BUT_EXACT, "mask-fractional", "log-fractional"},
    "exact": set(),
    "megatron": {*OF_ALL_BUT_EXACT, *WITHOUT_CLAMP, *WITHOUT_RESCALING, "no-sync-packed"},  # 0.16.1
}
FOLLOWS = {
    "original": {"ignore-index": "trained", "packed-tail": "kept", "head-detach": "detached", "mask-chain": "target"},
    "exact": {
        "ignore-index": "ignored",
        "packed-tail": "masked",
        "head-detach": "detached",
        "mask-chain": "target",
        "labels-from-ids": "mask of input_ids",
    },
    "megatron": {"ignore-index": "trained", "packed-tail": "kept", "head-detach": "trained", "mask-chain": "target"},
}


@pytest.fixture(scope="module")
def outcomes(sim):
    """Outcomes by case id, of a variant's name."""

    @cache
    def of(name):
        variant = variants.load(name)
        return {case.id: run_case(variant, case, sim) for case in ALONE}

    return of


@pytest.mark.parametrize("name", [name for name in FAILS if name != "megatron" or versions.version() == "0.16.1"])
def test_a_variant_fails_the_cases_of_its_faults_and_no_other(name, outcomes):
    found = outcomes(name)
    assert {case for case, outcome in found.items() if outcome.status == "failed"} == FAILS[name]
    assert sum(outcome.status == "passed" for outcome in found.values()) >= 40


@pytest.mark.parametrize("name", FOLLOWS)
def test_where_people_disagree_the_definition_is_named(name, outcomes):
    found = {
        case: outcome.detail.partition(":")[0]
        for case, outcome in outcomes(name).items()
        if outcome.status == "follows"
    }
    assert found == FOLLOWS[name]


@pytest.mark.parametrize(
    ("name", "case", "observed"),
    [
        ("original", "empty-shard", {"coefficients": [[["nan", "nan"]]], "logged": ["nan"]}),
        ("original", "per-token-scale", {"coefficients": [[[1.0, 1.0, 1.0, 0.0]]]}),
        ("boundary_roll", "packed-padding", {"targets": [[[2, 3, 0, 4, 0, 5, 0, 0]]]}),
        ("boundary_roll", "mask-fractional", {"coefficients": [[[0.5, 0.0, 0.0]]]}),
        ("boundary_roll", "mask-fp16", {"coefficients": [["65600 x 0"]]}),
        ("megatron", "log-infinite", {"logged": ["nan"], "coefficients": [[[0.5, 0.0, 0.5, 0.0]]]}),
    ],
)
def test_what_was_seen_is_told(name, case, observed, outcomes):
    found = outcomes(name)[case]
    assert (found.status, found.observed) == ("failed", observed)


def test_syncs_are_told_by_line_of_code(outcomes):
    (guard,) = outcomes("patched")["no-sync"].observed["syncs"]
    assert re.match(r"1 x mtp_bench/variants/patched\.py:\d+ in patched \(item\): logged = torch\.sum", guard)


CASES = pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.id)


def test_ids_are_words_with_dashes_and_each_is_used_once():
    ids = [case.id for case in all_cases()]
    assert len(ids) == len(set(ids)) >= 30
    assert [name for name in ids if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)] == []


@CASES
def test_a_case_says_what_goes_wrong_what_is_right_and_why(case):
    assert case.property in PROPERTIES
    assert case.title
    assert case.fault.endswith(".")
    assert case.arithmetic.endswith(".")
    assert bool(case.expected) != bool(case.definitions)


@CASES
def test_what_a_case_expects_can_be_observed(case):
    known = {field.name for field in fields(Observation)} | {"targets"}
    for expected in [case.expected, *(definition.expected for definition in case.definitions)]:
        assert set(expected) <= known
