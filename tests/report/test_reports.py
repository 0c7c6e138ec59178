"""Reports: everything a reader needs, in one order, and no number cut at 80 columns."""

import io
import re

import pytest
from rich.console import Console

from mtp_bench.compare import compare
from mtp_bench.report import markdown
from mtp_bench.report.terminal import comparison_report, run_report
from mtp_bench.report.view import site_views, workload_views
from mtp_bench.report.words import first_line
from mtp_bench.results import GraphCapture, Place, VariantInfo
from tests import runs


def text_of(renderable, width):
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(renderable)
    return out.getvalue()


def shown(run, width=80):
    return text_of(run_report(run, width), width)


def large_run():
    """Steps of half a second, differences of all sizes, a name of the user's own."""
    us = {"original": 512_345.6, "patched": 523_456.7, "my_package.losses.mtp:process_mtp_loss": 498_765.4}
    return runs.run(
        [
            runs.result(
                name,
                lead_ms=lead,
                time=runs.time(step, device_idle_ns=[123_456_789.0]),
                syncs=runs.syncs(runs.site(1234)),
            )
            for lead in (0.0, 1.0, 10.0)
            for name, step in us.items()
        ]
    )


def test_the_parts_come_in_the_order_of_the_design():
    found = shown(runs.modelled_run())
    order = [
        "The `num_tokens > 0` guard costs 16.5 us a step",
        "padded-sft (SFT, padded rows), scope loss, lead 1 ms",
        "packed-sft (SFT, packed row), scope loss, lead 1 ms",
        "syncs a step by call site",
    ]
    places = [found.index(part) for part in order]
    assert places == sorted(places)


def test_a_row_has_values_syncs_capture_time_difference_percent_and_idle():
    rows = [line.split() for line in shown(runs.modelled_run()).splitlines() if line.startswith("patched ")]
    assert rows[0] == ["patched", "close", "1", "no", "10,256.5", "+16.5", "+0.2", "1.5"]
    assert rows[1] == ["patched", *["10,256.5"] * 3, *["+16.5"] * 3]


def test_the_baseline_is_named_as_such():
    assert re.search(r"^original +close +0 +yes +10,240\.0 +baseline", shown(runs.modelled_run()), re.M)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_number_is_cut_and_no_line_is_wider_than_the_terminal(width):
    found = shown(large_run(), width)
    assert max(len(line) for line in found.splitlines()) <= width
    assert "…" not in found
    for number in ("512,345.6", "523,456.7", "498,765.4", "+11,111.1", "-13,580.2", "123,456.8", "1234"):
        assert number in found


@pytest.mark.parametrize("width", [80, 140])
def test_measured_times_show_intervals_and_who_the_step_waits_for(width):
    found = shown(runs.measured_run(), width)
    assert "modelled" not in found
    assert "[-130.0, -130.0]" in found
    assert "host" in found
    assert max(len(line) for line in found.splitlines()) <= width
    assert "…" not in found


def test_a_gpu_with_work_left_when_the_next_step_comes_is_the_bound():
    def bound(lead_ns):
        times = runs.time(10.0, 10.0, modelled=False, lead_ns=[lead_ns, lead_ns])
        return workload_views(runs.run([runs.result("original", time=times)]))[0].rows[0].bound

    assert bound(1e6 + 5_000) == "host-bound"
    assert bound(1e6 + 3e6) == "GPU-bound"


def test_every_modelled_figure_is_labelled():
    found = shown(runs.modelled_run())
    assert found.count("modelled.") == 2  # both sentences of the headline
    tables = [line for line in found.splitlines() if "variant  " in line or line.startswith("modelled us")]
    assert len(tables) == 4
    assert all("modelled" in line for line in tables)
    assert "(modelled)" in first_line(runs.modelled_run())
    table = next(line for line in markdown.run_report(runs.modelled_run()).splitlines() if line.startswith("| variant"))
    assert "us a step, modelled" in table


def test_a_failed_and_a_skipped_variant_are_rows_with_their_reason():
    run = runs.run(
        [
            runs.result("original"),
            runs.result(
                "my:fn",
                status="failed",
                error="ValueError: no at my.py:3 in fn",
                time=None,
                syncs=None,
                numerics=None,
                graph_capture=None,
            ),
            runs.result(
                "megatron",
                status="skipped",
                error="packed needs 0.16",
                time=None,
                syncs=None,
                numerics=None,
                graph_capture=None,
            ),
        ]
    )
    for found in (shown(run, 140), markdown.run_report(run)):
        assert re.search(r"my:fn`? +\|? ?failed", found)
        assert "my:fn: failed: ValueError: no at my.py:3 in fn" in found
        assert "megatron: skipped: packed needs 0.16" in found


