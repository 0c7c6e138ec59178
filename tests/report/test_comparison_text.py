"""Comparisons in the terminal and in Markdown: nine parts in one order, at every width, cut on purpose."""

import math
import re

import pytest
from rich.cells import cell_len

from mtp_bench.compare import compare
from mtp_bench.report import markdown, plots
from mtp_bench.report.comparison_view import ForestEntry, SampleLane
from mtp_bench.report.review import Section, fitted, length
from mtp_bench.report.terminal import comparison_report
from mtp_bench.results import Memory
from tests import runs
from tests.report.reading import compared, shown_text, tables, text_of, words

ROLL = runs.site(32, line=300, file="megatron/roll.py", function="_roll", code="x[a:b]")
GUARD = runs.site(1)
PARTS = [
    "different environments",
    "cautions",
    "packed-sft, scope loss, lead 1 ms, baseline a",
    "ratios of step times to the baseline, with 98 % intervals",
    "distribution of the windows",
    "windows in the order measured",
    "syncs a step by call site",
    "values",
    "how to reproduce",
]


def times(us, windows=20, **changes):
    clocks = [1_755 if window % 7 == 0 else 1_980 for window in range(windows)]
    steps = [us + (7 * window) % 5 for window in range(windows)]
    return runs.time(*steps, modelled=False, **{"sm_clock_mhz": clocks, **changes})


def measured(shift=0.0, sites=(ROLL,), **environment):
    """Two variants on a GPU, ``mine`` later by ``shift`` us and with ``sites``."""
    wrong = runs.numerics("differs", grad_scale=0.25, detail="the MTP gradient is 0.25 times what it should be")
    return runs.run(
        [
            runs.result("original", time=times(1_000.0), syncs=runs.syncs(ROLL), numerics=wrong, ops=5_120),
            runs.result("mine", time=times(1_000.0 + shift), syncs=runs.syncs(*sites), ops=5_000),
        ],
        environment=runs.environment(device=runs.GPU, **environment),
    )


def shown(comparison, width=80, **how):
    return text_of(comparison_report(comparison), width, **how)


def two_sides():
    return compared(measured(), measured(100.0, [ROLL, GUARD], torch="2.14.1"), fail_on=["slower"])


def test_the_parts_come_in_one_order():
    lines = shown(two_sides(), terminal=False).splitlines()
    assert lines[0].startswith("Gate slower: failed. ")
    assert lines[1].startswith("failed: slower: mine (b) on packed-sft at lead 1 ms: slower than mine (a) by 100.0 us")
    group = PARTS[2]  # names the group in every picture too
    assert [line for line in lines if line in PARTS] == [
        *(*PARTS[:4], group),
        *(PARTS[4], group),
        *(PARTS[5], group),
        *PARTS[6:],
    ]


def test_markdown_has_the_same_parts_in_the_same_order():
    found = markdown.comparison_report(two_sides())
    verdict, *parts = re.findall(r"^(?:\*\*.*|[A-Z].*:|\| candidate .*|<details><summary>.*)$", found, re.M)
    assert verdict.startswith("**Gate slower: failed. ")
    assert [part.removeprefix("<details><summary>").removesuffix("</summary>") for part in parts] == [
        "Failed gates:",
        "Different environments:",
        "Cautions: different versions",
        next(part for part in parts if part.startswith("| candidate | verdict |")),
        "Reasons (2)",
        "Ratios of step times to the baseline, with 98 % intervals",
        "Distribution of the windows",
        "Windows in the order measured",
        "Syncs a step by call site (2 lines, 1 changed)",
        "Values",
        "What is wrong with values (1)",
        "How to reproduce",
    ]


def test_a_part_with_nothing_to_show_is_left_out():
    lacking = {"numerics": None, "syncs": None, "time": None}
    comparison = compared(runs.run([runs.result("original", **lacking), runs.result("mine", **lacking)]))
    headings = [line for line in shown(comparison).splitlines() if line in PARTS]
    assert headings == ["how to reproduce"]
    folds = re.findall(r"<summary>(.*)</summary>", markdown.comparison_report(comparison))
    assert folds == ["Reasons (1)", "How to reproduce"]


def test_a_row_has_verdict_difference_interval_percent_syncs_values_and_what_they_rest_on():
    run = measured(-100.0, [])
    narrow = [line.split() for line in shown(compared(run)).splitlines() if line.startswith("mine  ")]
    assert narrow[0] == ["mine", "faster", "-100.0", "-10.0", "32", ">", "0", "differs", ">", "close"]
    assert narrow[1] == ["mine", "1,002.0", ">", "902.0", "20", "<0.001", "<0.001", "5,120", ">", "5,000"]
    assert "[-100.0, -100.0]" in shown(compared(run))
    wide = next(line for line in shown(compared(run), 160).splitlines() if line.startswith("mine  "))
    assert wide.split() == [
        *("mine", "faster", "-100.0", "[-100.0,", "-100.0]", "-10.0", "32", ">", "0", "differs", ">", "close"),
        *narrow[1][1:],
    ]
    assert (
        "`mine` | faster | -100.0 | [-100.0, -100.0] | -10.0 | 32 > 0 | differs > close | 1,002.0 > 902.0 | 20 | "
        in (markdown.comparison_report(compared(run)))
    )


