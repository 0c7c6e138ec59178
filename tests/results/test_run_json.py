"""run.json: written whole, read back the same, and refused in one line where it is no run."""

import json
import math
import os
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from mtp_bench.errors import InputError
from mtp_bench.results import Git, GraphCapture, Memory, Numerics, Place, Result, Run, Site, Syncs, Time, load_run
from mtp_bench.syncs import Frame, Sync
from tests import runs


@pytest.fixture
def written(tmp_path):
    return runs.modelled_run().write(tmp_path / "run")


def test_a_run_is_read_back_as_it_was_written(written):
    assert load_run(written) == load_run(written.parent) == runs.modelled_run()


NAMES = {
    "run": {"schema_version", "created_at", "command", "seed", "environment", "workloads", "results"},
    "environment": {
        "torch", "megatron_core", "verl", "python", "cpu", "cuda_env", "device", "git", "packages",
    },
    "environment.cpu": {"model", "count", "affinity"},
    "environment.device": {"kind", "name", "modelled", "driver", "cuda", "profile"},
    "environment.git": {"commit", "dirty"},
    "result": {
        "workload", "variant", "scope", "harness", "lead_ms", "device", "status", "error", "variant_info",
        "numerics", "syncs", "graph_capture", "ops", "memory", "time", "warnings",
    },
    "variant_info": {"version", "path", "note"},
    "numerics": {
        "at", "finite", "status", "logged_loss", "reference_loss", "max_rel_err_grad", "grad_scale",
        "head_gradient", "detail",
    },
    "numerics.at": {"hidden_size", "vocab_size"},
    "syncs": {"detectors", "count", "blocked_ns", "device_idle_ns", "agreed", "sites"},
    "syncs.sites[]": {
        "file", "line", "function", "code", "op", "kind", "phase", "range", "stack", "count", "blocked_ns",
        "device_idle_ns", "saves_ns", "seen_by",
    },
    "syncs.sites[].stack[]": {"file", "line", "function"},
    "graph_capture": {"possible", "site", "reason"},
    "graph_capture.site": {"file", "line", "function"},
    "memory": {"peak_bytes"},
    "time": {
        "modelled", "profiled", "step_ns", "round", "host_ns", "lead_ns", "device_idle_ns", "sm_clock_mhz",
        "throttled", "stop_reason",
    },
}  # fmt: skip


def test_the_names_that_scripts_rely_on(tmp_path):
    """A contract: a name that goes, comes or changes here is a new schema_version or a line of the changelog."""
    place = Place(file="a.py", line=3, function="f")
    full = runs.result(
        "patched",
        syncs=runs.syncs(runs.site()),
        graph_capture=GraphCapture(possible=False, site=place, reason="waits"),
        ops=300,
        memory=Memory(peak_bytes=1 << 30),
    )
    environment = runs.environment(git=Git(commit="0" * 40, dirty=False))
    run = json.loads(runs.run([full], environment=environment).write(tmp_path).read_text())
    result, environment = run["results"][0], run["environment"]
    (sync_site,) = result["syncs"]["sites"]
    found = {
        "run": run,
        "environment": environment,
        **{f"environment.{name}": environment[name] for name in ("cpu", "device", "git")},
        "result": result,
        **{name: result[name] for name in ("variant_info", "numerics", "syncs", "graph_capture", "memory", "time")},
        "numerics.at": result["numerics"]["at"],
        "syncs.sites[]": sync_site,
        "syncs.sites[].stack[]": sync_site["stack"][0],
        "graph_capture.site": result["graph_capture"]["site"],
    }
    assert {level: set(names) for level, names in found.items()} == NAMES


def test_every_name_is_there_when_its_value_is_not(tmp_path):
    """What could not be had is null, not absent: scripts need not ask."""
    bare = runs.result("mine", status="failed", numerics=None, syncs=None, graph_capture=None, time=None)
    run = json.loads(runs.run([bare]).write(tmp_path).read_text())
    result = run["results"][0]
    assert set(result) == NAMES["result"]
    assert {name for name, value in result.items() if value is None} == {
        "error", "numerics", "syncs", "graph_capture", "ops", "memory", "time",
    }  # fmt: skip
    assert run["environment"]["git"] is None
    assert run["environment"]["verl"] is None


