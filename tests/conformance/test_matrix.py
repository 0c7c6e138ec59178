"""docs/conformance.md is made of its results, and they agree with what is known of the releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtp_bench.conformance import all_cases
from tools import conformance_matrix as matrix
from tools.conformance_notes import NOTES
from tools.conformance_page import page, sign

CASES = {case.id: case for case in all_cases()}
MADE_WITH, RESULTS = matrix.read()
PAGE = matrix.PAGE.read_text()
MEGATRON = {column.removeprefix("megatron-core "): found for column, found in RESULTS.items() if "megatron" in column}


def test_the_page_is_made_of_the_results():
    assert page(all_cases(), MADE_WITH, RESULTS) == PAGE


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
        page([], "", {})


def test_a_release_that_is_missing_is_unpacked_by_pip(tmp_path, monkeypatch):
    asked = []

    def pip(command, *, check):
        asked.append(command)
        Path(command[command.index("--target") + 1], "megatron").mkdir(parents=True)

    monkeypatch.setattr(matrix.subprocess, "run", pip)
    matrix.make("megatron_core-0.14.0", tmp_path, ["--index-url", "https://example.org/simple"])
    matrix.make("megatron_core-0.14.0", tmp_path)
    (command,) = asked
    assert command[1:4] == ["-m", "pip", "install"]
    assert {"--no-deps", "--ignore-requires-python", "--index-url"} <= set(command)
    assert command[-1] == "megatron_core==0.14.0"
    assert [path.name for path in tmp_path.iterdir()] == ["megatron_core-0.14.0"]
    assert [path.name for path in (tmp_path / "megatron_core-0.14.0").iterdir()] == ["megatron"]


def test_a_check_that_does_not_run_is_told(monkeypatch):
    environment = matrix.Environment(matrix.CORE_OF_VERL, (("no_such_variant", "none"),))
    with pytest.raises(RuntimeError, match=r"no_such_variant.* ended with 2:\n.*no such variant"):
        matrix.run(environment, ranks=False)
