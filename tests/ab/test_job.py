"""A job with ``mtp_bench.ab`` in it is the job without it: same losses, same weights, nothing left behind."""

from __future__ import annotations

import json

import pytest
import torch
from megatron.core.transformer.module import Float16Module

import mtp_bench
from mtp_bench.ab import Refused
from mtp_bench.ab.schedule import Schedule
from mtp_bench.variants import megatron as megatrons_own
from mtp_bench.variants.borrowed import run_postprocess
from tests.ab import planted, training
from tests.ab.training import Job

VARIANTS = ["original", "sync_free"]
COUNTING = "tests.ab.planted:counting"
ITERATIONS = 2 + 12  # the first two are the job's own


@pytest.fixture
def started(device, tmp_path):
    """Start an experiment of two rounds of two windows of three iterations."""

    def start(job, variants=VARIANTS, steps=12, model=None, **options):
        options = {"optimizer": job.optimizer, **options}
        return mtp_bench.ab(model or job.ddp, variants, steps, window=3, out=tmp_path / "ab", **options)

    return start


def places(job):
    return training.attributes(job.model, job.ddp), training.of_megatron(), "step" in vars(job.optimizer)


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_losses_weights_and_logs_are_the_same_bits(device, started, layout):
    plain = Job(device, packed=layout == "packed")
    plain.iterations(ITERATIONS)
    alone = plain.outcome()
    mtp_bench.megatron.clear_logged_losses()
    job = Job(device, packed=layout == "packed")
    with started(job, ["original", "boundary_roll"]) as experiment:
        job.iterations(ITERATIONS)
    assert job.outcome() == alone
    assert len(set(alone["losses"])) == ITERATIONS  # its microbatches are the same one
    assert experiment.refusal == ""


def test_what_is_written(device, started, tmp_path):
    job = Job(device, packed=True)
    with started(job, seed=5, name="tiny") as experiment:
        job.iterations(ITERATIONS)
    run = mtp_bench.load_run(tmp_path / "ab" / "rank-0")
    assert experiment.folder == tmp_path / "ab" / "rank-0"
    assert (run.seed, list(run.workloads)) == (5, ["tiny"])
    assert run.job.model_dump(exclude={"id"}) == {
        "rank": 0,
        "world_size": 1,
        "parallel": dict.fromkeys(("dp", "tp", "pp", "cp", "ep"), (0, 1)),
        "has_loss": True,
        "steps": 12,
        "window": 3,
        "iterations": ITERATIONS,
        "windows": 4,
        "windows_lost": 0,
        "ended": "done",
    }
    assert run.environment.device.model_dump(include={"kind", "modelled"}) == {"kind": "sim", "modelled": True}
    for result in run.results:
        assert (result.scope, result.harness, result.status, result.error) == ("job", "job", "ok", None)
        assert result.device == "sim:h100"
        assert (result.gradients.status, result.gradients.head_gradient) == ("equal", "trained")
        assert result.gradients.compared_with == "GPTModel._postprocess of megatron-core 0.16.1"
        assert result.syncs.count == 8 * 3  # a call: three sequences, a depth
        assert {(site.kind, site.phase, tuple(site.range)) for site in result.syncs.sites} == {
            ("item", "forward", ("forward", "mtp_loss", "depth:1"))
        }
        assert result.time.round == [0, 1]
        assert all(step_ns > 1e6 for step_ns in result.time.step_ns)
        assert all(loss_ns > 1e5 for loss_ns in result.time.loss_ns)
    assert run.workloads["tiny"]["mtp_num_layers"] == 1
    assert run.workloads["tiny"]["vocab_size"] == 32


def test_each_window_runs_the_variant_that_is_drawn_for_it(device, started):
    job = Job(device)
    ran = []
    with started(job, [COUNTING, "sync_free"]):
        job.iterations(ITERATIONS, lambda _: ran.append(len(planted.calls)))
    schedule = Schedule.of(variants=2, steps=12, window=3, seed=1234)
    counts = [1, 0] + [2 if schedule.variant(window) == 0 else 0 for window in range(4) for _ in range(3)]
    assert ran == [sum(counts[: at + 1]) for at in range(ITERATIONS)]


