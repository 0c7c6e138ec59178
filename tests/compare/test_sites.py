"""Syncs by call site: which lines came, which went, which moved, and which wait more or less often where they were."""

import dataclasses

from mtp_bench.compare.sites import site_changes
from tests import runs
from tests.compare.sides import both, pooled


def changes(before, after):
    """(moved from, line, count before, count after) of every change."""
    found = site_changes(runs.syncs(*before), runs.syncs(*after))
    return [(change.moved_from, change.line, change.before, change.after) for change in found]


def test_a_change_names_its_line_whole():
    (change,) = site_changes(runs.syncs(), runs.syncs(runs.site(3)))
    assert dataclasses.asdict(change) == {
        "file": "mtp_bench/variants/patched.py",
        "line": 40,
        "function": "patched",
        "code": "if num_tokens > 0:",
        "op": "aten::_local_scalar_dense",
        "kind": "item",
        "before": 0,
        "after": 3,
        "moved_from": None,
    }
    assert change.count == 3


def test_lines_that_wait_as_often_as_before_are_no_change():
    assert changes([runs.site(8)], [runs.site(8)]) == []


def test_what_came_and_what_went():
    came, went = runs.site(2, code="x.item()", line=10), runs.site(3, code="y.cpu()", line=20)
    assert changes([went], [came]) == [(None, 20, 3, 0), (None, 10, 0, 2)]


def test_one_line_that_waits_more_often():
    assert changes([runs.site(1), runs.site(8, line=50)], [runs.site(2), runs.site(8, line=50)]) == [(None, 40, 1, 2)]


def test_the_same_code_elsewhere_in_its_function_has_moved():
    assert changes([runs.site(8, line=50)], [runs.site(8, line=55)]) == [(50, 55, 8, 8)]


def test_what_moved_may_wait_more_often_too():
    assert changes([runs.site(8, line=50)], [runs.site(9, line=55)]) == [(50, 55, 8, 9)]


def test_the_same_code_in_another_file_or_function_or_of_another_kind_has_not_moved():
    for other in ({"file": "mine.py"}, {"function": "mine"}, {"op": "aten::nonzero"}, {"kind": "dtoh"}):
        assert changes([runs.site(1)], [runs.site(1, line=41, **other)]) == [(None, 40, 1, 0), (None, 41, 0, 1)]


def test_lines_without_code_have_not_moved():
    """Of two lines whose code is not known nobody can say that they are the same."""
    assert changes([runs.site(1, code="")], [runs.site(1, code="", line=41)]) == [(None, 40, 1, 0), (None, 41, 0, 1)]


def test_equal_lines_move_in_their_order():
    before = [runs.site(1, line=10), runs.site(2, line=20)]
    assert changes(before, [runs.site(1, line=12), runs.site(2, line=22)]) == [(10, 12, 1, 1), (20, 22, 2, 2)]
    assert changes(before, [runs.site(1, line=20), runs.site(2, line=30)]) == [(10, 20, 1, 1), (20, 30, 2, 2)]


def test_of_equal_lines_that_became_fewer_what_stands_in_its_line_stays():
    before = [runs.site(1, line=10), runs.site(2, line=20)]
    assert changes(before, [runs.site(2, line=20)]) == [(None, 10, 1, 0)]
    assert changes(before, [runs.site(2, line=22)]) == [(10, 22, 1, 2), (None, 20, 2, 0)]


def test_other_code_on_the_same_line_is_one_that_went_and_one_that_came():
    assert changes([runs.site(1)], [runs.site(1, code="if loss.item():")]) == [(None, 40, 1, 0), (None, 40, 0, 1)]


def test_a_line_that_waits_in_two_phases_is_one_line():
    before = [runs.site(1), runs.site(1, phase="backward")]
    assert changes(before, [runs.site(2)]) == []
    assert changes(before, [runs.site(1)]) == [(None, 40, 2, 1)]


def test_a_row_tells_added_from_removed_from_moved():
    before, after = (
        runs.run([runs.result("mine", syncs=runs.syncs(*sites))])
        for sites in (
            (runs.site(1), runs.site(8, line=50, code="gone()"), runs.site(2, line=60, code="x[a:b]")),
            (runs.site(3), runs.site(5, line=55, code="new()"), runs.site(2, line=66, code="x[a:b]")),
        )
    )
    (row,) = both(before, after).rows
    assert [(change.code, change.count) for change in row.added] == [("if num_tokens > 0:", 2), ("new()", 5)]
    assert [(change.code, change.count) for change in row.removed] == [("gone()", -8)]
    assert [(change.code, change.moved_from, change.line) for change in row.moved] == [("x[a:b]", 60, 66)]
    assert row.syncs == (11, 10)


def test_of_a_side_whose_syncs_are_not_known_nothing_came_or_went():
    known, unknown = (runs.run([runs.result("mine", syncs=syncs)]) for syncs in (runs.syncs(runs.site()), None))
    for sides, counts in (((known, unknown), (1, None)), ((unknown, known), (None, 1))):
        (row,) = both(*sides).rows
        assert (row.changes, row.syncs) == ((), counts)


def test_of_several_runs_a_side_the_one_that_waits_most_is_told():
    once, twice, thrice = (runs.run([runs.result("mine", syncs=runs.syncs(runs.site(count)))]) for count in (1, 2, 3))
    (row,) = pooled([once, twice], [thrice, once]).rows
    assert row.syncs == (2, 3)
    assert [(change.before, change.after) for change in row.changes] == [(2, 3)]
