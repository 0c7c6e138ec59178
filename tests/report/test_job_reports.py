"""Reports of training jobs: the slowest rank first, few of many ranks, and what has a meaning in a job alone."""

import re
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from mtp_bench import cli
from mtp_bench.compare import compare
from mtp_bench.report import html, junit, markdown
from mtp_bench.report.comparison_view import ComparisonView
from mtp_bench.report.terminal import comparison_report, run_report
from mtp_bench.results import FILE_NAME
from tests import runs
from tests.report.examples import made
from tests.report.reading import live_text, shown_text, tables, text_of, words
from tests.report.test_html import Page
from tests.runs import job_result, job_run, job_runs

STEADY = [1_000.0 + (7 * window) % 5 for window in range(20)]


def invoke(*arguments):
    return CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "100"})


def job(found, **options):
    return compare([("out", found)], **options)


def shown(comparison, width=80):
    return text_of(comparison_report(comparison), width)


def many(ranks=1_024):
    """A job in which rank r gains r / 10 us, and rank 500 loses 300 us."""
    return [
        (
            f"rank-{rank}",
            job_run(
                [
                    job_result("original", *STEADY[:6]),
                    job_result("mine", *(us + (300 if rank == 500 else -rank / 10) for us in STEADY[:6])),
                ],
                rank,
                ranks,
            ),
        )
        for rank in range(ranks)
    ]


@pytest.fixture(scope="module")
def thousand():
    return job(many())


class TestTables:
    def test_a_row_has_what_a_job_has_and_nothing_else(self):
        found = shown(job(job_runs(2)), 140)
        header = next(line for line in found.splitlines() if line.startswith("candidate"))
        assert re.split(r" {2,}", header) == [
            *("candidate", "rank", "verdict", "us", "of difference", "%", "backward", "gradients"),
            *("us", "us", "us", "windows"),
        ]
        assert re.split(r" {2,}", next(line for line in found.splitlines() if "slowest  faster" in line)) == [
            *("boundary_roll", "slowest", "faster", "-200.0", "[-200.0, -200.0]", "-2.0", "33 > 0", "equal"),
            *("10,070.0 > 9,870.0", "900", "700", "20"),
        ]
        for nothing in ("operations", "peak", "graph", "p, Holm", "lead 0 ms"):
            assert nothing not in found

    def test_the_header_says_what_syncs_are_counted_of(self):
        head = tables(markdown.comparison_report(job(job_runs(2))))[0][0]
        assert (
            "| syncs a loss call, forward and backward | gradients | step, us | lead at entry, us | loss, us |" in head
        )

    def test_80_columns_hold_the_table_with_ranks_beside_the_names(self):
        found = shown(job(job_runs(4)))
        rows = [line for line in found.splitlines() if line.startswith("boundary_roll, ")]
        assert rows[0].split() == ["boundary_roll,", "slowest", "faster", "-200.0", "-2.0", "33", ">", "0", "equal"]
        assert rows[2].split()[:4] == ["boundary_roll,", "rank", "1", "faster"]
        assert max(map(len, found.splitlines())) <= 80

    def test_a_job_of_one_rank_names_no_rank(self):
        found = shown(job(job_runs(1)), 160)
        assert "slowest" not in found
        assert "rank  verdict" not in found
        assert "job, scope job, baseline patched" in found

    def test_modelled_jobs_say_so(self):
        two = [job_result("original", 10.0, 20.0, modelled=True), job_result("mine", 5.0, 9.0, modelled=True)]
        found = words(shown(job([("rank-0", job_run(two))]), 160))
        assert "mine on job in scope job is faster than original by 8.0 us a step (-53.3 %), modelled." not in found
        assert "takes as long as original, to within 10.0 us a step, modelled." in found
        assert "us, modelled us, modelled us, modelled" in found
        assert "98 % interval" not in found

    def test_gradients_that_are_not_equal_are_explained(self):
        close = job_result(
            "mine", *STEADY, gradients=runs.gradients("close", max_rel_err=0.0125, head_gradient="detached")
        )
        found = words(shown(job([("rank-0", job_run([job_result("original", *STEADY), close]))])))
        assert (
            "mine: gradients close against process_mtp_loss of megatron-core 0.17.1: relative error 0.013, "
            "rounding explains 0.02"
        ) in found
        assert "mine: the MTP loss does not train the output layer" in found
        assert "equal > close" in found

    def test_what_single_ranks_warn_of_is_said_once_with_the_ranks(self):
        warned = job_result("mine", *STEADY, warnings=["one loss call an iteration was timed"])
        ranks = [(f"rank-{rank}", job_run([job_result("original", *STEADY), warned], rank, 4)) for rank in range(4)]
        notes = ComparisonView.of(job(ranks)).groups[0].notes
        assert [note for note in notes if "was timed" in note] == [
            "mine, ranks 0 to 3: one loss call an iteration was timed"
        ]

    def test_a_job_and_another_run_have_tables_of_their_own(self):
        found = compare([("all", [*job_runs(2), ("bench", runs.measured_run())])])
        headings = [table.heading for group in ComparisonView.of(found).groups for table in group.tables]
        assert headings == [
            "job, scope job, baseline patched",
            "packed-sft, scope loss, lead 1 ms, baseline patched",
        ]
        pasted = markdown.comparison_report(found)
        assert "syncs a step or call of the loss" in pasted


