"""The range path and phase that syncs are filed under, and the same ranges as Nsight Systems sees them."""

from __future__ import annotations

import io
import itertools
import json
import sys
import threading
import types

import pytest

from mtp_bench import ranges, variants, worker
from mtp_bench.devices.sim import SimDevice
from mtp_bench.job import Job, send
from mtp_bench.megatron import isolated_state
from mtp_bench.scopes import open_bench
from tests.variants.recording import workload


def test_ranges_nest_and_close():
    with ranges.open_range("run"), ranges.open_range("workload:w"):
        assert ranges.path() == ("run", "workload:w")
    assert ranges.path() == ()


def test_the_phase_is_the_innermost_one_and_forward_outside_all():
    assert ranges.phase() == "forward"
    with ranges.open_range("step"), ranges.open_range("backward"), ranges.open_range("mtp_loss"):
        assert ranges.phase() == "backward"


def test_other_threads_see_the_same_path():
    seen: list[tuple[str, ...]] = []
    with ranges.open_range("backward"):
        thread = threading.Thread(target=lambda: seen.append(ranges.path()))
        thread.start()
        thread.join()
    assert seen == [("backward",)]


def test_an_exception_closes_what_was_open():
    with pytest.raises(KeyError), ranges.open_range("step"):
        raise KeyError
    assert ranges.path() == ()


class FakeNvtx(types.ModuleType):
    """The four functions of the package nvtx, which note how they are called."""

    def __init__(self):
        super().__init__("nvtx")
        self.calls = []

    def push_range(self, message, domain):
        self.calls.append(("push", message, domain))

    def pop_range(self, domain):
        self.calls.append(("pop", domain))

    def start_range(self, message, domain):
        self.calls.append(("start", message, domain))
        return message, domain

    def end_range(self, range_id):
        self.calls.append(("end", *range_id))


@pytest.fixture
def nvtx(monkeypatch):
    fake = FakeNvtx()
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    ranges._nvtx.cache_clear()
    yield fake
    ranges._nvtx.cache_clear()


def test_marks_are_put_on_the_timeline_where_nsight_systems_watches(nvtx, monkeypatch):
    nvtx.mark = lambda text, domain: nvtx.calls.append(("mark", text, domain))
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    ranges.mark("stage: values")
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "105378")
    ranges.mark("stage: syncs")
    assert nvtx.calls == [("mark", "stage: syncs", "mtp_bench")]


@pytest.fixture
def sim():
    device = SimDevice.from_spec("h100")
    with device.session(), isolated_state(device):
        yield device


def nested(text, *inside):
    return [("push", text, "mtp_bench"), *itertools.chain(*inside), ("pop", "mtp_bench")]


def crossing_threads(text, *inside):
    return [("start", text, "mtp_bench"), *itertools.chain(*inside), ("end", text, "mtp_bench")]


def test_the_steps_of_a_training_script(nvtx):
    """Each call is a step, some calls are within one range to capture; what is passed, returned and raised stays."""

    def train_step(batch, *, scale):
        nvtx.calls.append(batch)
        return 1 / batch * scale

    step = ranges.steps(train_step, first=1, count=2)
    assert (step.__name__, [step(batch, scale=2) for batch in (4, 2)]) == ("train_step", [0.5, 1.0])
    with pytest.raises(ZeroDivisionError):
        step(0, scale=2)
    step(1, scale=2)
    assert nvtx.calls == [
        *crossing_threads("step", [4]),
        *crossing_threads("run", crossing_threads("step", [2]), crossing_threads("step", [0])),
        *crossing_threads("step", [1]),
    ]
    assert ranges.path() == ()


def test_without_nvtx_a_training_script_runs_and_hears_of_it_under_nsight_systems(monkeypatch):
    monkeypatch.setattr(ranges, "_nvtx", lambda: None)
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    assert ranges.steps(lambda: 7, first=0)() == 7
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "105378")
    with pytest.warns(UserWarning, match="nvtx is not installed: no range reaches Nsight Systems"):
        assert ranges.steps(lambda: 7, first=0)() == 7


