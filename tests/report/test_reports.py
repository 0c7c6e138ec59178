"""The report of a run: everything a reader needs, in one order, and no number cut at 80 columns."""

import io
import re

import pytest
from rich.console import Console

from mtp_bench.compare.headline import headline
from mtp_bench.report import markdown
from mtp_bench.report.review import length
from mtp_bench.report.terminal import run_report
from mtp_bench.report.view import site_views, workload_views
from mtp_bench.report.words import first_line
from mtp_bench.results import GraphCapture, Place, VariantInfo
from tests import runs
from tests.report.reading import shown_text, text_of


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
                time=runs.time(step, device_idle_ns=[123_456_789.0], lead_ns=[1_034_567_890.0]),
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
    assert rows[1] == ["patched", *["5,128"] * 3, *["1,000"] * 3]


def test_the_baseline_is_named_as_such():
    assert re.search(r"^original +close +0 +yes +10,240\.0 +baseline", shown(runs.modelled_run()), re.M)


def leads_of(run):
    """The rows of the terminal's tables by lead, as words."""
    tables = shown(run).split("at a lead of")[1:]
    return [[line.split() for line in table.split("\n\n")[0].splitlines()[2:]] for table in tables]


def of_leads(step_us, host_us, ahead_us):
    return runs.run(
        [
            runs.result(variant, lead_ms=lead, time=runs.time(us, host_ns=[host * 1e3], lead_ns=[ahead * 1e3]))
            for variant, shift in (("original", 0), ("mine", 5))
            for lead, us, host, ahead in zip(
                (0.0, 1.0, 10.0), [u + shift for u in step_us], host_us, ahead_us, strict=True
            )
        ]
    )


def test_step_times_that_depend_on_the_lead_have_a_table():
    run = of_leads([100.0, 90.0, 80.0], [90, 90, 90.4], [0, 1_000, 10_000])
    assert leads_of(run) == [
        [
            ["original", "100.0", "90.0", "80.0", "baseline", "baseline", "baseline"],
            ["mine", "105.0", "95.0", "85.0", "+5.0", "+5.0", "+5.0"],
        ],
        [[name, "90", "90", "90", "0", "1,000", "10,000"] for name in ("original", "mine")],
    ]
    assert "step times are the same" not in shown(run)
    found = markdown.run_report(run)
    assert "| `mine` | 105.0 | 95.0 | 85.0 | +5.0 | +5.0 | +5.0 |" in found
    assert "| `mine` | 90 | 90 | 90 | 0 | 1,000 | 10,000 |" in found


def test_step_times_that_agree_at_all_leads_are_one_line():
    run = of_leads([100.0, 100.04, 100.0], [90, 95, 99], [0, 1_000, 10_000])
    assert leads_of(run) == [[[name, "90", "95", "99", "0", "1,000", "10,000"] for name in ("original", "mine")]]
    assert "modelled step times are the same at leads of 0, 1 and 10 ms" in shown(run)
    found = markdown.run_report(run)
    assert "- modelled step times are the same at leads of 0, 1 and 10 ms" in found
    assert "difference, lead" not in found


def test_the_hosts_side_is_the_median_of_the_windows_and_no_table_where_it_is_not_known():
    measured = runs.time(9.0, 9.0, 9.0, modelled=False, host_ns=[1e3, 5e3, 9e3], lead_ns=[2e3, None, 4e3])
    assert leads_of(runs.run([runs.result("original", time=measured)])) == [[["original", "5", "3"]]]
    unknown = runs.time(9.0, host_ns=[None], lead_ns=[None])
    assert leads_of(runs.run([runs.result("original", time=unknown)])) == []


def test_a_sentence_in_a_pipe_is_one_line():
    run = runs.modelled_run()
    found = text_of(run_report(run, 80), 80, terminal=False).splitlines()
    assert found[0] == headline(run)
    assert len(found[0]) > 200
    assert max(len(line) for line in shown(run).splitlines()) <= 80


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [80, 140])
def test_no_line_ends_with_blanks(width, terminal):
    for run in (large_run(), runs.modelled_run(), runs.measured_run()):
        found = text_of(run_report(run, width), width, terminal)
        assert [line for line in found.splitlines() if line != line.rstrip()] == []