class TestManyRanks:
    def test_the_slowest_and_8_ranks_are_shown_and_the_rest_is_told(self, thousand):
        (group,) = ComparisonView.of(thousand).groups
        (table,) = group.tables
        assert [row.rank for row in table.rows] == ["slowest", 0, 1, 2, 3, 500, 1021, 1022, 1023]
        assert len(table.folded) == 1_016
        assert "mine: 1,016 more ranks, from -102.0 to -0.4 us a step" in group.notes

    def test_the_median_difference_is_what_ranks_are_held_against(self):
        """Rank 4 gains nothing, rank r of the other nine 100 us and r: the median is between 103 and 105."""
        ranks = []
        for rank in range(10):
            gain = 0 if rank == 4 else 100 + rank
            results = [job_result("original", *STEADY), job_result("mine", *(us - gain for us in STEADY))]
            ranks.append((f"rank-{rank}", job_run(results, rank, 10)))
        (table,) = ComparisonView.of(job(ranks)).groups[0].tables
        assert [row.rank for row in table.rows] == ["slowest", 0, 1, 2, 4, 6, 7, 8, 9]
        assert [row.rank for row in table.folded] == [3, 5]

    def test_terminal_and_markdown_stay_short(self, thousand):
        assert len(shown(thousand).splitlines()) < 100
        pasted = markdown.comparison_report(thousand)
        assert len(pasted) < 10_000
        assert "<summary>Single ranks (8 rows)</summary>" in pasted
        assert tables(pasted)[0][2].startswith("| `mine` | slowest | ")
        assert len(tables(pasted)[0]) == 3

    def test_ranks_that_disagree_are_named_in_the_first_sentences(self, thousand):
        verdict = words(shown(thousand))
        assert verdict.startswith("mine on the slowest of 1,024 ranks of job is slower than original by 300.0 us")
        assert "mine: ranks 101 to 499 and 501 to 1023 are faster, ranks 0 to 100 are as fast." in verdict

    def test_the_page_folds_the_rest(self, thousand):
        page = html.comparison_report(thousand)
        Page(page)
        assert "<summary>1,016 other ranks</summary>" in page
        folded = page[page.index("1,016 other ranks") :]
        assert folded[: folded.index("</details>")].count("<tr>") == 1_017
        assert len(page) < 2_000_000

    def test_pictures_show_the_rows_of_the_table_and_windows_of_the_slowest(self, thousand):
        view = ComparisonView.of(thousand)
        assert [entry.label for entry in view.forest] == [
            "mine, slowest",
            *(f"mine, rank {rank}" for rank in (0, 1, 2, 3, 500, 1021, 1022, 1023)),
        ]
        assert [lane.label for lane in view.lanes] == ["original, slowest", "mine, slowest"]

    def test_how_to_reproduce_has_one_entry_a_job(self, thousand):
        (run,) = ComparisonView.of(thousand).runs
        assert (run.label, run.command, run.ranks) == ("out", "torchrun train.py", "ranks 0 to 1023 of 1,024")

    def test_junit_has_a_test_case_for_the_slowest_alone(self, thousand):
        root = ElementTree.fromstring(junit.comparison_report(thousand))
        assert [case.get("name") for case in root.iter("testcase")] == ["mine against original, slowest of 1,024 ranks"]
        assert "mine: 1,016 more ranks, from -102.0 to -0.4 us a step" in root.find("testsuite/system-out").text


