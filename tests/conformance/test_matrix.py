"""docs/conformance.md is what the releases do: made from its results, which running the releases gives again."""

from __future__ import annotations

import pytest

from mtp_bench.conformance import all_cases
from tests.releases import FOLDER, release
from tools import conformance_matrix as matrix
from tools.conformance_notes import NOTES
from tools.conformance_page import page, sign

CASES = {case.id: case for case in all_cases()}
ALONE = [id_ for id_, case in CASES.items() if case.ranks is None]
RESULTS = matrix.read()
PAGE = matrix.PAGE.read_text()
MEGATRON = {column.removeprefix("megatron-core "): found for column, found in RESULTS.items() if "megatron" in column}
ENVIRONMENTS = {environment.columns[0][1]: environment for environment in matrix.ENVIRONMENTS}
INSTALLED = ["megatron-core 0.16.1", "verl 0.8.0", "verl 0.9.1"]  # what runs with the megatron-core that is installed


def test_the_page_is_made_of_the_results():
    assert page(all_cases(), RESULTS) == PAGE


def test_every_column_has_every_case():
    assert {column: list(found) for column, found in RESULTS.items()} == {
        column: list(CASES) for column in matrix.COLUMNS
    }


@pytest.mark.parametrize("id_", CASES)
def test_every_case_has_a_row_and_a_section(id_):
    cells = " | ".join(sign(CASES[id_], found[id_]) for found in RESULTS.values())
    assert f"\n| [{id_}](#{id_}) | {cells} |\n" in PAGE
    section = PAGE.split(f"\n## {id_}\n")[1].split("\n## ")[0]
    assert CASES[id_].fault in section
    assert CASES[id_].arithmetic in section
    for reference in CASES[id_].references:
        assert f"({reference.url})" in section


def again(environment, *, ranks):
    for name in environment.releases():
        release(*name.replace("_", "-").rsplit("-", 1))
    return matrix.run(environment, FOLDER, ranks=ranks)


@pytest.mark.parametrize("column", INSTALLED)
def test_the_results_come_out_again(column):
    found = again(ENVIRONMENTS[column], ranks=False)
    assert found == {name: {id_: RESULTS[name][id_] for id_ in ALONE} for name in found}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("column", ENVIRONMENTS)
def test_the_results_come_out_again_with_every_release(column):
    found = again(ENVIRONMENTS[column], ranks=True)
    assert found == {name: RESULTS[name] for name in found}


def order(release):
    return tuple(int(part) for part in release.split("."))


def in_range(affected, release):
    since, until = affected.since or "0", affected.until or "999"
    return order(since) <= order(release) <= order(until)


def named(case, project, release):
    return any(affected.project == project and in_range(affected, release) for affected in case.affected)


@pytest.mark.parametrize("id_", CASES)
def test_the_releases_that_a_case_names_are_those_that_fail_it(id_):
    """But for those that cannot be asked, and verl's copy, which a case does not tell from verl.

    verl may also fail where its megatron-core does, whose rolls it calls.
    """
    case = CASES[id_]
    for column, found in RESULTS.items():
        project, release_, *copy = column.replace(",", "").split(" ")
        status = found[id_]["status"]
        if copy or status in ("not_applicable", "follows"):
            continue
        by_roll = project == "verl" and status == "failed" and named(case, "megatron-core", matrix.CORE_OF_VERL)
        is_named = by_roll or named(case, project, release_)
        assert (status == "failed") == is_named, f"{column}: {status}, and affected are {case.affected}"


@pytest.mark.parametrize("id_", NOTES)
def test_a_note_is_about_a_case(id_):
    assert id_ in CASES


FIXED = ("0.17.1", "0.18.2", "0.19.2")
SEEN = [
    ("empty-shard", ("0.16.1",), {"coefficients": [[["nan", "nan"]]], "logged": ["nan"]}),
    ("empty-shard", FIXED, {"coefficients": [[[0.0, 0.0]]], "logged": [0.0]}),
    ("empty-shard-per-token", ("0.16.1",), {"coefficients": [[[0.0, 0.0]]], "logged": ["nan"]}),
    ("empty-shard-per-token", FIXED, {"coefficients": [[[0.0, 0.0]]], "logged": [0.0]}),
    ("per-token-scale", ("0.16.1",), {"coefficients": [[[1.0, 1.0, 1.0, 0.0]]]}),
    ("per-token-scale", FIXED, {"coefficients": [[[1.33333, 1.33333, 1.33333, 0.0]]]}),
    ("packed-padding", ("0.16.1", *FIXED), {"targets": [[[2, 3, 0, 4, 0, 5, 0, 0]]]}),
    ("packed-tail", ("0.16.1", *FIXED), {"targets": [[[2, 3, 4, 0, 5, 6]]]}),
    (
        "ignore-index",
        ("0.16.1", *FIXED),
        {"coefficients": [[[0.333333, 0.333333, 0.333333, 0.0]]]},
    ),
]


@pytest.mark.parametrize(("id_", "releases", "observed"), SEEN)
def test_agrees_with_what_was_seen_of_the_releases_by_hand(id_, releases, observed):
    assert {release_: MEGATRON[release_][id_]["observed"] for release_ in releases} == dict.fromkeys(releases, observed)


def test_three_depths_over_two_tokens_log_nan_up_to_0_16():
    logged = {name: found["more-depths-than-tokens"]["observed"]["logged"] for name, found in MEGATRON.items()}
    assert logged["0.16.1"] == [1.0, "nan", "nan"]
    assert [logged[name] for name in FIXED] == [[1.0, 0.0, 0.0]] * 3


def test_a_note_on_nothing_is_refused():
    with pytest.raises(ValueError, match=r"notes on .*: no such case"):
        page([], {})