def test_peak_memory_and_runs_are_columns_where_they_are_known():
    memory = [Memory(peak_bytes=size * 2**20) for size in (1024, 1536)]
    run = runs.run(
        [
            runs.result(name, time=times(1_000.0), memory=peak)
            for name, peak in zip(("original", "mine"), memory, strict=True)
        ],
        environment=runs.environment(device=runs.GPU),
    )
    found = words(shown(compare([("a", [("one", run), ("two", run)])]), 160))
    assert "1,024.0 MiB > 1,536.0 MiB" in found
    assert " 40 of 2 runs " in found
    assert "memory" not in shown(compared(measured()), 160)


def test_every_modelled_figure_is_labelled():
    run = runs.run([runs.result("original"), runs.result("mine", time=runs.time(9_000.0))])
    found = words(shown(compared(run)))
    assert "mine on packed-sft at lead 1 ms is faster than original by 1,000.0 us a step (-10.0 %), modelled." in found
    assert "us, modelled" in found
    assert "the modelled difference passes" in found
    assert "ratios of step times to the baseline, modelled" in found
    assert re.search(r"mine ○ .* 0\.900 modelled", found)
    assert "98 % interval" not in found
    pasted = markdown.comparison_report(compared(run))
    assert "| difference us, modelled |" in pasted
    assert "<summary>Ratios of step times to the baseline, modelled</summary>" in pasted


def test_modelled_beside_measured_is_labelled_row_by_row():
    both = runs.run(
        [runs.result("original", workload, time=time) for workload, time in (("a", runs.time(9.0)), ("b", times(9.0)))]
        + [runs.result("mine", workload, time=time) for workload, time in (("a", runs.time(8.0)), ("b", times(8.0)))],
        environment=runs.environment(device=runs.GPU),
    )
    rows = [row for table in tables(markdown.comparison_report(compared(both))) for row in table if "| a |" in row]
    assert re.search(r"\| -1\.0 modelled \| .* \| 9\.0 > 8\.0 modelled \|", rows[0])


def test_sites_show_the_line_of_code_and_what_came():
    assert (
        "mtp_bench/variants/patched.py:40 in patched\n"
        "  if num_tokens > 0:\n"
        "  item, aten::_local_scalar_dense\n"
        "    packed-sft: 0 > 1, came: mine (b)\n"
        "megatron/roll.py:300 in _roll\n"
        "  x[a:b]\n"
        "  item, aten::_local_scalar_dense\n"
        "    packed-sft: 32, unchanged: original (b), mine (b)\n"
    ) in shown(two_sides())
    assert (
        "- `mtp_bench/variants/patched.py:40` in `patched`\n"
        "  `if num_tokens > 0:`\n"
        "  - item, `aten::_local_scalar_dense`: packed-sft: 0 > 1, came: mine (b)\n"
    ) in markdown.comparison_report(two_sides())


def test_a_line_that_moved_says_from_where():
    moved = compared(measured(), measured(0.0, [ROLL.model_copy(update={"line": 310})]))
    assert "packed-sft: 32, moved from line 300: mine (b)" in shown(moved)
    assert "packed-sft: 32, moved from line 300: mine (b)" in markdown.comparison_report(moved)


def test_values_have_scale_error_and_losses_and_what_is_wrong_is_said():
    found = shown(compared(measured()))
    assert "packed-sft, scope loss, hidden_size 64, vocab_size 512" in found
    rows = [line.split() for line in found.split("\nvariant ")[1].splitlines() if line.startswith(("original", "mine"))]
    assert rows == [
        ["original", "differs", "0.25", "0.001", "6.2", "6.2"],
        ["mine", "close", "1", "0.001", "6.2", "6.2"],
    ]
    assert "original: the MTP gradient is 0.25 times what it should be" in found


def test_values_that_are_not_finite_are_shown():
    nan = runs.numerics("nan", max_rel_err_grad=math.inf, grad_scale=None, logged_loss=[math.nan, 6.25])
    run = runs.run([runs.result("original"), runs.result("mine", numerics=nan)])
    assert re.search(r"\nmine +nan +- +inf +nan, 6\.25 +6\.2\n", shown(compared(run)))


def test_step_times_that_are_not_finite_are_shown_and_have_no_difference():
    run = runs.run([runs.result("original"), runs.result("mine", time=runs.time(math.nan))])
    for found in (shown(compared(run), 160), shown_text(markdown.comparison_report(compared(run)))):
        assert "mine: incomparable: mine has step times that are not finite" in found
        assert "10,000.0 > nan" in found


