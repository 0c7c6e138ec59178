"""Where the ranks of a launch write."""

from __future__ import annotations

import pytest

from mtp_bench.ab import folders


@pytest.fixture
def out(tmp_path):
    """A folder with these runs in it."""

    def make(*runs):
        for run in runs:
            (tmp_path / run).mkdir(parents=True)
            (tmp_path / run / "run.json").write_text("{}")
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("runs", "launch"),
    [
        ([], ""),
        (["something-else"], ""),
        (["rank-3"], "2"),
        (["rank-0", "rank-1", "2/rank-0", "3/rank-1"], "4"),
        (["rank-0", "3/rank-0"], "2"),
    ],
)
def test_a_launch_goes_where_no_rank_has_written(out, runs, launch):
    assert folders.of_launch(out(*runs)) == launch


def test_a_rank_goes_to_the_folder_of_the_launch(out):
    folder = out("rank-0")
    assert folders.of_rank(folder, "2", 5) == folder / "2" / "rank-5"


def test_what_rank_0_does_not_see_is_not_overwritten_either(out):
    folder = out("rank-1", "2/rank-1")
    assert folders.of_rank(folder, "", 1) == folder / "3" / "rank-1"
    assert folders.of_rank(folder, "2", 1) == folder / "3" / "rank-1"
