"""One rank of a job with ``mtp_bench.ab``; prints a line of JSON about what it did."""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings

import torch.distributed as dist

import mtp_bench
from mtp_bench import megatron
from mtp_bench.ab import agreement
from tests.ab import training
from tests.ab.training import Job


def main() -> None:
    how, variants, out = sys.argv[1], sys.argv[2].split(","), sys.argv[3]
    logging.disable(logging.WARNING)
    agreement.TIMEOUT_S = 1.0 if how == "rank 1 does not call" else 60.0
    with training.simulated() as device:
        plain = _job(device)
        plain.iterations(18)
        alone = plain.outcome()
        megatron.clear_logged_losses()
        job = _job(device)
        before = training.attributes(job.model, job.ddp), training.of_megatron()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            experiment = _train(job, variants, out, how)
        run = None
        if experiment is not None and experiment.folder is not None:
            run = mtp_bench.load_run(experiment.folder).model_dump(mode="json", include={"job", "results", "workloads"})
        answer = {
            "rank": dist.get_rank(),
            "refusal": experiment.refusal if experiment is not None else None,
            "same": job.outcome() == alone,
            "restored": (training.attributes(job.model, job.ddp), training.of_megatron()) == before,
            "said": [str(warning.message) for warning in said if issubclass(warning.category, mtp_bench.ab.Refused)],
            "run": run,
            "folder": str(experiment.folder) if experiment is not None else None,
        }
        for rank in range(dist.get_world_size()):
            dist.barrier()
            if rank == dist.get_rank():
                print(json.dumps(answer), flush=True)


def _job(device):
    job = Job(device, packed=True)
    # Each rank has a batch of its own.
    job.batch.input_ids = (job.batch.input_ids + dist.get_rank()) % 32
    return job


def _train(job, variants, out, how):
    if how == "rank 1 does not call" and dist.get_rank() == 1:
        job.iterations(18)
        return None
    if how == "rank 1 asks for another order" and dist.get_rank() == 1:
        variants = variants[::-1]
    experiment = mtp_bench.ab(job.ddp, variants, 16, window=2, out=out, optimizer=job.optimizer)
    # The writer's thread looks for news of other ranks twice a second.
    job.iterations(18, lambda number: time.sleep(0.3 if how == "slowly" and number > 2 else 0.0))
    experiment.stop()
    return experiment


if __name__ == "__main__":
    main()
