"""Training jobs: ranks of one job are one replicate, and the slowest rank of each window speaks for them."""

import dataclasses

import numpy as np
import pytest

from mtp_bench.compare import Threshold, compare
from mtp_bench.compare.jobs import ranks_in_words, slowest
from mtp_bench.compare.summary import summary
from mtp_bench.report.document import comparison_document
from mtp_bench.results import Result
from tests import runs
from tests.runs import job_result, job_run, job_runs

STEADY = [1_000.0 + (7 * window) % 5 for window in range(20)]


def job(*ranks, world_size=None, label="out", **options):
    """One side: a run a rank, each given by its results."""
    world_size = len(ranks) if world_size is None else world_size
    found = [(f"rank-{rank}", job_run(results, rank, world_size)) for rank, results in enumerate(ranks)]
    return compare([(label, found)], **options)


def pair(base_us, cand_us, **changes):
    """Two variants of a rank; ``mine`` is the candidate."""
    return [job_result("original", *base_us, **changes), job_result("mine", *cand_us, **changes)]


def shifted(us, steps=STEADY):
    return [step + us for step in steps]


def told(found):
    return [(row.variant, row.rank, row.verdict) for row in found.rows]


def cautions(found):
    return [(caution.kind.value, caution.detail) for caution in found.cautions]


class TestTheSlowestRank:
    def test_each_window_is_that_of_the_rank_that_took_longest(self):
        ranks = [
            job_result("mine", 5.0, 9.0, 2.0, lead_us=10.0),
            job_result("mine", 6.0, 1.0, 3.0, lead_us=20.0),
        ]
        found = slowest(ranks).time
        assert found.step_ns == [6_000.0, 9_000.0, 3_000.0]
        assert found.host_ns == [3_000.0, 4_500.0, 1_500.0]
        assert found.lead_ns == [20_000.0, 10_000.0, 20_000.0]
        assert found.loss_ns == [700_000.0] * 3

    def test_windows_are_those_of_one_round_in_the_order_of_rounds(self):
        first = job_result("mine", 5.0, 9.0).time.model_copy(update={"round": [4, 0]})
        second = job_result("mine", 7.0, 1.0).time.model_copy(update={"round": [0, 2]})
        found = slowest([job_result("mine", 1.0).model_copy(update={"time": time}) for time in (first, second)]).time
        assert (found.round, found.step_ns) == ([0, 2, 4], [9_000.0, 1_000.0, 5_000.0])

    def test_a_rank_without_the_loss_leaves_lead_and_loss_to_the_slowest_that_has_one(self):
        ranks = [
            job_result("mine", 50.0, lead_us=None),
            job_result("mine", 10.0, lead_us=10.0),
            job_result("mine", 20.0, lead_us=20.0),
        ]
        found = slowest(ranks)
        assert (found.time.step_ns, found.time.lead_ns, found.time.loss_ns) == ([50_000.0], [20_000.0], [700_000.0])
        assert (found.gradients.status, found.syncs.count) == ("equal", 0)

    def test_no_rank_with_the_loss_gives_no_lead_no_syncs_and_no_gradients(self):
        found = slowest([job_result("mine", 50.0, lead_us=None)] * 2)
        assert (found.time.lead_ns, found.time.loss_ns, found.syncs, found.gradients) == ([None], [None], None, None)

    def test_one_throttled_gpu_makes_the_window_throttled_since_all_wait_for_it(self):
        hot = job_result("mine", 1.0, 1.0).time.model_copy(update={"throttled": [False, True]})
        found = slowest([job_result("mine", 2.0, 2.0), job_result("mine", 1.0).model_copy(update={"time": hot})])
        assert found.time.throttled == [False, True]

    def test_it_has_the_most_syncs_and_the_worst_gradients(self):
        ranks = [
            job_result("mine", 1.0, syncs=runs.syncs(runs.site(33)), gradients=runs.gradients("close")),
            job_result("mine", 1.0, syncs=runs.syncs(runs.site(34)), gradients=runs.gradients("differs")),
            job_result("mine", 1.0, syncs=runs.syncs(runs.site(2)), gradients=runs.gradients("equal")),
        ]
        found = slowest(ranks)
        assert (found.syncs.count, found.gradients.status) == (34, "differs")

    def test_a_step_that_is_no_number_is_not_hidden_by_another_rank(self):
        found = slowest([job_result("mine", 5.0), job_result("mine", float("nan"))])
        assert np.isnan(found.time.step_ns[0])

    def test_it_failed_where_no_rank_has_times(self):
        failed = job_result("mine", status="failed", error="ValueError: no")
        assert slowest([failed, failed]).status == "failed"
        assert slowest([failed, job_result("mine", 5.0)]).time.step_ns == [5_000.0]