def test_colours_do_not_hide_blanks_at_the_end():
    out = io.StringIO()
    run = runs.run([runs.result("original", time=None, numerics=runs.numerics("nan"))])
    Console(file=out, width=80, force_terminal=True, color_system="standard").print(run_report(run, 80), crop=False)
    assert "\x1b[" in out.getvalue()
    plain = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert [line for line in plain.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("width", [40, 64, 80, 100, 140])
def test_no_number_is_cut_and_no_line_is_wider_than_the_terminal(width):
    found = shown(large_run(), width)
    assert max(len(line) for line in found.splitlines()) <= width
    assert "…" not in found
    numbers = ("512,345.6", "523,456.7", "498,765.4", "+11,111.1", "-13,580.2", "123,456.8", "1234")
    for number in (*numbers, "256,173", "1,034,568"):
        assert number in found


def test_a_terminal_too_narrow_for_a_table_has_a_block_a_variant():
    found = shown(runs.modelled_run(), 40)
    assert (
        "boundary_roll\n  values: close\n  syncs a step: 0\n  CUDA graph: yes\n  us a step modelled: 10,000.0\n"
        "  difference modelled: -240.0\n  %: -2.3\n  idle us modelled: 0.0\n"
    ) in found
    assert "modelled us at a lead of\noriginal\n  host, 0 ms: 5,120\n  host, 1 ms: 5,120\n" in found


@pytest.mark.parametrize("width", [1, 8, 20])
def test_a_terminal_too_narrow_for_a_word_loses_no_character(width):
    report = shown(large_run(), width)
    for text in ("my_package.losses.mtp:process_mtp_loss", "512,345.6", "+11,111.1", "1,034,568"):
        assert text in re.sub(r"\s", "", report)


@pytest.mark.parametrize("width", [40, 80, 140])
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
    assert " ".join(found.split()).count("lead, modelled.") == 2  # both sentences of the headline
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
    for found in (shown(run, 140), shown_text(markdown.run_report(run))):
        assert re.search(r"my:fn *failed", found)
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


def test_one_lead_has_no_table_of_step_times_by_lead():
    assert [len(rows[0]) for rows in leads_of(runs.modelled_run([1.0]))] == [3, 3]  # variant, host, ahead
    assert "step times are the same" not in shown(runs.modelled_run([1.0]))


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
    tables = [line.count("|") for line in lines if line.startswith("|")]
    assert tables == [11] * 6 + [4] * 6
    assert "mtp-bench run --device sim" in lines


def test_markdown_fits_a_review_however_many_lines_wait():
    sites = [runs.site(1, line=line, code="x" * 80) for line in range(2000)]
    found = markdown.run_report(runs.run([runs.result("original", syncs=runs.syncs(*sites))]))
    assert 59_000 < length(found) <= 60_000
    assert re.search(
        r"\n\n1,\d\d\d of 2,000 lines left out here to fit a review; run\.json has everything\.\n\n</details>", found
    )
    assert found.rstrip().endswith("seed 0")


def test_a_run_without_results_has_a_report():
    assert "No packed workload was run" in shown(runs.run())
    assert "No packed workload was run" in markdown.run_report(runs.run())


def test_times_that_are_not_finite_are_shown_and_have_no_difference():
    run = runs.run([runs.result("original"), runs.result("mine", time=runs.time(float("nan")))])
    assert re.search(r"^mine +close +0 +yes +nan +-$", shown(run), re.M)
    assert "| `mine` | close | 0 | yes | nan | - |" in markdown.run_report(run)


def test_a_run_without_results_names_its_simulated_device():
    device = runs.environment().device.model_copy(update={"profile": "h100 0123abcd"})
    assert " on sim:h100 (modelled), torch " in first_line(runs.run(environment=runs.environment(device=device)))
