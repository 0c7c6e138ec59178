"""What an argument of ``compare`` stands for, what its runs are called, and what is said where there is none."""

import json
import os
import re
from pathlib import Path

import pytest

from mtp_bench.errors import InputError
from mtp_bench.run_files import load_sides
from tests import runs


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(*folders):
    """A run in each folder, told apart by its seed: 1, 2, ..."""
    for seed, folder in enumerate(folders, 1):
        runs.run([runs.result("mine")], seed=seed).write(Path(folder))


def sides(*arguments):
    """[(label, [(label of the run, its seed), ...]), ...]"""
    return [(label, [(name, run.seed) for name, run in found]) for label, found in load_sides(arguments)]


def refused(*arguments):
    with pytest.raises(InputError) as error:
        load_sides(arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_run_is_its_file_or_its_folder():
    write("one")
    for argument in ("one", "one/", "./one", "one/run.json", os.path.abspath("one")):
        assert sides(argument) == [("one", [("one", 1)])]


def test_a_run_in_a_file_of_another_name_is_called_by_it():
    write("one")
    os.rename("one/run.json", "kept.json")
    assert sides("kept.json") == [("kept.json", [("kept.json", 1)])]


def test_the_folder_that_one_is_in_has_its_name(monkeypatch):
    write("one")
    monkeypatch.chdir("one")
    assert sides(".") == sides("run.json") == [("one", [("one", 1)])]


def test_a_folder_of_runs_is_one_side_of_all_runs_below_it_in_order_of_their_paths():
    write("night/b", "night/a", "night/deep/er/c")
    assert sides("night") == [("night", [("a", 2), ("b", 1), ("c", 3)])]


def test_what_a_run_holds_is_its_own_and_what_begins_with_a_dot_is_left_alone():
    write("night/a", "night/a/before", "night/.trash/b")
    assert sides("night") == [("a", [("a", 1)])]


def test_a_glob_is_one_side_called_by_its_last_part():
    write("runs/main-1", "runs/main-2", "runs/branch-1")
    assert sides("runs/main-*", "runs/b*") == [
        ("main-*", [("main-1", 1), ("main-2", 2)]),
        ("branch-1", [("branch-1", 3)]),
    ]
    assert sides("runs/main-*/run.json") == [("main-*", [("main-1", 1), ("main-2", 2)])]
    assert sides("runs/**/run.json")[0][1] == [("branch-1", 3), ("main-1", 1), ("main-2", 2)]


def test_a_folder_whose_name_looks_like_a_glob_is_itself():
    write("run[1]", "run1")
    assert sides("run[1]") == [("run[1]", [("run[1]", 1)])]


def test_a_run_named_in_two_ways_by_one_argument_counts_once():
    write("night/a")
    os.symlink("a", "night/again")
    assert sides("night") == sides("night/*") == [("a", [("a", 1)])]


def test_links_that_lead_back_end(tmp_path):
    write("night/a")
    os.symlink(tmp_path / "night", "night/back")
    assert [run for _, run in sides("night")[0][1]] == [1]


def test_a_run_may_be_compared_with_itself():
    write("one")
    assert sides("one", "one") == [("one (1)", [("one", 1)]), ("one (2)", [("one", 1)])]


def test_runs_of_one_name_are_called_by_their_paths():
    write("main/packed", "branch/packed")
    assert [label for label, _ in sides("main/packed", "branch/packed")] == ["main/packed", "branch/packed"]
    assert sides("[mb]*")[0][1] == [("branch/packed", 2), ("main/packed", 1)]


@pytest.mark.parametrize("argument", ["none", "none/run.json"])
def test_what_is_not_there_is_no_such_run(argument):
    assert refused(argument) == f"{argument}: no such run; give a run.json or the folder that holds one"


def test_an_empty_argument_is_no_run():
    """What a shell makes of ``"$RUN"`` where the variable is not set; as a path it would be the folder one is in."""
    write(".")
    assert refused("") == "an empty argument names no run; give a run.json or the folder that holds one"


def test_a_folder_without_a_run_says_so():
    os.makedirs("empty/deeper")
    assert refused("empty") == "empty: no run there nor below; a run's folder holds a run.json"


def test_a_glob_that_matches_nothing_says_so():
    assert refused("runs/main-*") == "runs/main-*: nothing matches"


def test_one_match_without_a_run_is_not_left_out():
    """A run that failed to be written would be missing from a side, and nobody would know."""
    write("runs/main-1")
    os.mkdir("runs/main-2")
    assert refused("runs/main-*") == "runs/main-2: matches runs/main-*, and there is no run in it nor below"


def test_one_run_of_a_folder_that_cannot_be_read_is_an_error_that_names_it():
    write("night/a", "night/b")
    Path("night/b/run.json").write_text("{")
    assert refused("night").startswith("night/b/run.json:1: cut off: the file ends in the middle")


def changed(**changes):
    """The text of a run with other values on its first level."""
    return json.dumps({**json.loads(runs.run([runs.result("mine")]).to_json()), **changes})


def of_result(**changes):
    """The text of a run whose one result has other values."""
    run = json.loads(runs.run([runs.result("mine")]).to_json())
    run["results"][0].update(changes)
    return json.dumps(run)


BROKEN = {
    "": r"one/run\.json:1: not JSON: the file is empty",
    " \n\n": r"one/run\.json:1: not JSON: the file is empty",
    "{": r"one/run\.json:1: cut off: the file ends in the middle; run it again",
    '{"schema_version": 1,\n "see': r"one/run\.json:2: cut off: the file ends in the middle; run it again",
    "not json": r"one/run\.json:1: not JSON: Expecting value",
    "{'a': 1}": r"one/run\.json:1: not JSON: .*",
    "[]": r"one/run\.json: not a run of mtp-bench: it has no schema_version",
    "null": r"one/run\.json: not a run of mtp-bench: it has no schema_version",
    '"run"': r"one/run\.json: not a run of mtp-bench: it has no schema_version",
    "{}": r"one/run\.json: not a run of mtp-bench: it has no schema_version",
    '{"schema_version": "1"}': r"one/run\.json: not a run of mtp-bench: it has no schema_version",
    '{"schema_version": true}': r"one/run\.json: not a run of mtp-bench: it has no schema_version",
    '{"schema_version": 1}': r"one/run\.json: created_at: Field required",
    "[" * 100_000: r"one/run\.json: not a run of mtp-bench: nested too deep",
    changed(
        schema_version=2
    ): r"one/run\.json: written by a newer mtp-bench \(schema_version 2, this one reads up to 1\); "
    "update mtp-bench",
    changed(schema_version=0): r"one/run\.json: schema_version: no mtp-bench wrote 0, this one reads 1",
    changed(schema_version=-1): r"one/run\.json: schema_version: no mtp-bench wrote -1, this one reads 1",
    changed(results={}): r"one/run\.json: results: Input should be a valid (array|list)",
    changed(workloads={}): r"one/run\.json: results\[0\]\.workload: 'packed-sft' is not among workloads",
    of_result(status="fine"): r"one/run\.json: results\[0\]\.status: Input should be 'ok', 'failed' or 'skipped'",
    of_result(lead_ms="soon"): r"one/run\.json: results\[0\]\.lead_ms: Input should be a valid number",
    of_result(surprise=1): r"one/run\.json: results\[0\]\.surprise: Extra inputs are not permitted",
    of_result(time={"modelled": True}): r"one/run\.json: results\[0\]\.time\.step_ns: Field required",
    of_result(
        time=runs.time(1.0).model_dump() | {"step_ns": []}
    ): r"one/run\.json: results\[0\]\.time\.step_ns: List should have at least 1 item.*",
    of_result(
        time=runs.time(1.0).model_dump() | {"round": [0, 1]}
    ): r"one/run\.json: results\[0\]\.time: Value error, round has 2 entries and step_ns 1",
    of_result(
        time=runs.time(1.0, 2.0).model_dump() | {"round": [0, 0]}
    ): r"one/run\.json: results\[0\]\.time: Value error, round holds a number twice: .*",
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text[:24]))
def test_a_file_that_is_no_run_is_named_with_what_is_wrong(text):
    write("one", "two")
    Path("one/run.json").write_text(text)
    for arguments in (["one"], ["one/run.json"], ["two", "one"], ["[ot]*"]):
        assert re.fullmatch(BROKEN[text], refused(*arguments))