class TestRows:
    def test_the_slowest_is_the_first_row_of_its_variant_and_the_only_one_that_decides(self):
        three = [*pair(STEADY, shifted(-100)), job_result("other", *STEADY)]
        found = job(three, three)
        assert [(row.variant, row.rank, row.ranks, row.decides) for row in found.rows] == [
            ("mine", "slowest", 2, True),
            ("mine", 0, 2, False),
            ("mine", 1, 2, False),
            ("other", "slowest", 2, True),
            ("other", 0, 2, False),
            ("other", 1, 2, False),
        ]

    def test_the_slowest_may_be_another_rank_in_the_baseline(self):
        found = job(pair(shifted(300), STEADY), pair(STEADY, shifted(300)))
        assert told(found) == [("mine", "slowest", "same"), ("mine", 0, "faster"), ("mine", 1, "slower")]
        assert found.rows[0].difference.ns == 0.0

    def test_a_job_of_one_rank_has_one_row(self):
        found = job(pair(STEADY, shifted(-100)))
        assert [(row.rank, row.ranks, row.decides, row.lead_ms) for row in found.rows] == [(0, 0, True, None)]
        assert summary(found).startswith("mine on job in scope job is faster than original by 100.0 us")

    def test_one_rank_of_several_is_called_by_its_number(self):
        found = job(pair(STEADY, shifted(-100)), world_size=4)
        assert [(row.rank, row.decides) for row in found.rows] == [(0, True)]
        assert summary(found).startswith("mine on rank 0 of job is faster than original by 100.0 us")

    def test_ranks_come_by_number_whatever_their_folders_are_called(self):
        ranks = [(f"rank-{rank}", job_run(pair(STEADY, STEADY), rank, 12)) for rank in range(12)]
        found = compare([("out", sorted(ranks))])
        assert [row.rank for row in found.rows] == ["slowest", *range(12)]

    def test_windows_are_paired_by_round_so_that_what_hits_both_variants_cancels(self):
        drift = [1_000.0 + 400 * window for window in range(20)]
        row = job(pair(drift, shifted(-100, drift)), pair(drift, shifted(-100, drift))).rows[0]
        assert row.difference.paired
        assert (row.difference.ns, row.difference.low, row.difference.high) == (-100_000.0, -100_000.0, -100_000.0)

    def test_lead_and_loss_are_medians_of_what_is_known(self):
        (row,) = job([job_result("original", *STEADY, lead_us=5.0), job_result("mine", *STEADY, lead_us=7.0)]).rows
        assert row.entry_lead_ns == (5_000.0, 7_000.0)
        assert row.loss_ns == (700_000.0, 700_000.0)
        (without,) = job(pair(STEADY, STEADY, lead_us=None)).rows
        assert (without.entry_lead_ns, without.loss_ns) == ((None, None), (None, None))

    def test_the_lead_of_another_scope_is_not_a_jobs(self):
        found = compare([("a", [("a", runs.measured_run())])])
        assert {row.entry_lead_ns for row in found.rows} == {(None, None)}

    def test_values_are_gradients_against_those_of_the_jobs_own_loss(self):
        differs = job_result("mine", *STEADY, gradients=runs.gradients("differs"))
        (row,) = job([job_result("original", *STEADY), differs]).rows
        assert (row.values, row.values_change) == (("equal", "differs"), 1)

    def test_modelled_jobs_have_medians_and_no_interval(self):
        two = pair([10.0, 30.0, 20.0], [5.0, 25.0, 25.0], modelled=True)
        row = job(two, two).rows[0]
        assert (row.modelled, row.verdict) == (True, "same")
        assert (row.difference.baseline_ns, row.difference.candidate_ns) == (20_000.0, 25_000.0)
        assert (row.difference.low, row.difference.high, row.p) == (None, None, None)

    def test_holms_p_counts_the_rows_that_decide(self):
        ranks = [pair(STEADY, shifted(-100))] * 4
        rows = job(*ranks).rows
        assert rows[0].p_holm == rows[0].p
        assert rows[1].p_holm == pytest.approx(5 * rows[1].p)

    def test_json_names_the_rank(self):
        document = comparison_document(job(pair(STEADY, STEADY), pair(STEADY, STEADY)))
        assert [(row["rank"], row["lead_ms"]) for row in document["rows"]] == [("slowest", None), (0, None), (1, None)]
        assert document["rows"][0]["entry_lead_us"] == {"baseline": 900.0, "candidate": 900.0}
        assert document["rows"][0]["loss_us"] == {"baseline": 700.0, "candidate": 700.0}
        assert document["rows"][0]["values"] == {"baseline": "equal", "candidate": "equal"}


