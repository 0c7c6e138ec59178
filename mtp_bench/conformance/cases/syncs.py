"""Host-device synchronisations: the loss needs none, whatever the batch looks like."""

from __future__ import annotations

from mtp_bench.conformance.model import Affected, Case, Inputs, Reference

_FAULT = (
    "Every step the host waits until the GPU has drained, at the lines shown: it loses its lead, and the step cannot "
    "be captured in a CUDA graph. "
)

CASES = (
    Case(
        id="no-sync",
        title="no host-device synchronisation over padded rows",
        fault=_FAULT + "A branch on the token count, as in `if num_tokens > 0`, reads it from the device.",
        property="syncs",
        references=(Reference("verl", 6464), Reference("Megatron-LM", 3396)),
        affected=(Affected("megatron-core", since="0.17.0", until="0.17.1"), Affected("verl", since="0.9.0")),
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], per_token=False),
        expected={"syncs": []},
        arithmetic="Counts, shifts and quotients are operations of the device.",
    ),
    Case(
        id="no-sync-empty",
        title="no host-device synchronisation without a target",
        fault=_FAULT + "A constant made for the log, as in `new_tensor(0.0)`, is copied to the device.",
        property="syncs",
        references=(Reference("verl", 6464),),
        affected=(Affected("megatron-core", since="0.17.0", until="0.17.1"), Affected("verl", since="0.9.0")),
        inputs=Inputs(labels=[[5, 6]], loss_mask=[[1, 0]], per_token=False),
        expected={"syncs": []},
        arithmetic="A count of 0 needs no branch: the loss is 0 by itself once the count is clamped.",
    ),
    Case(
        id="no-sync-packed",
        title="no host-device synchronisation over packed sequences",
        fault=_FAULT + "Slicing with boundaries that live on the device, as in `tensor[..., cu[i]:cu[i + 1]]`, reads "
        "each of them: 8 times a sequence and depth.",
        property="syncs",
        references=(Reference("verl", 6464),),
        affected=(Affected("megatron-core", since="0.16.0"), Affected("verl", since="0.8.0")),
        inputs=Inputs(labels=[[1, 2, 3, 4, 5]], loss_mask=[[1, 1, 1, 1, 1]], cu_seqlens=[0, 3, 5], per_token=False),
        expected={"syncs": []},
        arithmetic="Where a sequence ends can be computed on the device.",
    ),
)