def test_the_kinds_phases_and_states_that_scripts_rely_on():
    def values(model, name):
        return set(get_args(model.model_fields[name].annotation))

    assert values(Site, "kind") == {
        "item", "dtoh", "htod", "htod_pageable_async", "dynamic_shape", "data_dependent", "stream_sync",
        "event_sync", "device_sync",
    }  # fmt: skip
    assert values(Site, "phase") == {"forward", "backward", "finalize", "optimizer"}
    assert values(Result, "status") == {"ok", "failed", "skipped"}
    assert values(Result, "scope") == {"loss", "step", "job"}
    assert values(Numerics, "status") == {"equal", "close", "differs", "nan"}


def test_numbers_that_are_not_finite_are_texts_in_json_and_numbers_in_python(tmp_path):
    nan = runs.numerics("nan", logged_loss=[math.nan], max_rel_err_grad=math.inf, grad_scale=-math.inf)
    path = runs.run([runs.result("original", numerics=nan)]).write(tmp_path)
    kept = json.loads(path.read_text(), parse_constant=pytest.fail)["results"][0]["numerics"]
    assert (kept["logged_loss"], kept["max_rel_err_grad"], kept["grad_scale"]) == (["nan"], "inf", "-inf")
    back = load_run(path).results[0].numerics
    assert math.isnan(back.logged_loss[0])
    assert (back.max_rel_err_grad, back.grad_scale) == (math.inf, -math.inf)


def test_writing_replaces_the_file_in_one_step_and_leaves_nothing_beside_it(written):
    before = written.stat().st_ino
    runs.run().write(written.parent)
    assert written.stat().st_ino != before
    assert os.listdir(written.parent) == ["run.json"]


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write to .*file: .*; choose another folder with --out"):
        runs.run().write(tmp_path / "file")
    with pytest.raises(InputError, match=r"cannot write to /proc/none: .*; choose another folder with --out"):
        runs.run().write(Path("/proc/none"))


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 0.999])
def test_a_file_that_is_cut_off_is_said_so(written, share):
    text = written.read_text().rstrip()
    written.write_text(text[: int(len(text) * share)])
    with pytest.raises(InputError, match=r"run\.json:\d+: (cut off: the file ends in the middle|not JSON)") as error:
        load_run(written)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"run\.json:1: not JSON"),
        ("schema: 1", r"run\.json:1: not JSON"),
        ("[]", "not a run of mtp-bench: it has no schema_version"),
        ("{}", "not a run of mtp-bench: it has no schema_version"),
        ('{"schema_version": "1"}', "not a run of mtp-bench: it has no schema_version"),
        ('{"schema_version": 2}', r"written by a newer mtp-bench \(schema_version 2, this one reads up to 1\)"),
        ('{"schema_version": 1}', "created_at: Field required"),
        ('{"schema_version": 0}', "schema_version: "),
    ],
)
def test_a_file_that_is_no_run_is_said_so(tmp_path, text, message):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=message):
        load_run(tmp_path)