class TestSeveralJobs:
    def test_before_and_after_are_compared_slowest_with_slowest_and_rank_with_rank(self):
        found = compare([("before", job_runs(2)), ("after", job_runs(2, label_us=-500.0, id="8c01"))])
        assert [(row.candidate, row.rank, row.verdict) for row in found.rows] == [
            ("patched (after)", "slowest", "same"),
            ("patched (after)", 0, "same"),
            ("patched (after)", 1, "same"),
            ("boundary_roll (after)", "slowest", "faster"),
            ("boundary_roll (after)", 0, "faster"),
            ("boundary_roll (after)", 1, "faster"),
        ]
        assert not found.rows[0].difference.paired

    def test_jobs_of_one_side_are_replicates_and_their_ranks_are_not(self):
        first = [(f"out/{label}", run) for label, run in job_runs(2)]
        second = [(f"out/2/{label}", run) for label, run in job_runs(2, id="8c01", label_us=-230.0)]
        row = compare([("out", [*first, *second])]).rows[0]
        assert row.rank == "slowest"
        assert row.difference.runs == (2, 2)
        assert row.difference.windows == (40, 40)
        assert row.difference.ns == pytest.approx(-215_000.0)

    def test_a_rank_that_one_side_lacks_is_incomparable_and_decides_nothing(self):
        found = compare([("before", job_runs(2)), ("after", job_runs(3, id="8c01")[:1])])
        patched = [row for row in found.rows if row.variant == "patched"]
        assert [(row.rank, row.verdict) for row in patched] == [
            ("slowest", "unclear"),  # rank 1 was the slowest before
            (0, "same"),
            (1, "incomparable"),
        ]
        assert patched[2].reason == "patched (after) was not run there"
        assert cautions(found) == [("ranks missing", "after: ranks 1 and 2 of 3 are not here")]
        assert found.exit_code == 0

    def test_jobs_of_different_sizes_are_incomparable(self):
        one, two = ({**runs.JOB, "world_size": size} for size in (1, 2))
        found = compare(
            [
                ("a", [("a", job_run(pair(STEADY, STEADY), workloads={"job": one}))]),
                ("b", [("b", job_run(pair(STEADY, STEADY), id="8c01", workloads={"job": two}))]),
            ]
        )
        assert {row.reason for row in found.rows} == {"different workload: world_size 1 and 2"}

    def test_ordinary_runs_beside_a_job_are_no_ranks_of_it(self):
        found = compare([("all", [*job_runs(2), ("bench", runs.measured_run())])])
        assert {(row.scope, row.rank) for row in found.rows} == {
            ("job", "slowest"),
            ("job", 0),
            ("job", 1),
            ("loss", None),
        }
        assert found.notes == ()


