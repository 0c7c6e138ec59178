"""What ``mtp_bench.ab`` refuses when it is called: the reason, and what to do."""

from __future__ import annotations

import functools
import os
from types import SimpleNamespace

import pytest
import torch
from megatron.core.models.gpt import gpt_model
from megatron.core.models.gpt.gpt_model import GPTModel

import mtp_bench
from mtp_bench import megatron
from mtp_bench.ab import Experiment
from mtp_bench.errors import InputError
from mtp_bench.megatron import HostPlace, placement, transformer_config, versions
from mtp_bench.megatron.gpt import build_model
from tests.ab import training
from tests.ab.training import Job
from tests.variants.recording import workload


@pytest.fixture
def job(device):
    return Job(device)


@pytest.fixture
def refusal(tmp_path):
    """The message with which a call is refused, and nothing is left behind."""

    def call(model, variants=("original",), steps=8, window=2, **options):
        before = training.of_megatron()
        with pytest.raises(InputError) as error:
            mtp_bench.ab(model, variants, steps, window, **{"out": tmp_path / "ab", **options})
        assert training.of_megatron() == before
        return str(error.value)

    return call


def test_what_holds_no_gpt_model(refusal):
    wrapped = torch.nn.Sequential(torch.nn.Linear(1, 1))
    expected = "expected a GPTModel, what wraps one, or a list of these"
    assert refusal(wrapped) == f"model is a Sequential that holds no GPTModel of megatron-core; {expected}"
    assert refusal([]) == "model is an empty list; expected the model's chunks"


def test_a_model_without_an_mtp_loss(job, refusal):
    job.config.mtp_num_layers = None
    expected = "the model has no MTP loss (mtp_num_layers is not set): build it with mtp_num_layers=1 or more"
    assert refusal(job.ddp) == expected


def test_up_to_0_15_a_last_stage_without_an_mtp_block_has_no_loss(job, refusal, monkeypatch):
    monkeypatch.setattr(versions, "has_packed_roll", lambda: False)
    monkeypatch.setattr(job.model, "mtp_process", False)
    assert refusal(job.ddp) == "the model's last stage has no MTP block: build it with an mtp_block_spec"


def test_a_model_on_the_cpu(refusal):
    with megatron.isolated_state(HostPlace()):
        tiny = workload(packed=False)
        model = build_model(tiny, transformer_config(tiny, on_host=True), HostPlace().torch_device)
        message = refusal(model)
    assert message == (
        "the model is on cpu, where no host is ahead of a device: move it to cuda, or build it inside a session of the "
        'simulated device (mtp_bench.devices.resolve("sim").session())'
    )


def test_a_subclass_with_a_postprocess_of_its_own(job, refusal, monkeypatch):
    class Mine(GPTModel):
        def _postprocess(self, *args, **kwargs):
            return super()._postprocess(*args, **kwargs)

    monkeypatch.setattr(job.model, "__class__", Mine)
    name = "tests.ab.test_refusals.test_a_subclass_with_a_postprocess_of_its_own.<locals>.Mine"
    advice = "where the MTP loss is: use it with a plain GPTModel"
    assert refusal(job.ddp) == f"{name} overrides GPTModel._postprocess, {advice}"


def patch(self, *args, **kwargs):
    """Somebody's patch."""


PATCH = f"tests.ab.test_refusals.patch ({__file__}:{patch.__code__.co_firstlineno}): leave that patch out"


def test_a_patch_on_the_class(job, refusal, monkeypatch):
    monkeypatch.setattr(GPTModel, "_postprocess", patch)
    assert refusal(job.ddp) == f"GPTModel._postprocess is replaced by {PATCH}"


def test_a_patch_on_the_class_that_carries_the_names_of_what_it_wraps(job, refusal, monkeypatch):
    monkeypatch.setattr(GPTModel, "_postprocess", functools.wraps(GPTModel._postprocess)(lambda *_, **__: None))
    assert f"({__file__}:" in refusal(job.ddp)


def test_a_patch_on_the_model(job, refusal):
    job.model._postprocess = patch.__get__(job.model)
    assert refusal(job.ddp) == f"the model's _postprocess is replaced by {PATCH}"


def test_what_a_patch_has_put_back_is_no_patch(job, tmp_path):
    """verl's unpatch_postprocess leaves the method on the model."""
    job.model._postprocess = job.model._postprocess
    before = training.attributes(job.model)
    with mtp_bench.ab(job.ddp, ["original"], 4, 2, out=tmp_path):
        job.iterations(7)
    assert training.attributes(job.model) == before


