"""One stage of a pipeline of two, trained with and without ``mtp_bench.ab``; prints a line of JSON."""

from __future__ import annotations

import json
import logging
import sys
import zlib

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel

import mtp_bench
from mtp_bench.devices import resolve
from mtp_bench.megatron import isolated_state
from mtp_bench.megatron.gpt import Batch, draw_parameter
from mtp_bench.megatron.head import transformer_config
from mtp_bench.megatron.state import quiet
from tests.ab.training import Job, Optimizer
from tests.variants.recording import bits, workload


class Stage(Job):
    """The first stage has the embedding and a layer, the last one a layer, the MTP block and the losses."""

    def __init__(self, device, rank):
        self.workload = workload(packed=False, num_layers=2, sequences=[6, 6], num_microbatches=2)
        self.config = transformer_config(self.workload)
        self.config.pipeline_model_parallel_size, self.config.pipeline_dtype = 2, torch.float32
        self.config.finalize_model_grads_func = finalize_model_grads
        self.batch = Batch(self.workload, device.torch_device)
        layer = get_gpt_layer_local_spec()
        block = get_gpt_mtp_block_spec(self.config, layer, use_transformer_engine=False) if rank == 1 else None
        with quiet():
            self.model = GPTModel(
                self.config,
                layer,
                vocab_size=self.workload.vocab_size,
                max_sequence_length=6,
                pre_process=rank == 0,
                post_process=rank == 1,
                share_embeddings_and_output_weights=False,
                mtp_block_spec=block,
            ).to(device.torch_device)
        for name, parameter in self.model.named_parameters():
            draw_parameter(name, parameter, seed=1)
        buckets = DistributedDataParallelConfig(grad_reduce_in_fp32=True)
        self.ddp = DistributedDataParallel(config=self.config, ddp_config=buckets, module=self.model)
        self.optimizer = Optimizer(self.model)
        self.losses = []

    def weights(self):
        """Checksums."""
        return {name: zlib.crc32(bits(value)) for name, value in self.model.named_parameters()}


def main() -> None:
    logging.disable(logging.WARNING)
    device = resolve("sim")
    with device.session():
        dist.init_process_group("gloo")
        parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2, create_gloo_process_groups=False)
        rank = dist.get_rank()
        with isolated_state(device):
            plain, job = Stage(device, rank), Stage(device, rank)
            plain.iterations(10)
            with mtp_bench.ab(
                job.ddp, ["original", "sync_free"], 8, window=2, out=sys.argv[1], optimizer=job.optimizer
            ) as experiment:
                job.iterations(10)
        run = mtp_bench.load_run(experiment.folder)
        answer = {
            "rank": rank,
            "same": (job.losses, job.weights()) == (plain.losses, plain.weights()),
            "losses": len(set(job.losses)),
            "job": run.job.model_dump(mode="json"),
            "gradients": [result.gradients.status if result.gradients else None for result in run.results],
            "loss_ns": [result.time.loss_ns is not None for result in run.results],
        }
        for turn in range(2):
            dist.barrier()
            if turn == rank:
                print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
