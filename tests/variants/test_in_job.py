"""Inside a job, our variants give the gradients of Megatron's own MTP loss bit for bit, head included, and its logs."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from tests.torchrun import torchrun

SCRIPT = Path(__file__).with_name("in_job.py")
RANKS = 2
PADDED = {"variants": ["patched", "sync_free", "boundary_roll"]}
PACKED = {"variants": [*PADDED["variants"], "host_lens"], "packed": True}
MEAN = {
    "padded": PADDED,
    "bf16": PADDED | {"bf16": True},
    "packed": PACKED,
    "tied embeddings": PADDED | {"tied": True},
    "tensor and sequence parallel": PADDED | {"tp": 2},
    "context parallel": PACKED | {"cp": 2},
}
PER_TOKEN = {f"{name}, per token": case | {"per_token": True} for name, case in MEAN.items()}
SCALED = {"scaled logits": PADDED | {"options": {"use_mup": True, "mup_base_hidden_size": 4}}}
DETACHED = {
    "detached heads": PADDED | {"options": {"mtp_detach_heads": True}},
    "detached tied heads": PADDED | {"tied": True, "options": {"mtp_detach_heads": True}},
}
# Up to 0.16 Megatron does not rescale losses that are summed; ours do.
CASES = {"0.16.1": MEAN, "0.17.1": MEAN | PER_TOKEN | SCALED, "0.19.2": MEAN | PER_TOKEN | SCALED | DETACHED}
ASKED = [(version, case) for version, cases in CASES.items() for case in cases]


@functools.cache
def ranks(version):
    answer = torchrun(RANKS, SCRIPT, json.dumps(list(CASES[version].values())), version=version)
    found = json.loads(answer.splitlines()[-1])
    assert [rank["version"] for rank in found] == [version] * RANKS
    return [dict(zip(CASES[version], rank["cases"], strict=True)) for rank in found]


@pytest.mark.parametrize(("version", "case"), ASKED)
def test_gradients_and_logs_are_those_of_megatrons_own_loss(version, case):
    for rank in ranks(version):
        assert {name: rank[case][name] for name in CASES[version][case]["variants"]} == {
            name: [] for name in CASES[version][case]["variants"]
        }


@pytest.mark.parametrize(("version", "case"), ASKED)
def test_without_it_the_head_is_not_trained_and_nothing_is_counted_as_accepted(version, case):
    """What shows that ours ran at all, and that the comparison sees a difference in the head alone."""
    head = "embedding.word_embeddings.weight" if "tied" in case else "output_layer.weight"
    for rank in ranks(version):
        gradients = [what for what in rank[case]["with the head detached"] if not what.startswith("logged")]
        logs = [what for what in rank[case]["with the head detached"] if what.startswith("logged")]
        assert gradients == ([] if "detached" in case else [head])
        assert len(logs) == (1 if version == "0.19.2" else 0)
        assert rank[case]["logged"].keys() == (
            {"loss_values", "correct_values", "total_values"} if version == "0.19.2" else {"values"}
        )


def test_the_counts_of_accepted_tokens_are_of_this_ranks_trained_tokens():
    (first, second) = (rank["context parallel"]["logged"] for rank in ranks("0.19.2"))
    assert (first["total_values"], second["total_values"]) == ([10.0, 8.0], [9.0, 8.0])
    assert sum(first["correct_values"] + second["correct_values"]) > 0