class TestMarkdown:
    def test_what_got_worse_is_counted_without_single_ranks(self):
        slow = [job_result("original", *STEADY), job_result("mine", *(us + 300 for us in STEADY))]
        ranks = [(f"rank-{rank}", job_run(slow, rank, 4)) for rank in range(4)]
        assert "1 row of 1 got worse" in markdown.comparison_report(job(ranks))

    def test_everything_is_there(self):
        found = shown_text(markdown.comparison_report(job(job_runs(4, ended="", iterations=40))))
        for text in (
            "not ended: the job runs still, or was killed",
            "out: ranks 0 to 3, after 40 of 400 iterations",
            "step: device time of an iteration",
            "ranks 0 to 3 of 4",
        ):
            assert text in found
        folded = re.findall("<summary>(.*)</summary>", markdown.comparison_report(job(job_runs(4))))
        assert "Syncs a call of the loss by call site (1 line, 1 changed)" in folded


class TestPage:
    def test_the_table_has_lead_loss_and_gradients_and_no_cuda_graph(self):
        page = Page(html.comparison_report(job(job_runs(2))))
        heads = [text.strip() for name, _, found in page.elements if name == "th" for text in [" ".join(found)]]
        assert "gradients" in heads
        assert any(head.startswith("lead at") for head in heads)
        assert not any("graph" in head for head in heads)
        assert not any(head.startswith("ratio") for head in heads)

    def test_a_job_of_one_rank_has_no_column_of_ranks(self):
        assert ">rank</th>" in html.comparison_report(job(job_runs(2)))
        assert ">rank</th>" not in html.comparison_report(job(job_runs(1)))


