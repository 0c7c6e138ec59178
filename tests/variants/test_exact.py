"""What ``exact`` does beside the cases of ``mtp-bench check``: targets against a loop, the order of its collective.

That it passes every case, and that without a fix the cases of that fix fail, is in ``tests/conformance``.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp_bench.patching import replaced
from mtp_bench.ranks.zigzag import zigzag_columns
from mtp_bench.variants import exact as module
from mtp_bench.variants.exact import IGNORED, exact, exact_roll
from mtp_bench.variants.whole_rows import _zigzag, find_whole_rows

CPU = torch.device("cpu")


@dataclass
class Packed:
    """The part of Megatron's ``PackedSeqParams`` that is read."""

    cu_seqlens_q: torch.Tensor
    cu_seqlens_q_padded: torch.Tensor | None = None


def bounds_of(widths, dtype=torch.int32):
    bounds = [0]
    for width in widths:
        bounds.append(bounds[-1] + width)
    return torch.tensor(bounds, dtype=dtype)


@st.composite
def rows(draw):
    """Lengths, what each is padded to, a tail that belongs to no sequence; labels, some ignored, and weights."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    padded = [length + draw(st.integers(0, 2)) for length in lengths]
    width = max(1, sum(padded) + draw(st.integers(0, 2)))
    labels = draw(st.lists(st.one_of(st.integers(1, 9), st.just(IGNORED)), min_size=width, max_size=width))
    weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=width, max_size=width))
    return lengths, padded, labels, draw(st.one_of(st.none(), st.just(weights)))


def targets_by_a_loop(lengths, padded, labels, weights, depth):
    """(label, weight) of every position, 0 where there is no target."""
    found = [(0, 0.0)] * len(labels)
    start = 0
    for length, width in zip(lengths, padded, strict=True):
        for place in range(length - depth):
            target = start + place + depth
            weight = 1.0 if weights is None else weights[target]
            if weight and labels[target] != IGNORED:
                found[start + place] = (labels[target], weight)
        start += width
    return found


@settings(max_examples=300, deadline=None)
@given(rows(), st.integers(1, 4), st.sampled_from([torch.int32, torch.int64]))
def test_targets_of_packed_sequences_are_those_of_a_loop(row, depths, dtype):
    lengths, padded, labels, weights = row
    params = Packed(bounds_of(lengths, dtype), bounds_of(padded, dtype))
    tokens = torch.tensor([labels])
    whole = find_whole_rows(len(labels), params, None, CPU)
    mask = None if weights is None else torch.tensor([weights])
    targets, counts = module._find_targets(whole, tokens, mask, depths, from_input_ids=False)
    for depth, target in enumerate(targets, 1):
        expected = targets_by_a_loop(lengths, padded, labels, weights, depth)
        weight = target.weight[0].tolist()
        found = [(label if one else 0, one) for label, one in zip(target.labels[0].tolist(), weight, strict=True)]
        assert found == expected
        assert counts._of_cp[depth].item() == sum(one for _, one in expected)
    if weights is not None:
        assert counts._of_cp[0].item() == sum(weights)
    assert tokens.tolist() == [labels]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.sampled_from([2, 3, 4]), st.integers(0, 2))
def test_a_ranks_tokens_are_where_megatron_puts_them(widths, cp_size, tail):
    """What is left over after the last sequence is shared as one more."""
    bounds = bounds_of([width * 2 * cp_size for width in widths])
    own_length = bounds[-1].item() // cp_size + 2 * tail
    if own_length == 0:
        return
    whole = [*bounds.tolist(), own_length * cp_size]
    assert _zigzag(bounds, own_length, cp_size).tolist() == zigzag_columns(whole, cp_size)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.sampled_from([2, 4]))
def test_sequences_that_ranks_cannot_share_evenly_still_have_a_place_for_every_token(widths, cp_size):
    bounds = bounds_of(widths)
    own_length = max(1, -(-bounds[-1].item() // cp_size))
    home = _zigzag(bounds, own_length, cp_size)
    assert sorted(home.flatten().tolist()) == list(range(own_length * cp_size))


def test_the_roll_for_the_mtp_block_is_a_shift_within_padded_sequences():
    params = Packed(torch.tensor([0, 3, 5]), torch.tensor([0, 4, 8]))
    tokens = torch.tensor([[1, 2, 3, 9, 4, 5, 9, 8]])
    rolled, total = exact_roll(tokens, packed_seq_params=params)
    assert (rolled.tolist(), total.item()) == ([[2, 3, 9, 0, 5, 9, 8, 0]], 36)
    rows = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert exact_roll(rows)[0].tolist() == [[2, 3, 0], [5, 6, 0]]
    assert exact_roll(None) == (None, None)


class OutputLayer(torch.nn.Module):
    def __init__(self, told):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, 1))
        self.told = told

    def forward(self, hidden_states, weight=None, runtime_gather_output=None):
        self.told.append("logits")
        return hidden_states * (self.weight if weight is None else weight), None


def call(told, **options):
    """Run ``exact`` on a row of 4 tokens and two depths; return the coefficients, [depth][position]."""
    hidden_states = torch.ones(12, 1, 1, requires_grad=True)

    def loss(labels, logits):
        told.append("loss")
        return logits[..., 0].T

    arguments = {
        "hidden_states": hidden_states,
        "labels": torch.tensor([[1, 2, 3, 4]]),
        "loss_mask": torch.ones(1, 4),
        "output_layer": OutputLayer(told),
        "output_weight": None,
        "runtime_gather_output": None,
        "is_training": False,
        "compute_language_model_loss": loss,
        "config": SimpleNamespace(mtp_num_layers=2, mtp_loss_scaling_factor=1.0, calculate_per_token_loss=True),
    }
    result = exact(**arguments | options)
    if torch.is_grad_enabled():
        result.sum().backward()
        return hidden_states.grad.view(3, 4)[1:].tolist()
    return result.tolist()


SCALED = [[pytest.approx(4 / 6)] * 3 + [0.0], [1.0, 1.0, 0.0, 0.0]]  # 1/2 * 4/3 and 1/2 * 4/2


def test_it_needs_no_process_group():
    assert not dist.is_initialized()
    told = []
    assert call(told) == SCALED
    assert told == ["logits", "loss", "logits", "loss"]


def test_without_a_process_group_it_logs_too():
    from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

    with (
        replaced(torch.cuda, "current_device", lambda: CPU),
        replaced(MTPLossLoggingHelper, "tracker", {}),
    ):
        call([], is_training=True)
        assert MTPLossLoggingHelper.tracker["values"].tolist() == [1.0, 1.0]
        assert MTPLossLoggingHelper.tracker["avg_group"] is None


def test_counts_travel_while_logits_are_computed_and_are_waited_for_after_the_first_loss():
    told = []

    class Work:
        def wait(self):
            told.append("waited")

    def all_reduce(counts, group, async_op):
        told.append(f"sent {counts.tolist()}" if async_op else "waited at once")
        counts += torch.tensor([2.0, 1.0, 0.0])  # what another rank with 2 tokens has
        return Work()

    two_ranks = SimpleNamespace(size=lambda: 2)
    with replaced(module, "_data_parallel_group", lambda: two_ranks), replaced(module.dist, "all_reduce", all_reduce):
        coefficients = call(told)
    assert told == ["sent [4.0, 3.0, 2.0]", "logits", "loss", "waited", "logits", "loss"]
    assert coefficients == [[0.75, 0.75, 0.75, 0.0], [1.5, 1.5, 0.0, 0.0]]  # 1/2 * 6/4 and 1/2 * 6/2


def test_a_data_parallel_group_of_one_sends_nothing():
    one_rank = SimpleNamespace(size=lambda: 1)
    with replaced(module, "_data_parallel_group", lambda: one_rank), replaced(module.dist, "all_reduce", None):
        assert call([]) == SCALED


def test_nothing_is_computed_where_nobody_is_told():
    told = []
    with torch.no_grad():
        assert call(told) == [[[1.0]]] * 4
    assert told == []
    assert call(told, labels=None) == [[0.0] * 4] * 2
    assert told == []


def test_labels_from_input_ids_are_those_of_tokens_that_were_shifted():
    """As in megatron-core 0.19: the mask belongs to the tokens, and is shifted with them."""
    seen = []

    def loss(labels, logits):
        seen.append(labels.tolist())
        return logits[..., 0].T

    ids = torch.tensor([[11, 12, 13, 14]])
    coefficients = call([], labels=None, input_ids=ids, compute_language_model_loss=loss)
    assert seen == [[[13, 14, 0, 0]], [[14, 0, 0, 0]]]
    assert coefficients == [[0.75, 0.75, 0.0, 0.0], [1.5, 0.0, 0.0, 0.0]]  # 3 tokens, then 2 and 1 targets