MTP_LOSS = nested("mtp_loss", nested("depth:1"), nested("depth:2"))
EXPECTED = {
    "loss": crossing_threads("step", nested("forward", MTP_LOSS), crossing_threads("backward")),
    "step": crossing_threads(
        "step", *[nested("forward", MTP_LOSS), crossing_threads("backward")] * 3, nested("finalize")
    ),
}


@pytest.mark.parametrize("scope", ["loss", "step"])
@pytest.mark.parametrize("name", ["patched", "megatron"])
def test_the_nvtx_ranges_of_a_step(scope, name, sim, nvtx):
    """Backward runs on other threads on CUDA, so it and what holds it are start/end ranges; the others nest."""
    tiny = workload(mtp_num_layers=2, num_layers=1, num_microbatches=3)
    step = open_bench(scope, tiny, sim).step(variants.load(name))
    assert nvtx.calls == []
    step()
    assert nvtx.calls == EXPECTED[scope]


@pytest.mark.parametrize("scope", ["loss", "step"])
def test_the_nvtx_ranges_of_a_run(scope, nvtx):
    job = Job(
        workloads={"w": workload(num_layers=1).keys()},
        variants={"w": ["original", "patched"]},
        scope=scope,
        leads_ms=[0.0],
        values="shape",
        detectors=["sim"],
        seed=0,
        max_seconds=0.0,
    )
    messages, told = io.StringIO(), io.StringIO()
    send(messages, {"device": "sim"})
    send(messages, job.as_message())
    messages.seek(0)
    worker.serve(messages, told)
    told = [json.loads(line) for line in told.getvalue().splitlines()]
    assert [message["event"] for message in told if message["event"] in {"failed", "ended"}] == []
    assert told[-1] == {"event": "done"}
    in_step = {"step", "step/forward", "step/forward/mtp_loss", "step/forward/mtp_loss/depth:1", "step/backward"}
    if scope == "step":
        in_step.add("step/finalize")
    in_run = {f"run/workload:w/variant:{name}" for name in ("original", "patched")}
    expected = {f"{outer}/{inner}" for outer in in_run for inner in in_step}
    assert set(paths(nvtx.calls)) == {"run", "run/workload:w"} | in_run | expected


def paths(calls):
    """Every range with those that hold it, outermost first; each must close before its holder does."""
    open_ranges = []
    for call, *rest in calls:
        if call in {"push", "start"}:
            text, domain = rest
            assert domain == "mtp_bench"
            open_ranges.append((call, text))
            yield "/".join(text for _, text in open_ranges)
        else:
            opened_by, text = open_ranges.pop()
            assert (call, opened_by) in {("pop", "push"), ("end", "start")}
            assert rest == (["mtp_bench"] if call == "pop" else [text, "mtp_bench"])
    assert open_ranges == []


def test_without_the_package_nvtx_ranges_still_have_paths(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    ranges._nvtx.cache_clear()
    with ranges.open_range("step"), ranges.open_range("forward"):
        assert ranges.path() == ("step", "forward")
    ranges._nvtx.cache_clear()


def test_the_package_nvtx_takes_these_calls(monkeypatch):
    import nvtx

    called = []

    def noting(real):
        def note(*args, **kwargs):
            called.append(real.__name__)
            return real(*args, **kwargs)

        return note

    for name in ("push_range", "pop_range", "start_range", "end_range"):
        monkeypatch.setattr(nvtx, name, noting(getattr(nvtx, name)))
    ranges._nvtx.cache_clear()
    with ranges.open_range("step"), ranges.open_range("forward"), ranges.open_range("backward"):
        pass
    assert called == ["start_range", "push_range", "start_range", "end_range", "pop_range", "end_range"]