class TestReportOfOneRank:
    RUN = job_runs(4)[1][1]

    def test_the_terminal_shows_every_variant_with_what_it_costs(self):
        found = text_of(run_report(self.RUN, 140), 140)
        assert found.startswith(
            "boundary_roll on rank 1 of job is faster than patched by 200.0 us [200.0, 200.0] a step"
        )
        rows = [re.split(r" {2,}", line) for line in found.splitlines() if re.match("(patched|boundary_roll)  ", line)]
        assert rows == [
            ["patched", "equal", "33", "10,070.0", "baseline", "-", "-", "900", "700", "20"],
            ["boundary_roll", "equal", "0", "9,870.0", "-200.0", "[-200.0, -200.0]", "-2.0", "900", "700", "20"],
        ]
        assert "syncs a call of the loss by call site" in found
        assert "CUDA" not in found
        assert max(map(len, text_of(run_report(self.RUN, 80), 80).splitlines())) <= 80

    def test_a_variant_alone_is_shown_too(self):
        run = job_run([job_result("patched", *STEADY)])
        found = text_of(run_report(run, 140), 140)
        assert found.startswith("Nothing to compare: patched alone was run.")
        assert re.search(r"^patched +equal +0 +1,002\.0 +900 +700 +20$", found, re.M)
        assert "| `patched` | equal | 0 | 1,002.0 | 900 | 700 | 20 |" in markdown.run_report(run)
        assert "1,002.0" in html.run_report(run)

    def test_what_was_refused_is_there(self):
        refused = "refused: another patch sits on process_mtp_loss"
        failed = [job_result(name, status="failed", error=refused) for name in ("original", "mine")]
        run = job_run(failed, ended=refused)
        for found in (text_of(run_report(run, 80), 80), markdown.run_report(run), html.run_report(run)):
            assert "another patch sits on" in re.sub(r"\s+|`", " ", found)
            assert "failed" in found

    def test_markdown_and_page_have_the_same_table(self):
        pasted = markdown.run_report(self.RUN)
        assert "| `boundary_roll` | equal | 0 | 9,870.0 | -200.0 | [-200.0, -200.0] | -2.0 | 900 | 700 | 20 |" in pasted
        assert "rank 1 of 4 of job 7f3a" in pasted
        page = html.run_report(self.RUN)
        Page(page)
        assert "Every variant of this rank" in page
        assert page.count("is faster than patched by 200.0 us") == 1

    def test_the_folder_of_a_job_is_for_compare(self, tmp_path):
        for label, run in job_runs(2):
            run.write(tmp_path / "out" / label)
        found = invoke("report", str(tmp_path / "out"))
        assert found.exit_code == 2
        assert f"use mtp-bench compare {tmp_path / 'out'}, or give one rank" in found.stderr
        assert invoke("report", str(tmp_path / "out" / "rank-1")).exit_code == 0
        assert (tmp_path / "out" / "rank-1" / "report.html").exists()


def test_what_a_job_says_of_itself_is_shown_and_never_obeyed():
    text = "refused: <script>alert(1)</script> @octocat \x1b[31m | `x`"
    failed = [job_result(name, status="failed", error=text, warnings=[text]) for name in ("original", text)]
    ranks = [(f"rank-{rank}", job_run(failed, rank, 2, ended=text, id=text)) for rank in range(2)]
    for page in (html.comparison_report(job(ranks)), html.run_report(ranks[0][1])):
        Page(page)
        assert "<script" not in page
        assert "&lt;script&gt;" in page
    for pasted in (markdown.comparison_report(job(ranks)), markdown.run_report(ranks[0][1])):
        assert "@octocat" not in live_text(pasted)
    for found in (shown(job(ranks)), text_of(run_report(ranks[0][1], 80), 80)):
        assert "\x1b[31m" not in found


def test_compare_takes_the_folder_of_a_job_and_of_two(tmp_path):
    for name, changes in (("before", {}), ("after", {"label_us": -500.0, "id": "8c01"})):
        for label, run in job_runs(2, **changes):
            run.write(tmp_path / name / label)
    alone = invoke("compare", str(tmp_path / "before"))
    assert alone.exit_code == 0
    assert "boundary_roll on the slowest of 2 ranks of job is faster than patched" in words(alone.stdout)
    both = invoke("compare", str(tmp_path / "before"), str(tmp_path / "after"))
    assert "faster: boundary_roll (after) on the slowest of 2 ranks of job by 300.0 us" in words(both.stdout)


def test_an_example_may_be_the_folder_of_a_jobs_ranks(tmp_path):
    folder = tmp_path / "reports" / "examples" / "job-sim"
    for label, run in job_runs(2):
        run.write(folder / label)
    assert (folder / "rank-1" / FILE_NAME).exists()
    found = dict(made(folder.parent))
    assert list(found) == [folder / "compare.md", folder / "compare.html"]
    assert "mtp-bench compare reports/examples/job-sim\n" in found[folder / "compare.md"]
    assert "`boundary_roll` on the slowest of 2 ranks of job is faster" in found[folder / "compare.md"]
