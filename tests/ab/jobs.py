"""Child process: jobs with and without ``mtp_bench.ab`` on any megatron-core, some with verl's patch on the model."""

from __future__ import annotations

import importlib.util
import json
import logging
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
from megatron.core.transformer import multi_token_prediction

import mtp_bench
from mtp_bench import megatron
from mtp_bench.ab import place
from mtp_bench.errors import InputError
from tests.ab import training
from tests.ab.training import Job

ITERATIONS = 2 + 8


def main() -> None:
    logging.disable(logging.WARNING)
    asked = json.loads(sys.argv[1])
    with training.simulated() as device:
        found = {name: _case(device, **case) for name, case in asked.items()}
        found["graphs"] = _graphs()
    print(json.dumps({"version": megatron.version(), "cases": found}))


def _case(device, verl=None, variants=("original", "sync_free"), **keys):
    patch = _patch(Path(verl)) if verl else None
    if patch is not None and not megatron.has_process_mtp_loss():
        return _refused(_job(device, patch, keys), patch, variants)
    megatron.clear_logged_losses()
    plain = _job(device, patch, keys)
    plain.iterations(ITERATIONS)
    alone = plain.outcome()
    megatron.clear_logged_losses()
    job = _job(device, patch, keys)
    before = _places(job, patch)
    rolling = patch or multi_token_prediction  # whose roll_tensor the MTP block calls
    own_roll, rolls = rolling.roll_tensor, []
    with mtp_bench.ab(job.ddp, variants, 8, window=2, out=tempfile.mkdtemp(), optimizer=job.optimizer) as experiment:
        job.iterations(3, lambda _: rolls.append(rolling.roll_tensor))
        in_window = _places(job, patch) != before
        job.iterations(ITERATIONS - 3, lambda _: rolls.append(rolling.roll_tensor))
    run = mtp_bench.load_run(experiment.folder)
    return {
        "refusal": experiment.refusal,
        "same": {name: job.outcome()[name] == value for name, value in alone.items()},
        "trained": len(set(job.losses)),
        "restored": _places(job, patch) == before,
        "replaced": in_window,
        "rolled otherwise": sum(roll is not own_roll for roll in rolls),
        "gradients": [
            [result.gradients.status, result.gradients.head_gradient, result.gradients.compared_with]
            for result in run.results
        ],
        "syncs": [result.syncs.count for result in run.results],
        "windows": [len(result.time.step_ns) for result in run.results],
    }


def _refused(job, patch, variants):
    before = _places(job, patch)
    try:
        mtp_bench.ab(job.ddp, variants, 8, window=2, out=tempfile.mkdtemp())
    except InputError as error:
        return {"refused": str(error), "restored": _places(job, patch) == before}
    return {"refused": ""}


class _Logits(Job):
    """With verl's patch the model returns logits [B, S, V], and the loss is the caller's."""

    def _forward_step(self, _, model):
        logits = self.batch.run(model)
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), self.batch.labels.flatten(), reduction="none"
        )
        return losses.view(self.batch.labels.shape), self._loss


def _job(device, patch, keys):
    if patch is None:
        return Job(device, **keys)
    job = _Logits(device, **keys)
    patch.patch_postprocess(job.model)
    patch.patch_mtp_layer_get_embeddings(job.model)
    return job


def _patch(folder):
    """verl's module from its file, under the name that it has in verl: the rest of verl imports many other things."""
    name = "verl.models.mcore.mtp_patch"
    spec = importlib.util.spec_from_file_location(name, folder / "verl/models/mcore/mtp_patch.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _places(job, patch):
    of_verl = {key: id(value) for key, value in vars(patch).items()} if patch is not None else {}
    return [training.attributes(job.model, job.ddp), training.of_megatron(), of_verl]


def _graphs():
    """Which settings of this release capture whole iterations, and so the loss."""
    from megatron.core.transformer import enums

    scope = getattr(enums, "CudaGraphScope", None) or getattr(enums, "CudaGraphModule", None)
    layers, whole = (["attn"], ["full_iteration"])
    if scope is not None and hasattr(scope, "full_iteration"):
        layers, whole = [scope.attn], [scope.full_iteration]
    settings = {
        "off": {},
        "layers": {"cuda_graph_impl": "local", "cuda_graph_scope": layers},
        "whole": {"cuda_graph_impl": "local", "cuda_graph_scope": whole},
        "whole as text": {"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"},
        "whole from 0.18 on": {"cuda_graph_impl": "full_iteration", "cuda_graph_scope": None},
        "whole, external": {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": whole},
    }
    config = {"enable_cuda_graph": False, "mtp_num_layers": 1}
    found = {name: bool(place.obstacle([], SimpleNamespace(**config, **setting))) for name, setting in settings.items()}
    in_0_14 = SimpleNamespace(enable_cuda_graph=True, cuda_graph_scope="full_iteration", mtp_num_layers=1)
    return {**found, "whole in 0.14": bool(place.obstacle([], in_0_14))}


if __name__ == "__main__":
    main()