def test_megatron_in_a_window_is_the_jobs_own_code_where_it_is(device, started, monkeypatch):
    """Cut out of what surrounds it, it would be slower than it is."""
    plain = Job(device)
    plain.iterations(ITERATIONS)
    alone = plain.outcome()
    mtp_bench.megatron.clear_logged_losses()
    job = Job(device)
    cut_out = []

    def noted(*args):
        cut_out.append(args)
        return run_postprocess(*args)

    monkeypatch.setattr(megatrons_own, "run_postprocess", noted)
    with started(job, ["megatron", "sync_free"]) as experiment:
        job.iterations(ITERATIONS)
    assert job.outcome() == alone
    assert len(cut_out) == 1  # in the check
    megatrons, sync_free = mtp_bench.load_run(experiment.folder).results
    assert megatrons.gradients.status == "equal"
    assert [loss_ns > 1e5 for loss_ns in megatrons.time.loss_ns + sync_free.time.loss_ns] == [True] * 4


def test_calls_that_do_not_train_run_the_own_loss_and_are_not_recorded(device, started):
    job = Job(device)

    def evaluate(_):
        job.model.eval()
        job.forward_backward(forward_only=True)
        job.model.train()

    with started(job, [COUNTING, "sync_free"]) as experiment:
        job.iterations(ITERATIONS, evaluate)
    assert len(planted.calls) == 1 + 6 * 2
    run = mtp_bench.load_run(experiment.folder)
    assert [result.time.loss_ns for result in run.results] == [[run.results[0].time.loss_ns[0]] * 2] * 2


def test_left_alone_it_ends_after_its_last_window(device, started):
    job = Job(device)
    before = places(job)
    experiment = started(job)
    job.iterations(ITERATIONS - 1)
    assert places(job) != before
    job.iterations(1)
    assert places(job) == before
    job.iterations(3)
    experiment.stop()
    assert mtp_bench.load_run(experiment.folder).job.ended == "done"


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_nothing_stays_behind_when_training_raises(device, started, iterations):
    job = Job(device)
    before = places(job)
    experiment = started(job)

    def run():
        with experiment:
            job.iterations(iterations)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert places(job) == before
    job.iterations(1)
    if iterations > 2:
        run = mtp_bench.load_run(experiment.folder)
        assert (run.job.ended, run.job.windows) == ("exception: ZeroDivisionError", 1)


def test_an_exception_inside_the_model_passes_through(device, started, monkeypatch):
    job = Job(device)
    before = places(job)

    def fails(*_):
        raise ZeroDivisionError

    def run():
        with started(job):
            job.iterations(3)
            monkeypatch.setattr(job.model, "compute_language_model_loss", fails)
            job.iterations(1)

    said = pytest.warns(Refused, match="original raised ZeroDivisionError|sync_free raised ZeroDivisionError")
    with said, pytest.raises(ZeroDivisionError):
        run()
    monkeypatch.undo()
    assert places(job) == before


def test_a_variant_that_raises_later_ends_the_experiment_and_not_the_job(device, started):
    plain = Job(device)
    plain.iterations(6)
    name = "tests.ab.planted:raises_in_its_third_call"
    job = Job(device)
    before = places(job)
    experiment = started(job, [name], steps=9)
    with pytest.warns(
        Refused, match=f"mtp_bench.ab: the experiment has ended early: {name} raised ValueError: planted"
    ):
        job.iterations(6)
    assert places(job) == before
    assert (job.losses, job.outcome()["weights"]) == (plain.losses, plain.outcome()["weights"])
    experiment.stop()
    run = mtp_bench.load_run(experiment.folder)
    assert run.job.ended == f"failed: {name} raised ValueError: planted"
    assert [(result.status, result.error) for result in run.results] == [
        ("failed", f"{name} raised ValueError: planted")
    ]
    assert experiment.refusal == f"{name} raised ValueError: planted"


def test_gradients_zeroed_twice_are_one_iteration(device, started):
    """As in verl, which zeroes them when it leaves a step as well."""
    once, twice = Job(device), Job(device)
    with started(once) as experiment:
        once.iterations(ITERATIONS)
    with started(twice) as again:
        twice.iterations(ITERATIONS, lambda _: twice.ddp.zero_grad_buffer())
    assert twice.losses == once.losses
    runs = [mtp_bench.load_run(one.folder) for one in (experiment, again)]
    assert [(run.job.iterations, run.job.windows, run.job.ended) for run in runs] == [(ITERATIONS, 4, "done")] * 2
    assert [r.time.step_ns for r in runs[0].results] == [r.time.step_ns for r in runs[1].results]


def test_without_an_optimizer_an_iteration_ends_where_the_next_begins(device, started):
    job = Job(device)
    with started(job, optimizer=None) as experiment:
        job.iterations(ITERATIONS)
    run = mtp_bench.load_run(experiment.folder)
    assert (run.job.iterations, run.job.windows, run.job.ended) == (ITERATIONS, 4, "done")