def test_bytes_that_are_no_text_are_no_run():
    write("one")
    Path("one/run.json").write_bytes(b"\xff\xfe{\x00}\x00")
    assert refused("one") == "one/run.json: not JSON: not a text file in UTF-8"


def test_a_variant_that_is_there_twice_is_an_error_since_one_of_them_would_be_dropped():
    run = runs.run([runs.result("mine"), runs.result("yours"), runs.result("mine")])
    run.write(Path("one"))
    assert refused("one") == (
        "one/run.json: results[2]: mine on packed-sft at 1 ms lead is there twice, as results[0] too"
    )


def test_an_editors_byte_order_mark_is_no_error():
    write("one")
    Path("one/run.json").write_bytes(b"\xef\xbb\xbf" + Path("one/run.json").read_bytes())
    assert sides("one") == [("one", [("one", 1)])]


def test_a_run_without_results_is_a_run():
    runs.run().write(Path("one"))
    assert sides("one") == [("one", [("one", 0)])]


@pytest.fixture
def nobody(tmp_path):
    """Whom permissions hold for: root reads everything."""
    tmp_path.chmod(0o755)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    yield
    os.seteuid(user)


@pytest.fixture
def locked():
    write("one", "night/a")
    os.chmod("one/run.json", 0)
    os.chmod("night", 0)
    yield
    os.chmod("night", 0o755)


@pytest.mark.usefixtures("locked", "nobody")
def test_files_and_folders_that_may_not_be_read_are_named():
    assert refused("one") == "one/run.json: Permission denied"
    assert refused("night") == "night: Permission denied"


def test_a_path_through_a_file_and_a_name_too_long_are_one_line():
    write("one")
    assert refused("one/run.json/run.json") == "one/run.json/run.json: Not a directory"
    assert refused("x" * 5_000).endswith(": File name too long")


def test_a_run_json_that_is_a_folder_is_no_run():
    os.makedirs("one/run.json")
    assert refused("one") == "one: no run there nor below; a run's folder holds a run.json"