def test_what_a_reader_must_know_is_said_below_the_table_once():
    detail = "the MTP gradient is 0.25 times what it should be"
    wrong = runs.numerics("differs", detail=detail, head_gradient="detached")
    run = runs.run(
        [
            runs.result("original", numerics=wrong),
            runs.result(
                "verl",
                numerics=wrong,
                variant_info=VariantInfo(version="0.9.1", path="mtp_patch", note="inactive here"),
            ),
            runs.result(
                "mine",
                warnings=["syncs vary between steps: 1, then 2"],
                graph_capture=GraphCapture(
                    possible=False, site=Place(file="a.py", line=7, function="f"), reason="prints"
                ),
            ),
        ]
    )
    found = shown(run, 140)
    assert f"original, verl: {detail}" in found
    assert "original, verl: the MTP loss does not train the output layer" in found
    assert "verl: inactive here" in found
    assert "verl: 0.9.1 by mtp_patch" in found
    assert "mine: syncs vary between steps: 1, then 2" in found
    assert "mine: not capturable at a.py:7: prints" in found


def test_detectors_that_disagree_and_throttled_windows_are_said():
    syncs = runs.syncs(runs.site(2)).model_copy(update={"detectors": {"torch": 2, "kineto": 1}, "agreed": False})
    times = runs.time(1.0, 2.0, modelled=False, throttled=[False, True])
    found = shown(runs.run([runs.result("original", syncs=syncs, time=times)]), 140)
    assert "original: the detectors disagree: torch 2, kineto 1" in found
    assert "original: the GPU was throttled in 1 window, which are left out" in found


def test_a_line_is_shown_once_with_its_code_and_who_reaches_it():
    sites = site_views(runs.modelled_run())
    assert [(s.place, s.code) for s in sites] == [
        ("mtp_bench/variants/patched.py:40", "if num_tokens > 0:"),
        ("megatron/core/transformer/multi_token_prediction.py:300", "x[a:b]"),
    ]
    roll = sites[1].reasons[0]
    assert (roll.kind, roll.op, roll.range) == ("item", "aten::_local_scalar_dense", "mtp_loss")
    assert roll.counts == ("packed-sft: 32 in original, patched, sync_free",)


def test_code_with_markup_characters_is_shown_as_it_is():
    run = runs.run([runs.result("original", syncs=runs.syncs(runs.site(1, code="x[bold]y[/bold] = a | b")))])
    assert "x[bold]y[/bold] = a | b" in shown(run)
    assert "x[bold]y[/bold] = a | b" in markdown.run_report(run)


def test_one_lead_has_no_table_of_leads():
    assert "at a lead of" not in shown(runs.modelled_run([1.0]))


def test_a_stand_in_is_named_in_the_first_line_of_scope_step():
    step = runs.run([runs.result("original", scope="step")])
    assert first_line(step).endswith("scope step: packed-sft; stand-ins: packed-sft (2 layers)")
    assert "stand-in" not in first_line(runs.modelled_run())


def test_scope_step_names_its_harness():
    step = runs.run([runs.result("original", scope="step", harness="verl", lead_ms=0.0)])
    assert "packed-sft (SFT, packed row), scope step, harness verl, lead 0 ms" in shown(step)
    assert "Scope step, harness verl, lead 0 ms" in markdown.run_report(step)


def test_markdown_tables_are_tables():
    lines = markdown.run_report(runs.measured_run()).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in tables}) == 1
    assert "mtp-bench run --device sim" in lines


def test_markdown_fits_a_review_however_many_lines_wait():
    sites = [runs.site(1, line=line, code="x" * 80) for line in range(2000)]
    found = markdown.run_report(runs.run([runs.result("original", syncs=runs.syncs(*sites))]))
    assert len(found) < 64_000
    assert re.search(r"- \d+ more lines in run\.json", found)
    assert found.rstrip().endswith("seed 0")


def test_a_run_without_results_has_a_report():
    assert "No packed workload was run" in shown(runs.run())
    assert "No packed workload was run" in markdown.run_report(runs.run())


def test_a_comparison_shows_verdict_difference_syncs_and_changed_lines():
    before = runs.run([runs.result("patched", syncs=runs.syncs(runs.site(1))), runs.result("gone")])
    after = runs.run(
        [runs.result("patched", syncs=runs.syncs(), time=runs.time(9_900.0), numerics=runs.numerics("nan"))]
    )
    after = after.model_copy(update={"environment": runs.environment(torch="2.14.1")})
    found = compare([("a", before), ("b", after)])
    for text in (text_of(comparison_report(found, 140), 140), markdown.comparison_report(found).replace("\\_", "_")):
        assert "torch: 2.13.0 (a), 2.14.1 (b)" in text
        assert "1 > 0" in text
        assert "close > nan" in text
        assert "-100.0" in text
        assert "patched (b): 1 fewer at mtp_bench/variants/patched.py:40: if num" in text
        assert "gone (b): incomparable: gone (b) is not in the run" in text


@pytest.mark.parametrize("width", [80, 140])
def test_a_comparison_fits_the_terminal(width):
    found = text_of(
        comparison_report(compare([("20261201-000000-sim-h100", large_run()), ("b", large_run())]), width), width
    )
    assert max(len(line) for line in found.splitlines()) <= width
    assert "…" not in found


def test_a_comparison_of_one_variant_says_there_is_nothing_to_compare():
    assert "Nothing to compare" in text_of(
        comparison_report(compare([("a", runs.run([runs.result("original")]))]), 80), 80
    )
