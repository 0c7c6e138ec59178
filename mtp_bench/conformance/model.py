"""What a case of ``mtp-bench check`` is: inputs, the right values with their arithmetic, and how a result is judged.

Without torch, so that cases can be listed in an instant. Rows are [B][S], a list a row of a microbatch; what exists
once a depth is a list of those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mtp_bench.conformance.applies import supported

if TYPE_CHECKING:
    from mtp_bench.variants import Variant

Rows = Sequence[Sequence[float]]

PROPERTIES = ("values", "gradient", "log", "syncs", "side_effects")
STATUSES = ("passed", "failed", "not_applicable", "follows")

_REPOSITORIES = {
    "Megatron-LM": "NVIDIA/Megatron-LM",
    "Megatron-Bridge": "NVIDIA-NeMo/Megatron-Bridge",
    "NeMo-RL": "NVIDIA-NeMo/RL",
    "verl": "verl-project/verl",
    "mcore-bridge": "modelscope/mcore-bridge",
    "ms-swift": "modelscope/ms-swift",
    "miles": "radixark/miles",
    "AReaL": "areal-project/AReaL",
    "slime": "THUDM/slime",
    "torchtitan": "pytorch/torchtitan",
    "VeOmni": "ByteDance-Seed/VeOmni",
    "PaddleFleet": "PaddlePaddle/PaddleFleet",
    "ISEEKYAN/Megatron-LM": "ISEEKYAN/Megatron-LM",
}


@dataclass(frozen=True)
class Reference:
    """Where a fault was reported: an issue or pull request on GitHub, which knows one number by either address."""

    project: str
    number: int

    @property
    def url(self) -> str:
        """Address of the thread."""
        return f"https://github.com/{_REPOSITORIES[self.project]}/issues/{self.number}"

    def __str__(self) -> str:
        return f"{self.project} #{self.number}"


@dataclass(frozen=True)
class Affected:
    """Releases of ``project`` that have the fault: from ``since`` ("" where it has always been there) to ``until``
    ("" where the last release that was looked at has it too), both included."""

    project: str
    since: str = ""
    until: str = ""

    def __str__(self) -> str:
        if self.since and self.until:
            return f"{self.project} {self.since} to {self.until}"
        return f"{self.project} {f'from {self.since}' if self.since else f'up to {self.until}'}"


@dataclass(frozen=True)
class Inputs:
    """One call of ``process_mtp_loss``, as literal values.

    Hidden states have one element a position, and the output layer the weight 1, so that a position's logit is its
    hidden state and (``loss`` "linear") its loss too: ``losses`` [B][S], the same at every depth, 1 everywhere by
    default. The gradient of a hidden state then is the number that its loss is multiplied by.

    ``loss`` may also be "cross_entropy", Megatron's own over a vocabulary of 4 with uniform logits, or "overwriting":
    linear, and the logits are overwritten with 0 once the loss is computed.
    """

    labels: Sequence[Sequence[int]] | None
    loss_mask: Rows | None
    input_ids: Sequence[Sequence[int]] | None = None
    losses: Rows | None = None
    depths: int = 1
    scaling_factor: float = 1.0  # lambda, mtp_loss_scaling_factor
    per_token: bool = True  # calculate_per_token_loss
    cu_seqlens: Sequence[int] | None = None  # a packed row: what cu_seqlens_q holds
    cu_seqlens_padded: Sequence[int] | None = None  # where it differs: the unpadded boundaries are in cu_seqlens_q
    partition: Literal["zigzag", "contiguous"] | None = None  # packed_seq_params.cp_partition_mode, where it is set
    loss: Literal["linear", "cross_entropy", "overwriting"] = "linear"
    mask_dtype: str = "float32"
    labels_dtype: str = "int64"
    layout: Literal["contiguous", "transposed", "expanded"] = "contiguous"  # of labels and mask in memory
    head: Literal["own", "tied", "sequence_parallel"] = "own"
    logits_factor: float | None = None  # scale_logits_fn multiplies the logits by it
    config: Mapping[str, Any] = field(default_factory=dict)  # further keys of TransformerConfig
    training: bool = True  # is_training
    grad: bool = True  # without it the variant is called under no_grad
    loss_scale: float | None = None  # MTPLossAutoScaler.set_loss_scale was called with it
    microbatches: int | None = None  # so many in a step, by Megatron's schedule; None: one call and no schedule
    steps: int | None = None  # training steps, each ended by Megatron's track_mtp_metrics; None: one that is not

    @property
    def packed(self) -> bool:
        """Whether there are several sequences in one row."""
        return self.cu_seqlens is not None

    @property
    def shape(self) -> tuple[int, int]:
        """(B, S)."""
        rows = self.labels if self.labels is not None else self.input_ids
        assert rows is not None
        return len(rows), len(rows[0])


@dataclass(frozen=True)
class Observation:
    """What one call did.

    ``coefficients`` and ``labels`` are [depth][B][S], ``main_gradient`` and ``result`` [B][S]: the gradient that the
    main chunk of the hidden states got where the upstream gradient is 1, 2, 3, ... along the row, and the hidden states
    that were returned. ``labels`` is what the cross entropy was given, ``logged`` what Megatron's tracker holds.
    """

    coefficients: Sequence[Rows] = ()
    labels: Sequence[Sequence[Sequence[int]]] = ()
    logged: Sequence[float] = ()
    main_gradient: Rows = ()
    result: Rows = ()
    syncs: Sequence[str] = ()
    inputs_changed: Sequence[str] = ()
    process_changed: Sequence[str] = ()
    head_trained: bool | None = None
    acceptance: Sequence[tuple[float, float]] = ()  # (correct, total) a depth
    interval_average: Sequence[float] = ()  # what the training log shows of all ``steps``, a number a depth
    error: str = ""

    @property
    def targets(self) -> list[list[list[int]]]:
        """[depth][B][S]: the label of every position that is trained on, 0 where none is."""
        return [
            [
                [label if weight != 0 else 0 for label, weight in zip(*row, strict=True)]
                for row in zip(*rows, strict=True)
            ]
            for rows in zip(self.labels, self.coefficients, strict=False)
        ]


@dataclass(frozen=True)
class Definition:
    """One of several meanings that people give to a case: what it is called, who means it, what it makes of it."""

    name: str
    text: str
    expected: Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What became of a case. ``observed`` and ``expected`` are JSON values, ``detail`` is for people."""

    status: str
    observed: Any = None
    expected: Any = None
    detail: str = ""


@dataclass(frozen=True)
class Ranks:
    """The processes that a case runs on, and how they share the tokens."""

    data_parallel: int = 1
    context_parallel: int = 1
    split: Literal["zigzag", "contiguous"] = "zigzag"

    @property
    def count(self) -> int:
        """How many processes."""
        return self.data_parallel * self.context_parallel


@dataclass(frozen=True)
class Case:
    """A known fault of MTP losses, as something that can be run.

    ``expected`` maps attributes of :class:`Observation` to their right values; ``arithmetic`` says how those come
    about. Where people disagree on what is right there are ``definitions`` instead. ``applies`` tells why a variant
    cannot be asked this.
    """

    id: str
    title: str
    fault: str
    property: str
    inputs: Inputs
    arithmetic: str
    expected: Mapping[str, Any] = field(default_factory=dict)
    definitions: tuple[Definition, ...] = ()
    references: tuple[Reference, ...] = ()
    affected: tuple[Affected, ...] = ()
    ranks: Ranks | None = None
    tolerance: float = 1e-5
    applies: Callable[[Variant, Inputs], str | None] = supported
    judge: Callable[[Case, Observation], Outcome] | None = None  # None: mtp_bench.conformance.judging.judge