def test_binary_and_missing_files_are_said_so(tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not JSON: not a text file"):
        load_run(tmp_path)
    with pytest.raises(InputError, match=r"no such run; give a run\.json or the folder that holds one"):
        load_run(tmp_path / "none")


def test_a_wrong_value_is_named_with_its_place(written):
    top = json.loads(written.read_text())
    top["results"][3]["status"] = "fine"
    written.write_text(json.dumps(top))
    with pytest.raises(
        InputError, match=r"run\.json: results\[3\]\.status: Input should be 'ok', 'failed' or 'skipped'"
    ):
        load_run(written)


def test_a_key_that_the_schema_does_not_know_is_refused(written):
    top = json.loads(written.read_text())
    top["results"][0]["time"]["step_us"] = [1.0]
    written.write_text(json.dumps(top))
    with pytest.raises(InputError, match=r"results\[0\]\.time\.step_us: Extra inputs are not permitted"):
        load_run(written)


def test_the_arrays_of_time_have_one_length():
    with pytest.raises(ValueError, match="round has 3 entries and step_ns 2"):
        runs.time(1.0, 2.0, round=[0, 1, 2])


def test_syncs_are_summed_by_site_and_phase():
    frame = Frame("a.py", 3, "f", "/x/a.py")
    seen = [
        Sync("item", "aten::item", (frame,), "forward", ("step", "forward"), blocked_ns=5, device_idle_ns=None),
        Sync("item", "aten::item", (frame,), "forward", ("step", "forward"), blocked_ns=7, device_idle_ns=None),
        Sync("item", "aten::item", (frame,), "backward", ("step", "backward")),
    ]
    found = Syncs.of(seen, {"sim": 3, "torch": 2})
    assert (found.count, found.blocked_ns, found.device_idle_ns, found.agreed) == (3, 12, None, False)
    assert [(site.phase, site.count, site.blocked_ns) for site in found.sites] == [
        ("forward", 2, 12),
        ("backward", 1, None),
    ]


def test_the_frame_has_a_row_a_sample_and_one_for_a_result_without_times():
    failed = runs.result("mine", status="failed", error="ValueError: no", time=None, syncs=None, numerics=None)
    frame = runs.run([runs.result("original", time=runs.time(1.0, 2.0)), failed]).to_frame()
    assert list(frame.variant) == ["original", "original", "mine"]
    assert list(frame["sample"][:2]) == [0, 1]
    assert frame["sample"].isna().tolist() == [False, False, True]
    assert list(frame.step_ns[:2]) == [1000.0, 2000.0]
    assert list(frame.status) == ["ok", "ok", "failed"]
    assert (
        frame.groupby(["workload", "variant", "scope", "lead_ms"]).step_ns.median()[
            "packed-sft", "original", "loss", 1.0
        ]
        == 1500
    )


def test_the_frame_of_an_empty_run_is_empty():
    frame = runs.run().to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 0


def test_times_need_a_sample():
    with pytest.raises(ValueError, match="step_ns"):
        Time(modelled=True, step_ns=[], round=[], host_ns=[], lead_ns=[], sm_clock_mhz=[], throttled=[])


def test_a_run_of_another_schema_cannot_be_made():
    with pytest.raises(ValueError, match="schema_version"):
        Run(schema_version=2, created_at="", command="", seed=0, environment=runs.environment(), workloads={})


def test_the_frame_of_a_rank_of_a_job_names_it_its_gradients_and_the_time_of_the_loss():
    results = [runs.job_result("patched", 5.0, 6.0), runs.job_result("mine", 4.0, gradients=runs.gradients("close"))]
    frame = runs.job_run(results, rank=3, world_size=4).to_frame()
    assert list(frame["rank"]) == [3, 3, 3]
    assert list(frame.gradients) == ["equal", "equal", "close"]
    assert list(frame.loss_ns) == [700_000.0] * 3
    assert list(frame.lead_ns) == [900_000.0] * 3
    assert runs.job_run([], rank=3, world_size=4, workloads={}).to_frame().columns[0] == "rank"


def test_a_number_of_ranks_that_no_job_has_is_refused(tmp_path):
    found = runs.job_run([], workloads={}).model_dump(mode="json")
    (tmp_path / "run.json").write_text(json.dumps({**found, "job": {**found["job"], "world_size": 10**9}}))
    with pytest.raises(InputError, match=r"run\.json: job\.world_size: Input should be less than or equal to 1000000"):
        load_run(tmp_path)


def test_the_frame_of_another_run_has_no_columns_of_jobs():
    assert {"rank", "gradients", "loss_ns"}.isdisjoint(runs.modelled_run().to_frame().columns)