def test_a_loop_without_ddp_says_itself_where_iterations_begin(device, started):
    job = Job(device)
    with started(job, ["original", COUNTING], model=job.model, optimizer=None) as experiment:
        for _ in range(ITERATIONS):
            experiment.step()
            job.batch.run(job.model).mean().backward()
    run = mtp_bench.load_run(experiment.folder)
    assert (run.job.iterations, run.job.windows) == (ITERATIONS, 4)
    assert len(planted.calls) == 1 + 6


def test_an_experiment_that_saw_no_iteration_says_so(device, started):
    job = Job(device)
    experiment = started(job, model=job.model)
    job.batch.run(job.model).mean().backward()
    with pytest.warns(Refused, match=r"nothing was measured: it ended in iteration 0, .* call experiment.step\(\) at"):
        experiment.stop()
    assert experiment.folder is None


@pytest.mark.parametrize("shape", ["chunks", "float16", "model", "DDP in a list"])
def test_the_model_is_found_in_what_a_script_has(device, started, shape):
    wrap = Float16Module if shape == "float16" else lambda config, model: model
    job = Job(device, wrap, **({"params_dtype": "bf16"} if shape == "float16" else {}))
    model = {"chunks": [job.ddp], "float16": job.ddp, "model": job.model, "DDP in a list": (job.ddp,)}[shape]
    with started(job, [COUNTING, "original"], model=model) as experiment:
        if shape == "model":
            for _ in range(ITERATIONS):
                experiment.step()
                job.iterations(1)
        else:
            job.iterations(ITERATIONS)
    assert (experiment.refusal, len(planted.calls)) == ("", 1 + 6 * 2)


def test_a_language_model_inside_another_model(device, started):
    job = Job(device)

    class Multimodal(torch.nn.Module):
        language_model = job.model

    with started(job, [COUNTING, "original"], model=Multimodal(), optimizer=None) as experiment:
        for _ in range(ITERATIONS):
            experiment.step()
            job.iterations(1)
    assert (experiment.refusal, len(planted.calls)) == ("", 1 + 6 * 2)


def test_a_stage_of_the_pipeline_without_the_loss_takes_part_with_its_times(device, started, monkeypatch):
    job = Job(device)
    with monkeypatch.context() as patches:
        patches.setattr(job.model, "post_process", False)
        experiment = started(job, [COUNTING, "original"])
    job.iterations(ITERATIONS)
    experiment.stop()
    run = mtp_bench.load_run(experiment.folder)
    assert (run.job.has_loss, run.job.windows, planted.calls) == (False, 4, [])
    assert [(result.status, result.gradients, result.syncs) for result in run.results] == [("ok", None, None)] * 2
    assert [(result.time.round, result.time.loss_ns) for result in run.results] == [([0, 1], None)] * 2


def test_a_device_that_fails_keeps_what_was_read(device, started, monkeypatch):
    job = Job(device)
    experiment = started(job)
    job.iterations(9)

    def fails(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(experiment._recorder, "finish", fails)
    with pytest.warns(Refused, match="what was in flight is lost: RuntimeError: CUDA error"):
        experiment.stop()
    assert mtp_bench.load_run(experiment.folder).job.windows == 2


def test_what_an_earlier_launch_wrote_stays(device, started, tmp_path):
    for folder in ("ab/rank-0", "ab/2/rank-0", "ab/3/rank-0"):
        job = Job(device)
        with started(job) as experiment:
            job.iterations(ITERATIONS)
        assert experiment.folder == tmp_path / folder
    ids = {json.loads(file.read_text())["job"]["id"] for file in (tmp_path / "ab").rglob("run.json")}
    assert len(ids) == 3


def test_a_folder_that_has_gone_is_said_and_no_more(device, started):
    plain, job = Job(device), Job(device)
    plain.iterations(ITERATIONS)
    experiment = started(job)
    job.iterations(3)
    experiment.folder.parent.rmdir()
    experiment.folder.parent.write_text("in the way")

    def run():
        job.iterations(ITERATIONS - 3)
        experiment.stop()

    with pytest.warns(RuntimeWarning, match="cannot write to .*rank-0: Not a directory"):
        run()
    assert job.losses == plain.losses


def test_ab_is_a_function_whatever_was_imported_first():
    assert callable(mtp_bench.ab)
    from mtp_bench.ab import ab

    assert mtp_bench.ab.ab is ab
