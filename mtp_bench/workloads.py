"""Workloads: the inputs of the loss as a small set of checked keys, from a profile's TOML, ``--set`` or Python.

No torch here: the tensors are made in :mod:`mtp_bench.inputs`.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from mtp_bench import profiles
from mtp_bench.errors import InputError, did_you_mean
from mtp_bench.sequences import check_mask, check_sequences, draw_lengths, mask_of_sequence

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")

SMALL_HIDDEN_SIZE = 64
SMALL_VOCAB_SIZE = 512


@dataclass(frozen=True, eq=False)
class Layout:
    """How the tokens of a microbatch lie in its rows.

    ``cu_seqlens`` holds the boundaries with padding, ``cu_seqlens_actual`` those of the lengths alone; both are empty
    where the workload is not packed. ``loss_mask`` is float32 and ``position_ids`` int64, both [rows, row_length];
    positions restart with every sequence.
    """

    rows: int
    row_length: int
    cu_seqlens: tuple[int, ...]
    cu_seqlens_actual: tuple[int, ...]
    starts: tuple[tuple[int, int], ...]  # (row, column) of each sequence's first token
    loss_mask: np.ndarray
    position_ids: np.ndarray


@dataclass(frozen=True)
class Workload:
    """The inputs of one step. ``title``, ``source`` and ``stand_in`` are words for people, the rest is checked data.

    ``stand_in`` says which parts of scope ``step`` are not the named model's own; scope ``loss`` is exact.
    """

    name: str
    title: str = ""
    source: str = ""
    stand_in: str = ""
    sequences: tuple[int, ...] | str = (512, 512)
    packed: bool = False
    pad_to_multiple: int = 1
    cu_seqlens: str = "padded"
    mask: str | tuple[float, ...] = "full"
    mtp_num_layers: int = 1
    mtp_loss_scaling_factor: float = 0.1
    calculate_per_token_loss: bool = False
    hidden_size: int = 1024
    vocab_size: int = 32000
    num_layers: int = 2
    num_attention_heads: int = 16
    ffn_hidden_size: int = 4096
    params_dtype: str = "bf16"
    cp_size: int = 1
    num_microbatches: int = 4
    harness: str = "bare"
    position_embedding_type: str = "learned_absolute"
    seed: int = 1234

    @classmethod
    def from_dict(cls, name: str, values: Mapping[str, Any], where: str = "") -> Workload:
        """Check ``values`` key by key; InputError, with ``where`` in front, names the key at fault."""
        prefix = f"{where}: " if where else ""
        checked = {}
        for key, value in values.items():
            if key not in _CHECKS:
                raise InputError(f"{prefix}unknown key {key!r}{did_you_mean(key, _CHECKS)}")
            try:
                checked[key] = _CHECKS[key](value)
            except _BadValueError as error:
                raise InputError(f"{prefix}{key} = {_toml(value)}: {error}") from None
        workload = cls(name=name, **checked)
        problem = workload._inconsistency()
        if problem:
            raise InputError(f"{prefix}{problem}")
        return workload

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the sequences; those of ``lognormal:NxT`` are drawn from the seed."""
        return draw_lengths(self.sequences, self.seed)

    def layout(self) -> Layout:
        """Lay the sequences out in one packed row, or in rows padded to the longest.

        Context-parallel ranks hold 2 chunks each of every packed sequence, or of every row: it is padded to that too.
        """
        import numpy as np

        lengths = self.lengths
        chunks = 2 * self.cp_size if self.cp_size > 1 else 1
        if self.packed:
            multiple = math.lcm(self.pad_to_multiple, chunks)
            widths = [-(-length // multiple) * multiple for length in lengths]
            bounds = _running_sum(widths)
            rows, row_length = 1, bounds[-1]
            starts = tuple((0, start) for start in bounds[:-1])
            cu_seqlens, cu_seqlens_actual = bounds, _running_sum(lengths)
        else:
            rows, row_length = len(lengths), -(-max(lengths) // chunks) * chunks
            widths = [row_length] * rows
            starts = tuple((row, 0) for row in range(rows))
            cu_seqlens = cu_seqlens_actual = ()
        loss_mask = np.zeros((rows, row_length), dtype=np.float32)
        position_ids = np.zeros((rows, row_length), dtype=np.int64)
        token = 0
        for (row, column), length, width in zip(starts, lengths, widths, strict=True):
            weights = mask_of_sequence(self.mask, length, token)
            loss_mask[row, column : column + length] = weights
            position_ids[row, column : column + width] = np.arange(width)
            token += length
        return Layout(rows, row_length, cu_seqlens, cu_seqlens_actual, starts, loss_mask, position_ids)

    def small(self) -> Workload:
        """The workload at the size at which values are judged.

        Sequences, packing, mask, depths, normalisation, dtype and seed stay; so does the main loss. The model shrinks:
        ``hidden_size`` to at most 64, ``vocab_size`` to at most 512, with them layers and ``ffn_hidden_size``, and to
        one attention head and two microbatches: attention over thousands of tokens takes seconds a head on a CPU.
        """
        hidden_size = min(self.hidden_size, SMALL_HIDDEN_SIZE)
        return dataclasses.replace(
            self,
            hidden_size=hidden_size,
            vocab_size=min(self.vocab_size, SMALL_VOCAB_SIZE),
            num_layers=min(self.num_layers, 2),
            num_attention_heads=1,
            ffn_hidden_size=min(self.ffn_hidden_size, 4 * hidden_size),
            num_microbatches=min(self.num_microbatches, 2),
        )

    def keys(self) -> dict[str, Any]:
        """Every key but the name, such that :meth:`from_dict` makes this workload again."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "name"}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}

    def describe(self) -> dict[str, Any]:
        """``workloads.NAME`` of run.json: every key, and the lengths as drawn."""
        return {**self.keys(), "lengths": list(self.lengths)}

    def override(self, overrides: Sequence[str]) -> Workload:
        """Return this workload with ``key=value`` overrides."""
        changes = dict(_override(text) for text in overrides)
        return Workload.from_dict(self.name, {**self.keys(), **changes}, where="--set") if changes else self

    def _inconsistency(self) -> str | None:
        """What is wrong with the keys together, if anything."""
        if self.hidden_size % self.num_attention_heads:
            return f"num_attention_heads = {self.num_attention_heads} does not divide hidden_size = {self.hidden_size}"
        if not self.packed and 0 in self.lengths:
            return "sequences: a sequence of length 0 is possible with packed = true only"
        if isinstance(self.mask, tuple) and len(self.mask) != sum(self.lengths):
            return (
                f"mask: {len(self.mask)} entries for {sum(self.lengths)} tokens; give one a token, sequence by sequence"
            )
        return None


def builtin_names() -> tuple[str, ...]:
    """Names of the workload profiles shipped with mtp-bench."""
    return profiles.profile_names("workloads")


def load(name_or_path: str, overrides: Sequence[str] = ()) -> Workload:
    """Load a shipped profile or a TOML file, with ``key=value`` overrides on top."""
    path = profiles.find_profile("workloads", name_or_path)
    values = profiles.read_toml(path)
    return Workload.from_dict(path.stem, values, where=str(path)).override(overrides)


def load_all(names_or_paths: Iterable[str], overrides: Sequence[str] = ()) -> list[Workload]:
    """Load several profiles; InputError where two have the same name, since results are kept by name."""
    loaded: dict[str, Workload] = {}
    for name_or_path in names_or_paths:
        workload = load(name_or_path, overrides)
        if workload.name in loaded:
            raise InputError(
                f"--profile {name_or_path}: a second workload named {workload.name!r}; results are kept by name"
            )
        loaded[workload.name] = workload
    return list(loaded.values())


def _override(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {text!r}: expected key=value, as in --set hidden_size=4096")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()  # a word without quotes: mask=prompt:0.5


class _BadValueError(ValueError):
    """What would have been right."""


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _BadValueError(f"expected a whole number from {low} to {high}")
        return value

    return check


def _real(low: float, high: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high:
            raise _BadValueError(f"expected a number from {low:g} to {high:g}")
        return float(value)

    return check


def _one_of(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in choices:
            raise _BadValueError(f"expected {' or '.join(repr(choice) for choice in choices)}")
        return str(value)

    return check


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise _BadValueError("expected true or false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _BadValueError("expected a text in quotes")
    return value


def _described(check: Callable[[Any], T]) -> Callable[[Any], T]:
    """``check`` of :mod:`mtp_bench.sequences`, whose ValueError says what would have been right."""

    def checked(value: Any) -> T:
        try:
            return check(value)
        except ValueError as error:
            raise _BadValueError(str(error)) from None

    return checked


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "title": _text,
    "source": _text,
    "stand_in": _text,
    "sequences": _described(check_sequences),
    "packed": _flag,
    "pad_to_multiple": _whole(1, 65536),
    "cu_seqlens": _one_of("padded", "actual"),
    "mask": _described(check_mask),
    "mtp_num_layers": _whole(1, 64),
    "mtp_loss_scaling_factor": _real(0, 1e6),
    "calculate_per_token_loss": _flag,
    "hidden_size": _whole(1, 1 << 20),
    "vocab_size": _whole(2, 1 << 24),
    "num_layers": _whole(1, 1024),
    "num_attention_heads": _whole(1, 4096),
    "ffn_hidden_size": _whole(1, 1 << 24),
    "params_dtype": _one_of("fp32", "bf16"),
    "cp_size": _whole(1, 64),
    "num_microbatches": _whole(1, 4096),
    "harness": _one_of("bare", "megatron", "verl"),
    "position_embedding_type": _one_of("learned_absolute", "rope"),
    "seed": _whole(0, (1 << 63) - 1),
}


def _running_sum(widths: Iterable[int]) -> tuple[int, ...]:
    bounds = [0]
    for width in widths:
        bounds.append(bounds[-1] + width)
    return tuple(bounds)


def _toml(value: Any) -> str:
    """``value`` as a person wrote it, shortened."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