def test_how_to_reproduce_has_command_environment_threshold_and_versions():
    found = words(shown(compared(measured())))
    assert (
        "how to reproduce a: mtp-bench run --device sim 2026-12-01T00:00:00+00:00, mtp-bench 0.1.0, NVIDIA H100 80GB "
        "HBM3 (measured), Python 3.11.7, torch 2.13.0, megatron-core 0.16.1, CUDA 12.9, driver 575.1, Example CPU, "
        "8 of 8 CPUs, seed 0 Compared by mtp-bench 0.1.0; threshold 10 us or 0.5 % of the baseline's step, whichever "
        "is larger; 98 % intervals from 1,999 resamples seeded by the samples."
    ) in found


def test_the_command_that_compared_can_be_repeated_and_cannot_act():
    comparison = compared(measured(), command="mtp-bench compare 'a b' --threshold 0")
    assert "compared: mtp-bench compare 'a b' --threshold 0 Compared by mtp-bench" in words(shown(comparison))
    assert "\n```\nmtp-bench compare 'a b' --threshold 0\n```\n" in markdown.comparison_report(comparison)
    hostile = compared(measured(), command="mtp-bench compare ```\x1b[31m")
    assert "compared: mtp-bench compare ```\\x1b[31m" in words(shown(hostile))
    assert "\n````\nmtp-bench compare ```\\x1b[31m\n````\n" in markdown.comparison_report(hostile)


def test_a_comparison_of_one_variant_says_there_is_nothing_to_compare():
    alone = compared(runs.run([runs.result("original")]))
    assert shown(alone).startswith("Nothing to compare: original alone was run.\n")
    assert "**Nothing to compare: original alone was run.**" in markdown.comparison_report(alone)


def test_what_one_side_lacks_is_one_line_and_no_table():
    both = runs.run([runs.result("original", "padded-sft"), runs.result("original")])
    found = shown(compared(both, runs.run([runs.result("original")])))
    assert "padded-sft, scope loss, baseline a\n  b: incomparable: b has no padded-sft in scope loss\n" in found


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [20, 40, 80, 112, 160])
def test_a_comparison_fits_the_terminal_and_cuts_nothing(width, terminal):
    long_name = "my_package.losses.mtp:process_mtp_loss"
    run = measured(-43.2, [ROLL])
    run.results[1] = run.results[1].model_copy(update={"variant": long_name})
    found = shown(
        compare([("20261201-000000", [("r", run)]), ("another-folder", [("r", run)])]), width, terminal=terminal
    )
    lines = found.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert "…" not in found
    without_blanks = re.sub(r"\s", "", found)
    for text in (f"{long_name}(another-folder)", "1,002.0", "[-2.0,+2.0]", "1,755to1,980MHz", "differs"):
        assert text in without_blanks
    if terminal:
        assert max(map(cell_len, lines)) <= width


