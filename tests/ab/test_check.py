"""Whether variants give the gradients of the job's own loss, and that asking leaves no trace."""

from __future__ import annotations

import random
import re
import warnings

import numpy as np
import pytest
import torch
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper

import mtp_bench
from mtp_bench.ab import Refused
from mtp_bench.ab.check import BOUNDS, judge
from tests.ab import training
from tests.ab.training import Job

PLANTED = "tests.ab.planted:"
OWN = "compared with GPTModel._postprocess of megatron-core 0.16.1"


@pytest.fixture
def refused(device, tmp_path):
    """Run a job with a variant that is refused at its first batch: the job, the reason, the run."""

    def run(name, *others, **keys):
        job = Job(device, **keys)
        before = training.attributes(job.model, job.ddp), training.of_megatron()
        experiment = mtp_bench.ab(job.ddp, [name, *others], 12, window=2, out=tmp_path, optimizer=job.optimizer)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", Refused)
            job.iterations(3)
        said = [str(warning.message) for warning in said if warning.category is Refused]
        assert (training.attributes(job.model, job.ddp), training.of_megatron()) == before
        assert said == [f"mtp_bench.ab: no experiment: {experiment.refusal}"]
        experiment.stop()
        return job, experiment.refusal, mtp_bench.load_run(experiment.folder)

    return run


def test_equal_close_and_different():
    """Two chunks of two tokens; the bound of fp32 is 1e-5 of a chunk's largest entry."""
    own = torch.tensor([[[1.0]], [[0.0]], [[1e-3]], [[1e-3]]])
    off = own + torch.tensor([[[0.0]], [[0.0]], [[0.0]], [[2e-8]]])
    assert [BOUNDS[dtype] for dtype in (torch.float32, torch.bfloat16, torch.float16)] == [1e-5, 2e-2, 2.5e-3]
    assert judge(own, own.clone(), 2).model_dump(exclude={"compared_with"}) == {
        "status": "equal",
        "max_rel_err": 0.0,
        "bound": 1e-5,
        "head_gradient": None,
        "detail": "",
    }
    found = judge(own, own * (1 + 1e-6), 2)
    assert (found.status, found.max_rel_err) == ("close", pytest.approx(1e-6, rel=0.2))
    found = judge(own, off, 2)  # 2e-8 of the whole, 2e-5 of its own chunk
    assert (found.status, found.detail) == ("differs", "its gradient is off by up to 2e-05 of the largest entry")


@pytest.mark.parametrize(
    ("own", "gradient", "status", "detail"),
    [
        ([1.0, 2.0], [1.0, float("nan")], "nan", "its gradient is not finite"),
        ([1.0, float("inf")], [1.0, 2.0], "differs", "the gradient of the job's own loss is not finite on this batch"),
        ([0.0, 0.0], [0.0, 0.0], "equal", ""),
        ([0.0, 0.0], [0.0, 1e-9], "differs", "its gradient is off by up to inf of the largest entry"),
    ],
)
def test_what_is_not_finite_or_zero(own, gradient, status, detail):
    found = judge(torch.tensor(own).view(2, 1, 1), torch.tensor(gradient).view(2, 1, 1), 1)
    assert (found.status, found.detail) == (status, detail)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("half", f"its gradient is off by up to 0.5 of the largest entry, {OWN}"),
        ("not_finite", f"its gradient is not finite, {OWN}"),
        ("head_detached", f"it does not train the output layer, the job's own loss trains it, {OWN}"),
        ("changes_labels", f"it changes its caller's labels, {OWN}"),
    ],
)
def test_other_gradients_are_refused_before_they_are_trained_with(device, refused, name, why):
    plain = Job(device)
    plain.iterations(3)
    job, reason, run = refused(PLANTED + name)
    advice = "leave it out, or pass allow_different_gradients=True to let it change the training"
    assert reason == f"{PLANTED}{name}: {why}; {advice}"
    assert (job.losses, job.outcome()["weights"]) == (plain.losses, plain.outcome()["weights"])
    assert (run.job.ended, run.job.windows) == (f"refused: {reason}", 0)
    (result,) = run.results
    assert (result.status, result.error, result.time) == ("failed", reason, None)
    assert result.gradients.status == ("nan" if name == "not_finite" else "differs")


def test_a_roll_that_gives_other_tokens_is_refused(refused):
    _, reason, _ = refused(PLANTED + "wrong_roll", packed=True)
    assert reason.startswith(f"{PLANTED}wrong_roll: its roll of packed sequences differs from megatron-core's, {OWN}")


def test_a_variant_that_raises_is_refused(refused):
    _, reason, run = refused(PLANTED + "raises", "original")
    assert reason == f"{PLANTED}raises raised ValueError: planted"
    assert [(result.status, result.error) for result in run.results] == [("failed", reason), ("failed", reason)]
    assert run.results[1].gradients.status == "equal"


def test_host_lens_needs_the_bounds_on_the_host(device, refused, monkeypatch):
    make = training.Batch.__init__

    def without_host_bounds(batch, *args):
        make(batch, *args)
        del batch.packed_seq_params.cu_seqlens_q_host

    monkeypatch.setattr(training.Batch, "__init__", without_host_bounds)
    _, reason, _ = refused("host_lens", packed=True)
    assert reason == "host_lens: packed_seq_params.cu_seqlens_q_host is missing; expected a list of the bounds"


