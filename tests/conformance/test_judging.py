"""How what was seen is held against what is right."""

from __future__ import annotations

import json
import math

import pytest

from mtp_bench.conformance.judging import close, judge, shown
from mtp_bench.conformance.model import Affected, Case, Definition, Inputs, Observation, Outcome, Reference

NAN = math.nan


def case(**more):
    given = {
        "id": "x",
        "title": "x",
        "fault": "It breaks.",
        "property": "values",
        "inputs": Inputs(labels=[[1, 2]], loss_mask=[[1, 1]]),
        "arithmetic": "1 / 2.",
    }
    return Case(**{**given, **more})


@pytest.mark.parametrize(
    ("observed", "expected", "is_close"),
    [
        ([[1.0, 0.0]], [[1, 0]], True),
        ([[1.000001, 0.0]], [[1.0, 0.0]], True),
        ([[1.0001, 0.0]], [[1.0, 0.0]], False),
        ([[NAN, 0.0]], [[0.0, 0.0]], False),
        ([[math.inf, 0.0]], [[0.0, 0.0]], False),
        ([[1.0]], [[1.0, 0.0]], False),
        ([], [], True),
        ([1.0], [], False),
        ([(3.0, 3.0)], [[3.0, 3.0]], True),
        (True, True, True),
        (False, True, False),
        (None, False, False),
        (["a"], ["a"], True),
    ],
)
def test_numbers_agree_to_five_digits_and_shapes_entirely(observed, expected, is_close):
    assert close(observed, expected, 1e-5) is is_close


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        ([[4 / 3, NAN, -math.inf]], [[1.33333, "nan", "-inf"]]),
        ([[1.0] * 17], ["17 x 1"]),
        ([[0.25] * 257 + [0.0]], ["257 x 0.25, 0"]),
        ({"logged": [0.1 + 0.2]}, {"logged": [0.3]}),
        ([(1.0, 2.0)], [[1.0, 2.0]]),
        (True, True),
    ],
)
def test_what_is_shown_is_json_and_short(value, as_json):
    assert shown(value) == as_json
    json.dumps(shown(value), allow_nan=False)


def test_a_case_fails_with_what_was_seen_what_is_right_and_what_it_means():
    found = judge(case(expected={"logged": [0.5]}), Observation(logged=[NAN]))
    assert found == Outcome("failed", {"logged": ["nan"]}, {"logged": [0.5]}, "It breaks.")
    assert judge(case(expected={"logged": [0.5]}), Observation(logged=[0.5])).status == "passed"


def test_an_error_is_the_failure():
    found = judge(case(expected={"logged": [0.5]}), Observation(error="ValueError: no"))
    assert found == Outcome("failed", None, {"logged": [0.5]}, "It raised ValueError: no.")


def test_a_variant_that_logs_nothing_is_judged_by_the_rest():
    both = case(expected={"logged": [0.5], "head_trained": False})
    assert judge(both, Observation(head_trained=False)).status == "passed"
    assert judge(both, Observation(head_trained=True)).status == "failed"
    of_the_log = judge(case(expected={"logged": [0.5]}), Observation())
    assert of_the_log == Outcome("not_applicable", detail="it logs no loss in Megatron's tracker")
    assert judge(case(expected={"logged": []}), Observation()).status == "passed"
    assert judge(case(expected={"logged": []}), Observation(logged=[1.0])).status == "failed"


def test_of_several_definitions_the_one_that_is_followed_is_named():
    two = case(
        definitions=(
            Definition("kept", "it stays", {"logged": [1.0]}),
            Definition("gone", "it goes", {"logged": [2.0]}),
        )
    )
    expected = {"kept": {"logged": [1.0]}, "gone": {"logged": [2.0]}}
    assert judge(two, Observation(logged=[2.0])) == Outcome("follows", {"logged": [2.0]}, expected, "gone: it goes")
    neither = judge(two, Observation(logged=[3.0]))
    assert (neither.status, neither.detail) == ("failed", "none of the known definitions. It breaks.")


def test_targets_are_the_labels_that_are_trained_on():
    seen = Observation(labels=[[[7, 8, 9]]], coefficients=[[[0.5, 0.0, NAN]]])
    assert seen.targets == [[[7, 0, 9]]]


def test_a_reference_has_an_address():
    assert str(Reference("verl", 6464)) == "verl #6464"
    assert Reference("Megatron-LM", 3396).url == "https://github.com/NVIDIA/Megatron-LM/issues/3396"


@pytest.mark.parametrize(
    ("affected", "words"),
    [
        (Affected("verl", until="0.8.0"), "verl up to 0.8.0"),
        (Affected("verl", since="0.9.0"), "verl from 0.9.0"),
        (Affected("verl", since="0.8.0", until="0.9.1"), "verl 0.8.0 to 0.9.1"),
    ],
)
def test_affected_releases_in_words(affected, words):
    assert str(affected) == words