def test_a_pipe_and_a_terminal_without_colour_get_no_escapes(monkeypatch):
    assert "\x1b" not in shown(two_sides(), terminal=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(two_sides())


def test_a_forest_plot_in_characters():
    entries = [
        ForestEntry("group", "slow", "slower", False, 1.02, 1.015, 1.025, 0.005),
        ForestEntry("group", "my_package.losses.mtp:fast", "faster", True, 0.98, None, None, 0.005),
        ForestEntry("group", "broken", "incomparable", False, None, None, None, 0.0),
    ]
    assert list(plots.forest(entries, 64, plots.UNICODE)) == [
        ("group", "bold"),
        ("slow                          ··│··  ├─●─┤  1.020 [1.015, 1.025]", "slower"),
        ("my_package.losses.mtp:fast", ""),
        ("                         ○    ··│··         0.980 modelled", "faster"),
        ("broken                          │           incomparable", "incomparable"),
        ("                         0.980  1    1.025", ""),
        ("● measured, ├─┤ its 98 % interval, ○ modelled, │ the baseline, ·", "dim"),
        ("within the threshold", "dim"),
    ]


def test_there_is_no_forest_plot_without_a_ratio():
    entry = ForestEntry("group", "broken", "incomparable", False, None, None, None, 0.0)
    assert list(plots.forest([entry], 64, plots.UNICODE)) == []


def test_samples_in_characters_with_the_clock_and_what_was_throttled():
    steps, clocks = (1e3, 2e3, 3e3, 9e3), (1_980, None, 1_755, 1_980)
    lane = SampleLane("group", "mine", False, steps, (False, False, True, False), clocks, 1e3)
    assert list(plots.run_order([lane], 60, plots.ASCII)) == [
        ("group", "bold"),
        ("mine        0129                          1.0 to 9.0 us", ""),
        ("  SM clock  9 09                          1,755 to 1,980 MHz", ""),
        ("  throttled ..!.                          1 of 4 windows", "red"),
        ("each mark is a window, in the order measured: 0 the lowest", "dim"),
        ("and 9 the highest of its row, ! throttled", "dim"),
    ]


def test_more_windows_than_columns_are_medians():
    steps = tuple(1e6 + 1e3 * window for window in range(300))
    lane = SampleLane("group", "mine", False, steps, (False,) * 300, (None,) * 300, 1e6)
    assert list(plots.run_order([lane], 60, plots.ASCII)) == [
        ("group", "bold"),
        ("mine 001112222333444555666777788899    1,000.0 to 1,299.0 us", ""),
        ("each mark is the median of 10 windows, in the order", "dim"),
        ("measured: 0 the lowest and 9 the highest of its row", "dim"),
    ]


def test_an_ascii_terminal_gets_ascii_pictures():
    found = shown(two_sides(), encoding="ascii")
    assert found.isascii()
    assert "* measured, [-] its 98 % interval, | the baseline, . within the threshold" in found
    assert "0 the lowest and 9 the highest of its row" in words(found)


def many(rows=60, worse=0):
    """A run with ``rows`` candidates of which the last ``worse`` are slower."""
    names = [f"variant_{index:02}" for index in range(rows)]
    results = [
        runs.result(name, time=runs.time(1_000.0 + (100 if index >= rows - worse else 0)), syncs=runs.syncs(ROLL))
        for index, name in enumerate(names)
    ]
    return runs.run([runs.result("original", time=runs.time(1_000.0), syncs=runs.syncs(ROLL)), *results])


def test_in_markdown_what_got_worse_comes_first_and_many_others_are_folded():
    few = markdown.comparison_report(compared(many(3, 1)))
    assert "1 row of 3 got worse (slower, more syncs or worse values)." in few
    assert [row.split("|")[1] for row in tables(few)[0][2:]] == [" `variant_02` ", " `variant_00` ", " `variant_01` "]
    found = markdown.comparison_report(compared(many(60, 2)))
    worse, others = tables(found)[:2]
    assert [row.split("|")[1] for row in worse[2:]] == [" `variant_58` ", " `variant_59` "]
    assert len(others) == 2 + 58
    assert found.index(worse[-1]) < found.index("<details><summary>58 other rows: 58 same</summary>")
    assert "No row is known to be worse" in markdown.comparison_report(compared(many(60)))


@pytest.mark.parametrize("limit", [4_000, 6_000, 10_000, 20_000, 40_000])
def test_markdown_is_cut_to_any_limit_between_rows_and_lines_and_says_what_is_left_out(limit):
    whole = markdown.comparison_report(compared(many(60, 30)), 10**6)
    assert "left out" not in whole
    found = markdown.comparison_report(compared(many(60, 30)), limit)
    assert length(found) <= limit
    assert found.count("<details>") == found.count("</details>") == whole.count("<details>")
    assert set(found.splitlines()) - set(whole.splitlines()) == set(
        re.findall(r"[\d,]+ of [\d,]+ \w+ left out .*", found)
    )
    for table in tables(found):
        assert re.fullmatch(r"\|(-+:?\|)+", table[1])
        assert len({row.count("|") for row in table}) == 1
    assert found.count("```") % 2 == 0


def test_what_is_acted_on_first_is_cut_last():
    found = markdown.comparison_report(compared(many(60, 30)), 5_500)
    assert len(tables(found)[0]) == 2 + 30
    assert re.search(r"\n\d+ of 30 rows left out here to fit a review; .*\n\n</details>\n", found)
    assert "63 of 63 lines left out here to fit a review; `mtp-bench compare --format html` has everything." in found


def test_space_goes_to_the_section_of_the_lowest_rank_and_the_rest_is_counted():
    sections = [
        Section(["a", ""], items=[["1" * 60], ["2" * 60]], noun="row", rank=1),
        Section(head=["```"], items=[["3" * 60], ["4" * 60]], tail=["```"], summary="b", rank=0),
    ]
    folded = ["```", "3" * 60, "4" * 60, "```", "", "</details>", ""]
    assert fitted(sections, "ask").splitlines() == [
        *("a", "", "1" * 60, "2" * 60, ""),
        *("<details><summary>b</summary>", "", *folded[:-1]),
    ]
    cut = fitted(sections, "ask", 308)
    assert cut.splitlines() == [
        *("a", "", "1" * 60, "", "1 of 2 rows left out here to fit a review; ask.", ""),
        *("<details><summary>b</summary>", "", *folded[:-1]),
    ]
    assert length(cut) <= 308
    assert "```\n\n1 of 2 lines left out here to fit a review; ask.\n\n</details>\n" in fitted(sections, "ask", 230)