def test_a_job_that_never_calls_the_loss_in_training_is_told(device, tmp_path):
    job = Job(device)
    job.model.eval()
    mtp_bench.ab(job.ddp, ["original"], 4, window=2, out=tmp_path)
    with pytest.warns(Refused, match="its first iteration called the MTP loss with no labels, no gradients or not at"):
        job.iterations(3)


def test_different_gradients_run_where_that_is_asked_for(device, tmp_path):
    job = Job(device)
    with mtp_bench.ab(
        job.ddp, [PLANTED + "half"], 4, window=2, out=tmp_path, allow_different_gradients=True
    ) as experiment:
        job.iterations(7)
    (result,) = mtp_bench.load_run(experiment.folder).results
    assert (result.status, result.gradients.status, len(result.time.step_ns)) == ("ok", "differs", 2)
    assert result.gradients.detail == "its gradient is off by up to 0.5 of the largest entry"
    assert result.gradients.max_rel_err == pytest.approx(0.5)


def test_the_check_leaves_no_trace(device, tmp_path, monkeypatch):
    """Asked while a job is in the middle of an iteration, of a variant that draws random numbers and sets settings."""
    job = Job(device)
    job.iterations(1)
    weight = job.model.output_layer.weight
    weight.grad = torch.ones_like(weight)
    scale = torch.tensor(5.0)
    monkeypatch.setattr(MTPLossAutoScaler, "main_loss_backward_scale", scale)
    monkeypatch.setattr(job.model.output_layer, "embedding_activation_buffer", [])
    monkeypatch.setattr(job.model.output_layer, "grad_output_buffer", [])
    mtp_bench.ab(job.ddp, [PLANTED + "leaves_traces"], 4, window=2, out=tmp_path)
    checked = []

    def state():
        return {
            "random": random.getstate(),
            "numpy": [str(part) for part in np.random.get_state()],
            "torch": torch.get_rng_state().tolist(),
            "device": torch.cuda.get_rng_state().tolist(),
            "scale": MTPLossAutoScaler.main_loss_backward_scale,
            "tracker": {name: id(value) for name, value in MTPLossLoggingHelper.tracker.items()},
            "logged": [float(loss) for loss in mtp_bench.megatron.logged_losses()],
            "config": dict(vars(job.config)),
            "deferred": [len(job.model.output_layer.embedding_activation_buffer)],
            "grads": {name: [x.clone() for x in (p.main_grad, p.grad) if x is not None] for name, p in named(job)},
            "batch": [job.batch.labels.clone(), job.batch.loss_mask.clone()],
            "hooks": [len(job.model.output_layer._forward_pre_hooks), len(job.model.output_layer._forward_hooks)],
        }

    from mtp_bench.ab import experiment as module

    check = module.check

    def watched(*args):
        job.config.defer_embedding_wgrad_compute = True
        before = state()
        found = check(*args)
        after = state()
        job.config.defer_embedding_wgrad_compute = False
        checked.append([name for name in before if not same(before[name], after[name])])
        return found

    monkeypatch.setattr(module, "check", watched)
    with pytest.warns(Refused, match="it changes its caller's config, loss scale; its gradient"):
        job.iterations(3)
    assert checked == [[]]


def named(job):
    return list(job.model.named_parameters())


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one is other or one == other


def test_a_fused_weight_gradient_is_not_accumulated_twice(device, tmp_path, monkeypatch):
    """With gradient-accumulation fusion a linear layer's backward pass writes weight.main_grad itself."""
    job = Job(device)
    written = []

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx, hidden_states, weight):
            ctx.save_for_backward(hidden_states, weight)
            return hidden_states @ weight.t()

        @staticmethod
        def backward(ctx, grad):
            hidden_states, weight = ctx.saved_tensors
            if weight.requires_grad:
                written.append(None)
                weight.main_grad.add_(grad.flatten(0, 1).t() @ hidden_states.flatten(0, 1))
            return grad @ weight, None

    def forward(hidden_states, weight=None, runtime_gather_output=None):
        return Fused.apply(hidden_states, job.model.output_layer.weight if weight is None else weight), None

    monkeypatch.setattr(job.model.output_layer, "forward", forward)
    with mtp_bench.ab(job.ddp, ["original", "sync_free", "megatron"], 6, window=2, out=tmp_path) as experiment:
        job.iterations(1)
    assert experiment.refusal == ""
    assert len(written) == 2 * 2  # two microbatches: the main loss and one depth


def test_shapes_without_values_are_said(device, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "bits", lambda _: b"")
    job = Job(device, sequences=[1024, 1024], hidden_size=512, params_dtype="bf16")
    mtp_bench.ab(job.ddp, ["original"], 4, window=2, out=tmp_path)
    message = "gradients cannot be compared: tensors of more than 2**20 elements hold no values on the simulated device"
    with pytest.warns(Refused, match=re.escape(message)):
        job.iterations(3)