class TestWhatIsSaid:
    def test_the_verdict_is_the_slowest_ranks_and_ranks_that_disagree_are_named(self):
        found = job(pair(shifted(300), STEADY), pair(STEADY, shifted(300)), pair(STEADY, STEADY))
        assert summary(found) == (
            "mine on the slowest of 3 ranks of job takes as long as original, to within 10.0 us a step. "
            "mine: rank 1 is slower, rank 0 is faster. "
            "Syncs a call of the loss: unchanged; gradients: equal."
        )

    def test_a_sentence_counts_rows_that_decide(self):
        three = [*pair(STEADY, shifted(-100)), job_result("other", *STEADY)]
        assert summary(job(three, three)) == (
            "2 comparisons with original: 1 faster, 1 same; faster: mine on the slowest of 2 ranks of job by "
            "100.0 us [100.0, 100.0] a step (-10.0 %). Syncs a call of the loss: unchanged; gradients: equal."
        )

    @pytest.mark.parametrize(("lead_us", "said"), [(0.0, True), (50.0, True), (51.0, False), (None, False)])
    def test_where_the_host_has_no_lead_a_sentence_says_that_a_sync_costs_little(self, lead_us, said):
        found = summary(job(pair(STEADY, STEADY, lead_us=lead_us)))
        sentence = (
            "Where the loss of original begins on job, the host has no lead over the device to lose "
            f"({lead_us} us): one more sync costs little there beyond its own latency."
        )
        assert (sentence in found) == said

    def test_ranks_that_are_not_there(self):
        found = job(pair(STEADY, STEADY), pair(STEADY, STEADY), world_size=8)
        assert cautions(found) == [("ranks missing", "out: ranks 2 to 7 of 8 are not here")]
        assert "compare the folder that holds those of all ranks" in found.cautions[0].advice

    def test_a_job_that_was_killed_or_runs_still(self):
        found = compare([("out", job_runs(2, ended="", iterations=120))])
        assert cautions(found) == [("not ended", "out: ranks 0 and 1, after 120 of 400 iterations")]

    def test_a_job_that_was_stopped_early(self):
        found = compare([("out", job_runs(2, ended="stopped", iterations=120))])
        assert found.notes == ("out: ended after 120 of 400 iterations: stopped",)

    def test_windows_that_were_lost(self):
        ranks = [
            ("rank-0", job_run(pair(STEADY, STEADY), 0, 2, windows_lost=3)),
            ("rank-1", job_run(pair(STEADY, STEADY), 1, 2, windows_lost=1)),
        ]
        assert cautions(compare([("out", ranks)])) == [("windows lost", "out: up to 3 windows of ranks 0 and 1")]

    def test_windows_that_not_every_rank_has(self):
        short = pair(STEADY[:18], STEADY)
        found = job(pair(STEADY, STEADY), short)
        assert found.notes == (
            "out: 2 of 40 windows are not there on every rank: the slowest is of those that have them",
        )
        assert found.rows[0].difference.windows == (20, 20)
        assert found.rows[2].reason.endswith("2 windows of rounds that one side lacks left out")

    def test_a_refusal_is_the_first_thing_said(self):
        refused = "refused: the gradients of mine differ from those of the job's own loss"
        failed = [job_result(name, status="failed", error=refused) for name in ("original", "mine")]
        ranks = [(f"rank-{rank}", job_run(failed, rank, 2, ended=refused, iterations=2)) for rank in range(2)]
        found = compare([("out", ranks)])
        assert summary(found).startswith(f"out: {refused}. mine on the slowest of 2 ranks of job and original are inc")
        assert cautions(found) == [("refused", f"out: {refused}")]
        assert found.exit_code == 3

    def test_a_variant_that_raised_later_is_said_and_what_was_measured_counts(self):
        raised = "failed: mine raised ValueError: no"
        ranks = [("rank-0", job_run(pair(STEADY, shifted(-100)), 0, 2, ended=raised, iterations=120))]
        ranks += [
            ("rank-1", job_run(pair(STEADY, shifted(-100)), 1, 2, ended="failed: rank 0 says so", iterations=121))
        ]
        found = compare([("out", ranks)])
        assert cautions(found) == [
            ("failed", f"out: rank 0: {raised}"),
            ("failed", "out: rank 1: failed: rank 0 says so"),
        ]
        assert summary(found).startswith(f"out: {raised}. out: failed: rank 0 says so. mine on the slowest of 2 ranks")
        assert (found.notes, found.rows[0].verdict) == ((), "faster")

    def test_gpus_that_throttled_are_named_by_rank(self):
        hot = job_result("mine", *STEADY, time=runs.time(*STEADY, modelled=False, throttled=[True] * 2 + [False] * 18))
        found = job(pair(STEADY, STEADY), [job_result("original", *STEADY), hot])
        assert cautions(found) == [("throttling", "out: the GPU of rank 1")]
        assert [caution.detail for caution in found.rows[0].cautions] == ["2 of 20 windows", "18 windows"]

    def test_ranks_that_do_not_agree_on_syncs_or_gradients(self):
        other = [
            job_result("original", *STEADY),
            job_result("mine", *STEADY, syncs=runs.syncs(runs.site(1)), gradients=runs.gradients("close")),
        ]
        assert job(pair(STEADY, STEADY), other).notes == (
            "out: mine on job: its ranks have 0 and 1 syncs a call of the loss",
            "out: mine on job: its ranks have gradients equal and close",
        )

    @pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
    def test_of_a_rank_that_is_there_twice_the_run_with_more_windows_counts(self, order):
        early = job_run(pair(STEADY[:8], STEADY[:8]), 0, 2, windows=16)
        ranks = [("backup", early), *((f"rank-{rank}", job_run(pair(STEADY, STEADY), rank, 2)) for rank in range(2))]
        found = compare([("out", [ranks[index] for index in order])])
        assert [row.difference.windows for row in found.rows] == [(20, 20)] * 3
        assert found.notes == ("out: left out, since their rank is there with no fewer windows: backup",)

    def test_ranks_without_results(self):
        ranks = [("rank-0", job_run(pair(STEADY, STEADY), 0, 2)), ("rank-1", job_run([], 1, 2, workloads={}))]
        assert compare([("out", ranks)]).notes == ("out: without results: rank 1",)


