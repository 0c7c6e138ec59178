"""``exact`` with something taken out that matters on several ranks only, and variants that leave the others behind."""

from __future__ import annotations

import os
from dataclasses import replace

import torch.distributed as dist

from mtp_bench.patching import replaced
from mtp_bench.variants import exact as module
from mtp_bench.variants.exact import Counts, exact
from mtp_bench.variants.whole_rows import WholeRows


def counts_of_one_data_parallel_rank(**arguments):
    with replaced(module, "_data_parallel_group", lambda: None):
        return exact(**arguments)


def counts_of_one_context_parallel_rank(*, cp_group, **arguments):
    """Targets are those of the whole, counts those of the rank."""
    found = module._find_targets

    def find_targets(rows, tokens, loss_mask, depths, **options):
        targets, _ = found(rows, tokens, loss_mask, depths, **options)
        own = [loss_mask.float().sum(), *(target.weight.sum() for target in targets)]
        return targets, Counts(module.torch.stack(own), 1)

    with replaced(module, "_find_targets", find_targets):
        return exact(cp_group=cp_group, **arguments)


def means_not_multiplied_by_cp_size(**arguments):
    """What averages gradients over context-parallel ranks is not undone."""
    factor = Counts.factor

    def undone(counts, depth, config):
        found = factor(counts, depth, config)
        return found if config.calculate_per_token_loss else found / counts._cp_size

    with replaced(Counts, "factor", undone):
        return exact(**arguments)


def targets_of_one_rank(**arguments):
    """Each rank shifts what it has."""

    def shift(rows, whole):
        own = rows.own(whole)
        shifted = own.roll(-1, -1)
        shifted[..., -1] = 0
        return rows.gather(shifted)

    with replaced(WholeRows, "shift", shift):
        return exact(**arguments)


def zigzag_whatever_is_said(*, packed_seq_params, **arguments):
    if packed_seq_params is not None:
        packed_seq_params = replace(packed_seq_params)  # without cp_partition_mode, which is no field
    return exact(packed_seq_params=packed_seq_params, **arguments)


def over_padding(*, packed_seq_params, **arguments):
    if packed_seq_params is not None:
        partition = getattr(packed_seq_params, "cp_partition_mode", "zigzag")
        packed_seq_params = replace(packed_seq_params, cu_seqlens_q_padded=None)
        packed_seq_params.cp_partition_mode = partition
    return exact(packed_seq_params=packed_seq_params, **arguments)


def asking_the_host(*, loss_mask, **arguments):
    if loss_mask.sum() < 0:
        raise AssertionError
    return exact(loss_mask=loss_mask, **arguments)


def raising_on_one_rank(**arguments):
    """The others wait for it."""
    if dist.get_rank() == 1:
        raise ValueError("not on this rank")
    return exact(**arguments)


def ending_one_rank(**arguments):
    if os.environ["RANK"] == "1":
        os._exit(9)
    return exact(**arguments)
