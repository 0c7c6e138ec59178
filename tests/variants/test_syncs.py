"""How often each variant makes the host wait, and on which lines: the table of the README, on the simulated device.

B packed sequences, D depths. A packed roll reads its bounds 4 times a sequence, and a depth rolls labels and mask.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest

from tests.megatron.versions import INSTALLED, run_with
from tests.releases import release

SCRIPT = Path(__file__).with_name("sync_counts.py")
B = 3
MASKS = ("full", "prompt:0.5", "empty")
CASES = {
    (layout, depths, mask, per_token): {
        "sequences": [6, 4, 3],
        "packed": layout == "packed",
        "mtp_num_layers": depths,
        "mask": mask,
        "calculate_per_token_loss": per_token,
    }
    for layout in ("padded", "packed")
    for depths in (1, 2, 3)
    for mask in MASKS
    for per_token in (False, True)
}
# With releases that are not installed, half of them: every layout, depth and mask, and both modes with each of these.
HALF = {
    (layout, depths, mask, per_token): keys
    for (layout, depths, mask, per_token), keys in CASES.items()
    if per_token == ((depths + MASKS.index(mask)) % 2 == 0)
}
OURS = ("original", "patched", "sync_free", "host_lens", "boundary_roll", "exact")

ROLL = ("item", "megatron/core/transformer/multi_token_prediction.py")
SLICES = ("seq_slice = tensor[..., start_idx:end_idx]", "rolled_tensor[..., start_idx:end_idx] = rolled_seq")


@functools.cache
def syncs(version, verl="0.9.1"):
    environment = {"MTP_BENCH_VERL": str(release("verl", verl))}
    names = [*OURS, "megatron", "verl"] if verl == "0.9.1" else ["original", "verl"]
    cases = CASES if version == INSTALLED else HALF
    asked = [{"keys": keys, "names": names} for keys in cases.values()]
    answer = run_with(version, SCRIPT, asked, **environment)
    assert answer["version"] == version
    return dict(zip(cases, answer["cases"], strict=True))


def expected(like, layout, depths, mask, _per_token):
    rolls = 8 * B * depths if layout == "packed" and like not in ("host_lens", "boundary_roll", "exact") else 0
    guards = depths * (2 if mask == "empty" else 1) if like == "patched" else 0
    return rolls + guards


@pytest.mark.parametrize("version", ["0.16.1", "0.17.1", "0.18.2", "0.19.2"])
@pytest.mark.parametrize("name", OURS)
def test_ours_wait_as_often_as_the_table_says(name, version):
    found = {case: len(by_name[name]["syncs"]) for case, by_name in syncs(version).items()}
    assert found == {case: expected(name, *case) for case in (CASES if version == INSTALLED else HALF)}


@pytest.mark.parametrize(
    ("version", "like", "path"),
    [
        ("0.14.0", "original", "GPTModel._postprocess"),
        ("0.15.3", "original", "GPTModel._postprocess"),
        ("0.16.1", "original", "GPTModel._postprocess"),
        ("0.17.1", "patched", "process_mtp_loss"),
        ("0.18.2", "sync_free", "process_mtp_loss"),
        ("0.19.2", "sync_free", "process_mtp_loss"),
    ],
)
def test_megatrons_own_loss_waits_like_the_variant_it_corresponds_to(version, like, path):
    for case, by_name in syncs(version).items():
        found = by_name["megatron"]
        if case[0] == "packed" and version < "0.16":
            assert found == {
                "skipped": f"packed sequences need megatron-core 0.16 or later: {version} has no packed roll"
            }
        else:
            assert found["path"] == path
            assert len(found["syncs"]) == expected(like, *case)


@pytest.mark.parametrize("version", ["0.14.0", "0.15.3"])
def test_before_packed_rolls_ours_run_padded_only(version):
    for case, by_name in syncs(version).items():
        for name in OURS:
            if case[0] == "packed":
                assert set(by_name[name]) == {"skipped"}
            else:
                assert len(by_name[name]["syncs"]) == expected(name, *case)


@pytest.mark.parametrize(("name", "verl"), [("original", "0.8.0"), ("patched", "0.9.1")])
def test_verl_waits_on_the_same_lines(name, verl):
    """Megatron's lines are the same lines; a line of verl's own corresponds to one of ours."""
    for case, by_name in syncs(INSTALLED, verl).items():
        theirs = [_line(*sync) for sync in by_name["verl"]["syncs"]]
        ours = [_line(*sync) for sync in by_name[name]["syncs"]]
        assert ours == theirs
        assert len(theirs) == expected(name, *case)


def _line(kind, file, code, phase, place):
    mine = file.endswith(("verl/models/mcore/mtp_patch.py", "mtp_bench/variants/patched.py"))
    if mine:
        assert "num_tokens > 0" in code
        assert "new_tensor(0.0)" in code
        return kind, "the guard", phase, place
    return kind, file, code, phase, place


@pytest.mark.parametrize("name", ["original", "patched", "sync_free", "megatron"])
def test_the_lines_are_the_slices_of_the_packed_roll_and_the_guard(name):
    found = syncs(INSTALLED)["packed", 2, "empty", True][name]["syncs"]
    by_depth = {}
    for kind, file, code, phase, place in found:
        assert phase == "forward"
        by_depth.setdefault(place, Counter())[kind, file, code] += 1
    rolls = Counter({(*ROLL, code): 4 * B for code in SLICES})
    guard = Counter({
        (kind, "mtp_bench/variants/patched.py", code): 1
        for kind, code in [("item", GUARD), ("htod", GUARD)]
    })  # fmt: skip
    each = rolls + (guard if name == "patched" else Counter())
    assert by_depth == {"depth:1": each, "depth:2": each}


GUARD = "logged = torch.sum(depth.loss) / depth.num_tokens if depth.num_tokens > 0 else depth.loss.new_tensor(0.0)"


@pytest.mark.parametrize("version", ["0.17.1", "0.18.2", "0.19.2"])
def test_verl_runs_where_it_is_inactive_and_says_so(version):
    for case, by_name in syncs(version).items():
        assert by_name["verl"]["note"] == "inactive here: verl dispatches to megatron-core"
        assert len(by_name["verl"]["syncs"]) == expected("patched", *case)
