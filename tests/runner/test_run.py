"""A run from Python on the simulated device: what is found, and what of it survives a variant that breaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import mtp_bench
from mtp_bench.errors import InputError
from mtp_bench.results import Result, Run, load_run
from mtp_bench.workloads import Workload

HERE = Path(__file__).parent


def workload(name: str = "w", **keys: Any) -> Workload:
    small = {
        "sequences": [5, 1, 3],
        "packed": True,
        "mask": "full",
        "hidden_size": 16,
        "num_attention_heads": 2,
        "vocab_size": 32,
        "params_dtype": "fp32",
        "calculate_per_token_loss": True,
    }
    return Workload.from_dict(name, {**small, **keys})


def run(*variants: str, profiles: list[Workload] | None = None, **options: Any) -> Run:
    return mtp_bench.run(profiles or [workload()], variants, device="sim", **options)


def by_variant(found: Run) -> dict[str, Result]:
    return {result.variant: result for result in found.results}


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def test_values_syncs_and_a_modelled_time_of_every_built_in_variant():
    found = by_variant(run("original", "patched", "sync_free", "host_lens", "boundary_roll", "megatron", leads_ms=[1]))
    assert {name: result.status for name, result in found.items()} == dict.fromkeys(found, "ok")
    assert {name: result.syncs.count for name, result in found.items()} == {
        "original": 24,
        "patched": 25,
        "sync_free": 24,
        "host_lens": 0,
        "boundary_roll": 0,
        "megatron": 24,
    }
    # 9 tokens, of which the last of each of 3 sequences has no target at depth 1: original weighs the rest 6/9.
    assert found["original"].numerics.grad_scale == pytest.approx(6 / 9)
    assert {name: result.numerics.status for name, result in found.items()} == {
        **dict.fromkeys(found, "close"),
        "original": "differs",
        "megatron": "differs",
    }
    assert {result.numerics.head_gradient for name, result in found.items() if name != "megatron"} == {"detached"}
    assert found["megatron"].numerics.head_gradient == "trained"
    assert all(result.time.modelled and len(result.time.step_ns) == 1 for result in found.values())
    assert {name: result.graph_capture.possible for name, result in found.items()} == {
        name: result.syncs.count == 0 for name, result in found.items()
    }


def test_every_lead_is_a_result_and_a_longer_lead_is_more_to_lose():
    found = run("patched", "boundary_roll", leads_ms=[0, 1, 10])
    assert [(result.variant, result.lead_ms) for result in found.results] == [
        (variant, lead) for variant in ("patched", "boundary_roll") for lead in (0, 1, 10)
    ]
    patched = [result for result in found.results if result.variant == "patched"]
    assert patched[2].syncs.blocked_ns > patched[1].syncs.blocked_ns > patched[0].syncs.blocked_ns
    assert patched[2].syncs.blocked_ns > 9e6


def test_a_users_function_is_run_with_the_arguments_it_names():
    found = by_variant(
        run("user_variants:right", "user_variants:reads", "user_variants:few_arguments", "sync_free", leads_ms=[0])
    )
    assert found["user_variants:right"].numerics.status == "close"
    assert found["user_variants:reads"].syncs.count == found["sync_free"].syncs.count + 1
    site = found["user_variants:reads"].syncs.sites[0]
    assert (site.file, site.function, site.code, site.kind) == (
        "user_variants.py",
        "reads",
        "if loss_mask.sum() < 0:",
        "item",
    )
    assert site.range[-2:] == ["mtp_loss", "depth:1"]
    # no MTP loss at all: nothing logged, no gradient in the MTP chunks
    assert found["user_variants:few_arguments"].numerics.status == "differs"
    assert found["user_variants:few_arguments"].numerics.grad_scale == 0.0
    assert found["user_variants:few_arguments"].numerics.detail == (
        "the MTP gradient is 0 times what it should be; no loss was logged"
    )


def test_a_variant_that_breaks_is_its_own_result_and_the_others_go_on():
    found = by_variant(
        run(
            "user_variants:raises",
            "user_variants:whole",
            "user_variants:aborts",
            "user_variants:nothing",
            "sync_free",
            leads_ms=[0],
        )
    )
    status = {name.removeprefix("user_variants:"): result.status for name, result in found.items()}
    assert status == {"raises": "failed", "whole": "failed", "aborts": "failed", "nothing": "failed", "sync_free": "ok"}
    raised = found["user_variants:raises"].error
    assert raised is not None
    assert raised.startswith("RuntimeError: no such head: lm_head at user_variants.py:")
    assert found["user_variants:whole"].error.startswith(
        "VariantError: user_variants:whole returned a tensor of shape [18, 1, 16]; "
        "expected shape [9, 1, 16], the first of 2 chunks of hidden_states"
    )
    assert "returned NoneType" in found["user_variants:nothing"].error
    aborted = found["user_variants:aborts"].error
    assert "SIGABRT" in aborted
    assert "terminate called after throwing" in aborted


def test_a_variant_that_writes_into_its_inputs_is_wrong_and_the_others_do_not_notice():
    alone = by_variant(run("patched", leads_ms=[0]))["patched"]
    found = by_variant(run("user_variants:writes", "patched", leads_ms=[0]))
    assert found["patched"].numerics == alone.numerics
    assert found["patched"].syncs == alone.syncs
    writes = found["user_variants:writes"].numerics
    assert writes.status == "differs"
    assert writes.detail == (
        "the gradient is off by up to 1 of its largest entry; it changes its caller's labels, loss_mask"
    )  # the main loss comes after it, and has lost its targets


@pytest.mark.parametrize(
    ("guilty", "detail"),
    [
        ("triples_lambda", "the MTP gradient is 3 times what it should be; it changes its caller's config"),
        ("doubles_head", "it changes its caller's output_weight"),
        ("turns_grad_off", None),
        ("forks", None),
    ],
)
def test_what_a_variant_does_to_the_process_and_to_what_it_is_given_stays_its_own(guilty: str, detail: str | None):
    alone = by_variant(run("patched", "boundary_roll", leads_ms=[0]))
    found = by_variant(run(f"user_variants:{guilty}", "patched", "boundary_roll", leads_ms=[0]))
    for name, result in alone.items():
        assert found[name].model_dump(exclude={"time"}) == result.model_dump(exclude={"time"})
        assert found[name].time.step_ns == result.time.step_ns
    if detail is not None:
        assert found[f"user_variants:{guilty}"].numerics.detail.endswith(detail)


def test_a_variant_that_patches_megatron_while_it_runs_is_told_and_undone():
    found = by_variant(run("user_variants:replaces_roll", "sync_free", leads_ms=[0]))
    patched = "megatron.core.transformer.multi_token_prediction.roll_tensor"
    assert found["user_variants:replaces_roll"].syncs.count == 0
    assert found["user_variants:replaces_roll"].warnings == [
        f"user_variants:replaces_roll replaced {patched}; put back after it"
    ]
    assert (found["sync_free"].syncs.count, found["sync_free"].warnings) == (24, [])


def test_a_module_that_patches_megatron_on_import_is_named_in_every_result(tmp_path: Path, monkeypatch):
    (tmp_path / "patches_megatron.py").write_text(
        "from megatron.core.transformer import multi_token_prediction\n"
        "from mtp_bench.variants.boundary_roll import packed_roll\n"
        "from mtp_bench.variants.sync_free import sync_free as fn\n"
        "multi_token_prediction.roll_tensor = packed_roll\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = run("patches_megatron:fn", "sync_free", leads_ms=[0])
    (warning,) = {warning for result in found.results for warning in result.warnings}
    assert warning == (
        "importing patches_megatron:fn replaced megatron.core.transformer.multi_token_prediction.roll_tensor "
        "for every variant of this run"
    )


def test_standard_input_is_empty_exits_are_failures_and_dtypes_are_checked():
    found = by_variant(
        run(
            "user_variants:reads_stdin",
            "user_variants:exits",
            "user_variants:double_precision",
            leads_ms=[0],
        )
    )
    errors = {name.removeprefix("user_variants:"): result.error for name, result in found.items()}
    assert errors["reads_stdin"].startswith("EOFError: EOF when reading a line at user_variants.py:")
    assert errors["exits"].startswith("SystemExit: 3 at user_variants.py:")
    assert errors["double_precision"] == (
        "VariantError: user_variants:double_precision returned a tensor of dtype torch.float64; expected torch.float32"
    )


def test_no_process_outlives_a_run_that_is_killed(tmp_path: Path):
    (tmp_path / "sleeper.py").write_text(
        "import os, pathlib, subprocess, time\n"
        "def fn(**_):\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        f"    path = pathlib.Path({str(tmp_path / 'pids')!r})\n"
        "    path.with_suffix('.new').write_text(f'{os.getpid()} {child.pid}')\n"
        "    path.with_suffix('.new').rename(path)\n"
        "    time.sleep(600)\n"
    )
    program = (
        "import mtp_bench; from test_run import workload; "
        "mtp_bench.run([workload()], ['sleeper:fn'], device='sim', leads_ms=[0])"
    )
    path = os.pathsep.join([str(HERE), str(tmp_path), str(HERE.parents[1])])
    for number in (signal.SIGINT, signal.SIGKILL):
        parent = subprocess.Popen(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL
        )
        wait_for((tmp_path / "pids").exists)
        worker, child = map(int, (tmp_path / "pids").read_text().split())
        (tmp_path / "pids").unlink()
        parent.send_signal(number)
        parent.wait(timeout=30)
        wait_for(lambda pid=worker: not is_alive(pid))
        if number == signal.SIGINT:  # of a parent that is killed outright, only the worker can be told
            wait_for(lambda pid=child: not is_alive(pid))
        else:
            os.kill(child, signal.SIGKILL)


def wait_for(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"profiles": "padded-sft"}, "expected a list of names"),
        ({"variants": "patched"}, "expected a list of names"),
        ({"variants": []}, "expected a list of names"),
        ({"leads_ms": "0,1"}, "expected a list of milliseconds"),
        ({"seed": "1"}, "--seed '1': expected a whole number"),
        ({"trace": "/proc/no/trace.json"}, "--trace"),
    ],
)
def test_what_python_passes_wrongly_is_named(arguments: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        mtp_bench.run(**{"profiles": [workload()], "variants": ["patched"], "device": "sim", **arguments})


def test_a_result_that_no_gradient_flows_through_says_so():
    failed = by_variant(run("user_variants:detaches", leads_ms=[0]))["user_variants:detaches"]
    assert failed.error == (
        "VariantError: user_variants:detaches returned a tensor that no gradient flows through; "
        "return hidden states as they are"
    )


def test_a_variant_that_kills_the_process_when_it_is_imported_is_its_own_result(tmp_path: Path, monkeypatch):
    (tmp_path / "dies_on_import.py").write_text("import os\nos.abort()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = by_variant(run("dies_on_import:fn", "boundary_roll", leads_ms=[0]))
    assert {name: result.status for name, result in found.items()} == {
        "dies_on_import:fn": "failed",
        "boundary_roll": "ok",
    }
    assert found["dies_on_import:fn"].error.startswith("during import: killed by SIGABRT")


def test_a_run_that_cannot_start_leaves_what_its_folder_held(tmp_path: Path):
    before = run("patched", leads_ms=[0], out=tmp_path)
    with pytest.raises(InputError, match="no_such_module"):
        run("no_such_module:fn", out=tmp_path)
    assert load_run(tmp_path) == before


def test_the_recorded_seed_makes_the_same_run_again():
    first = run("patched", leads_ms=[0])
    again = run("patched", leads_ms=[0], seed=first.seed)
    other = run("patched", leads_ms=[0], seed=first.seed + 1)
    assert again.results == first.results
    assert other.workloads["w"]["seed"] == first.seed + 1
    assert other.results[0].numerics.logged_loss != first.results[0].numerics.logged_loss


def test_a_variant_that_cannot_be_loaded_is_an_input_error():
    with pytest.raises(InputError, match="no_such_module"):
        run("no_such_module:fn")
    with pytest.raises(InputError, match="did you mean 'patched'"):
        run("pathced")


def test_packed_syncs_are_eight_a_sequence_a_depth_and_the_guard_one_or_two_a_depth():
    profiles = [
        workload("packed", mtp_num_layers=2),
        workload("packed-empty", mtp_num_layers=2, mask="empty"),
        workload("padded", mtp_num_layers=2, packed=False),
        workload("padded-empty", mtp_num_layers=2, packed=False, mask="empty"),
    ]
    found = run("original", "patched", "sync_free", profiles=profiles, leads_ms=[0])
    counts = {(result.workload, result.variant): result.syncs.count for result in found.results}
    assert counts == {
        ("packed", "original"): 8 * 3 * 2,
        ("packed", "patched"): 8 * 3 * 2 + 2,
        ("packed", "sync_free"): 8 * 3 * 2,
        ("packed-empty", "original"): 8 * 3 * 2,
        ("packed-empty", "patched"): 8 * 3 * 2 + 4,
        ("packed-empty", "sync_free"): 8 * 3 * 2,
        ("padded", "original"): 0,
        ("padded", "patched"): 2,
        ("padded", "sync_free"): 0,
        ("padded-empty", "original"): 0,
        ("padded-empty", "patched"): 4,
        ("padded-empty", "sync_free"): 0,
    }
    empty = {r.variant: r.numerics for r in found.results if r.workload == "padded-empty"}
    assert (empty["original"].status, empty["patched"].status, empty["sync_free"].status) == ("nan", "equal", "equal")


def test_two_runs_with_one_seed_write_the_same_but_for_the_date(tmp_path: Path):
    def once(folder: str) -> dict[str, Any]:
        run("patched", "boundary_roll", out=tmp_path / folder)
        values = json.loads((tmp_path / folder / "run.json").read_text())
        del values["created_at"]
        return values

    assert once("a") == once("b")


def test_what_is_written_is_what_is_returned(tmp_path: Path):
    found = run("patched", leads_ms=[0], out=tmp_path)
    assert load_run(tmp_path) == found
    assert list(found.to_frame()["variant"]) == ["patched"]


def test_an_output_folder_that_cannot_be_written_is_found_before_anything_is_measured(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        run("patched", out=tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scope": "lost"}, "--scope 'lost'"),
        ({"values": "some"}, "--values 'some'"),
        ({"leads_ms": [-1]}, "--lead -1"),
        ({"leads_ms": [1, 1]}, "each once"),
        ({"detectors": ["kineto"]}, "--detectors kineto"),
        ({"profiles": []}, "one or more"),
    ],
)
def test_choices_that_do_not_exist_are_named(options: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        mtp_bench.run(**{"profiles": [workload()], "variants": ["patched"], "device": "sim", **options})


def test_interrupting_keeps_what_is_done_and_leaves_no_worker(tmp_path: Path):
    program = textwrap.dedent(f"""
        import mtp_bench
        from test_run import workload
        mtp_bench.run([workload()], ["boundary_roll", "slow_variant:fn"], device="sim", out={str(tmp_path)!r})
    """)
    (tmp_path / "slow_variant.py").write_text(
        "import os, pathlib, time\n"
        "def fn(**_):\n"
        f"    pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "    time.sleep(600)\n"
    )
    path = os.pathsep.join([str(HERE), str(tmp_path), str(HERE.parents[1])])
    child = subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
    kept = load_run(tmp_path)
    assert [(result.variant, result.status) for result in kept.results] == [("boundary_roll", "ok")] * 3
    worker = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