class TestGates:
    def test_a_rank_beside_the_slowest_fails_no_gate(self):
        worse = [
            job_result("original", *STEADY, syncs=runs.syncs()),
            job_result("mine", *shifted(300), syncs=runs.syncs()),
        ]
        found = job(pair(shifted(500), shifted(500)), worse, fail_on=["slower", "syncs", "values", "unclear"])
        assert told(found) == [("mine", "slowest", "same"), ("mine", 0, "same"), ("mine", 1, "slower")]
        assert found.exit_code == 0

    def test_the_slowest_fails_them(self):
        slow = [
            job_result("original", *STEADY),
            job_result("mine", *shifted(300), syncs=runs.syncs(runs.site(1)), gradients=runs.gradients("differs")),
        ]
        found = job(pair(STEADY, STEADY), slow, fail_on=["slower", "syncs", "values"])
        assert found.judgement.failures == (
            "slower: mine on the slowest of 2 ranks of job: slower than original by 300.0 us a step (+29.9 %)",
            "syncs: mine on the slowest of 2 ranks of job: 1 sync a call of the loss, original has 0",
            "values: mine on the slowest of 2 ranks of job: values differs, those of original equal",
        )


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([1, 0], "ranks 0 and 1"),
        ([0, 1, 2, 5], "ranks 0 to 2 and 5"),
        ([*range(1024)], "ranks 0 to 1023"),
        ([*range(0, 1024, 2)], "ranks 0, 2, 4, 6 and 508 more"),
        ([7, 8, 3, 2, 0], "ranks 0, 2, 3, 7 and 8"),
    ],
)
def test_ranks_in_words(ranks, words):
    assert ranks_in_words(ranks) == words


def equal_job(seed: int, ranks: int = 4, windows: int = 24) -> list[list[Result]]:
    """A and A on ranks that mostly wait for each other: noise of the job, of the rank, and a drift that all share."""
    rng = np.random.default_rng(seed)
    drift = np.cumsum(rng.normal(0.0, 20.0, windows))
    found: list[list[Result]] = [[] for _ in range(ranks)]
    for name in ("original", "mine"):
        of_job = rng.normal(0.0, 80.0, windows)
        for results in found:
            steps = 5_000.0 + drift + of_job + rng.normal(0.0, 40.0, windows)
            results.append(job_result(name, *steps.tolist()))
    return found


def test_of_400_equal_jobs_of_4_ranks_at_most_5_percent_are_called_faster_or_slower():
    """At a threshold of 0, with correlated noise."""
    verdicts = [job(*equal_job(seed), threshold=Threshold(0.0, 0.0)).rows[0].verdict for seed in range(400)]
    assert sum(verdict in ("faster", "slower") for verdict in verdicts) <= 20


def test_a_slow_rank_is_found_through_the_slowest():
    """300 us in a step of 5 ms on one rank of 4."""
    found = []
    for seed in range(20):
        ranks = equal_job(seed, windows=100)
        ranks[2][1] = job_result("mine", *(ns / 1e3 + 300 for ns in ranks[2][1].time.step_ns))
        found.append(job(*ranks).rows[0].verdict)
    assert found.count("slower") >= 19


def test_a_rank_is_no_replicate():
    """The same windows on 64 ranks make an interval no narrower than on one."""
    (one,) = job(*equal_job(7, ranks=1)).rows
    copies = equal_job(7, ranks=1) * 64
    many = job(*copies).rows[0]
    assert dataclasses.astuple(many.difference) == dataclasses.astuple(one.difference)