def test_a_patch_on_process_mtp_loss(job, monkeypatch):
    """As from 0.17 on: the function is looked up in the module of the model."""
    monkeypatch.setattr(gpt_model, "process_mtp_loss", patch, raising=False)
    monkeypatch.setattr(versions, "has_process_mtp_loss", lambda: True)
    assert placement.obstacle(job.model) == f"{gpt_model.__name__}.process_mtp_loss is replaced by {PATCH}"


@pytest.mark.parametrize("how", ["torch.compile", "compile()", "forward"])
def test_a_compiled_model(job, refusal, how):
    model = job.ddp
    if how == "torch.compile":
        model = torch.compile(job.ddp)
    elif how == "compile()":
        job.model.compile()
    else:
        job.model.forward = torch.compile(job.model.forward)
    name = {"torch.compile": "OptimizedModule"}.get(how, "GPTModel")
    advice = "call mtp_bench.ab on a model that is not compiled"
    assert refusal(model) == f"{name} is compiled by torch.compile, which keeps the loss that it has seen: {advice}"


def test_a_graph_of_whole_iterations(job, refusal):
    job.config.cuda_graph_impl = "local"
    job.config.cuda_graph_scope = ["full_iteration"]
    assert refusal(job.ddp) == (
        "the whole iteration is captured in a CUDA graph (full_iteration), which keeps the loss that it was captured "
        "with: turn that graph off for the experiment (graphs of single layers may stay)"
    )


def test_a_second_experiment(job, refusal, tmp_path):
    with mtp_bench.ab(job.ddp, ["original"], 4, 2, out=tmp_path):
        assert refusal(job.ddp) == "an experiment is running in this process: end it first, with its stop()"
        job.iterations(7)
    assert Experiment.running is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variants": "patched"}, "variants='patched': expected a list of names, such as ['patched', 'boundary_roll']"),
        ({"variants": []}, "variants=[]: expected a list of names, such as ['patched', 'boundary_roll']"),
        ({"variants": {"exact"}}, "variants={'exact'}: expected a list of names, such as ['patched', 'boundary_roll']"),
        ({"out": None}, "out=None: expected the path of a folder"),
        ({"out": "a\0b"}, "out='a\\x00b': expected the path of a folder"),
        ({"allow_different_gradients": "no"}, "allow_different_gradients='no': expected True or False"),
        ({"variants": ["original"] * 2}, "variants: 'original' is there twice; name each variant once"),
        ({"variants": ["patchd"]}, "--variant patchd: no such variant; did you mean 'patched'?"),
        ({"window": 0}, "window=0: expected a whole number of iterations, 2 or more"),
        ({"name": ""}, "name='': expected a name for the job"),
        ({"optimizer": 3}, "optimizer is a int; expected an object with a method step"),
    ],
)  # fmt: skip
def test_bad_arguments(job, refusal, options, message):
    assert refusal(job.ddp, **options) == message


def test_a_folder_that_cannot_be_written(job, refusal, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    message = f"cannot write to {file / 'ab'}: Not a directory; choose another folder with out"
    assert refusal(job.ddp, out=os.fspath(file / "ab")) == message


def test_a_call_inside_a_compiled_region_is_left_alone(job, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    mtp_bench.ab(job.ddp, ["original"], 4, 2, out=tmp_path)
    with pytest.warns(mtp_bench.ab.Refused, match="inside a region that torch.compile is compiling: leave it out of"):
        job.iterations(3)


@pytest.mark.parametrize("variant", ["original", "megatron"])
def test_a_capture_that_begins_later_ends_the_experiment_once_it_is_over(job, tmp_path, monkeypatch, variant):
    experiment = mtp_bench.ab(job.ddp, [variant], 8, 2, out=tmp_path)
    job.iterations(4)
    with monkeypatch.context() as patches:
        patches.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        job.iterations(1)
    assert Experiment.running is experiment
    with pytest.warns(mtp_bench.ab.Refused, match="inside a CUDA graph that is being captured: turn that graph off"):
        job.iterations(1)
    assert Experiment.running is None


def test_other_configs():
    """A config that has none of the settings is one without graphs."""
    from mtp_bench.ab import place

    assert place.obstacle([], SimpleNamespace(enable_cuda_graph=False, mtp_num_layers=1)) is None
