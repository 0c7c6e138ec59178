"""What a real GPU must show: `make gpu-check`, or `python -m tests.gpu.check` in an environment that has a GPU.

Needs nothing but torch; what needs more is skipped by name. Prints one table and exits with 1 where a check failed.
Without a GPU it says so and exits with 0. On tools/hostcuda it runs too, but for what only a GPU can show: values.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import traceback
import warnings

import torch

from tests.gpu.expressions import EXPRESSIONS

PROFILES = ("padded-sft", "packed-sft", "empty-shard")
VARIANTS = ("original", "patched", "sync_free", "host_lens", "boundary_roll", "megatron")
STEP_VARIANTS = ("patched", "boundary_roll", "megatron")
SMALL = ("hidden_size=256", "vocab_size=2048")
SMALL_STEP = (*SMALL, "ffn_hidden_size=512", "num_attention_heads=4", "num_layers=2", "num_microbatches=2")
RUN_NEEDS = ("megatron.core", "numpy", "pydantic")
LEAD_MS = 1.0


class SkipCheck(Exception):
    """The check cannot be made here; the message says what is missing."""


def need(*packages):
    """Skip the check unless all of ``packages`` are installed."""
    missing = [name for name in packages if not installed(name)]
    if missing:
        raise SkipCheck(f"not installed: {', '.join(missing)}")


def installed(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the parent of a dotted name
        return False


@functools.cache
def device():
    from mtp_bench.devices import resolve

    return resolve("cuda")


def on_hostcuda():
    return torch.cuda.get_device_name() == "hostcuda (no GPU)"


def the_gpu():
    """The GPU and its software."""
    found = device().describe()
    assert found["kind"] == "cuda"
    assert found["cuda"] == torch.version.cuda
    return f"{found['name']}, driver {found['driver']}, CUDA {found['cuda']}, torch {torch.__version__}"


def clocks():
    """NVML tells the SM clock between windows."""
    if on_hostcuda():
        raise SkipCheck("hostcuda has no NVML")
    need("pynvml")
    window = device().time_window(lambda: torch.ones(4, device="cuda").add_(1), steps=8)
    assert window.sm_clock_mhz, "no clock"
    assert 100 < window.sm_clock_mhz < 10_000
    return f"{window.sm_clock_mhz} MHz, throttled: {window.throttled}"


def time_of_a_step():
    """A step takes what events around many of them say, and enqueuing it takes less."""
    a = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def step():
        for _ in range(10):
            torch.mm(a, a)

    device().warm_up(step)
    window_ns = statistics.median(device().time_window(step, steps=8).step_ns for _ in range(5))
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(40):
        step()
    end.record()
    end.synchronize()
    expected_ns = start.elapsed_time(end) * 1e6 / 40
    if not on_hostcuda():
        assert abs(window_ns / expected_ns - 1) < 0.2, f"{window_ns:.0f} ns in a window, {expected_ns:.0f} ns outside"
    return f"{window_ns / 1e3:,.1f} us in windows of 8, {expected_ns / 1e3:,.1f} us in 40"


def lead_of_a_step():
    """The measured lead is the work that was queued."""
    x = torch.ones(4, device="cuda")
    leads = []
    for lead_ms in (1.0, 10.0):
        lead_ns = statistics.median(
            device().time_window(lambda: x.sum().item(), steps=8, lead_ms=lead_ms).lead_ns for _ in range(3)
        )
        assert abs(lead_ns / (lead_ms * 1e6) - 1) < 0.25, f"{lead_ns:.0f} ns at a lead of {lead_ms} ms"
        leads.append(f"{lead_ns / 1e6:.2f} ms at {lead_ms:g} ms")
    return ", ".join(leads)


def cost_of_a_wait():
    """A read in the middle of a step makes it longer, by more than nothing and less than a millisecond."""
    x = torch.ones(4, device="cuda")

    def step(reads):
        for k in range(40):
            x.add_(1)
            if reads and k == 20:
                x[0].item()

    both = [
        [device().time_window(lambda r=reads: step(r), steps=8, lead_ms=LEAD_MS).step_ns for reads in (False, True)]
        for _ in range(11)
    ]
    cost_us = statistics.median(waiting - ahead for ahead, waiting in both) / 1e3
    assert 0 < cost_us < 1_000, f"{cost_us:.1f} us"
    return f"{cost_us:.1f} us"


def waits_of_expressions():
    """The torch detector sees on the GPU what the rules of sim say, count and kind."""
    found, modelled = (json.loads(child("-m", "tests.gpu.expressions", spec)) for spec in ("cuda", "sim"))
    wrong = [f"{e}: cuda {found[e]}, sim {modelled[e]}" for e in EXPRESSIONS if found[e] != modelled[e]]
    assert not wrong, "; ".join(wrong)
    return f"{len(EXPRESSIONS)} expressions, {sum(map(len, found.values()))} waits"


CALLBACKS = """
import torch
from mtp_bench.devices import resolve
from mtp_bench.syncs.torch_detector import record_torch_syncs
x = torch.ones(4, device="cuda")
def step():
    x.sum().item()
    torch.cuda.synchronize()
    torch.cuda.current_stream().record_event().synchronize()
def kinds(callbacks):
    with record_torch_syncs(callbacks=callbacks) as syncs:
        step()
    return [sync.kind for sync in syncs]
print(kinds(False) == kinds(True) == ["item", "device_sync", "event_sync"])
"""


def trace_callbacks():
    """PyTorch's trace callbacks see the waits for device and events that the detector sees without them."""
    assert child("-c", CALLBACKS).strip() == "True"
    return "agree"


def graph_capture():
    """A capture is granted and refused with its line, and leaves the device usable."""
    x = torch.ones(4, device="cuda", requires_grad=True)

    def read(gradient):
        gradient.sum().item()

    def waits_in_backward():
        x.grad = None
        y = x * 2
        y.register_hook(read)
        y.sum().backward()

    def never_waits():
        (x.detach() * 2).sum()

    for _ in range(2):
        refused = device().graph_capture(waits_in_backward)
        assert not refused.possible
        assert refused.site is not None
        assert (refused.site.path, refused.site.function.rpartition(".")[2]) == (__file__, "read")
        torch.nn.functional.dropout(torch.rand(4, device="cuda"))
        torch.cuda.empty_cache()
        granted = device().graph_capture(never_waits)
        assert granted.possible, granted.reason
    return f"refused at {os.path.basename(refused.site.file)}:{refused.site.line}"


@functools.cache
def both_runs(profile, scope):
    """A workload on cuda and on sim, each in a worker process of its own."""
    import mtp_bench

    # What a read yields on hostcuda.
    os.environ["HOSTCUDA_READS"] = "0" if profile == "empty-shard" else "1"
    names, sizes = (VARIANTS, SMALL) if scope == "loss" else (STEP_VARIANTS, SMALL_STEP)
    options = {"set": sizes, "leads_ms": [LEAD_MS], "max_seconds": 5}
    runs = [mtp_bench.run([profile], names, spec, scope, **options) for spec in ("cuda", "sim")]
    return [{result.variant: result for result in run.results} for run in runs]


def variants_run(profile, scope):
    """All variants run, with finite times."""
    need(*RUN_NEEDS)
    cuda, sim = both_runs(profile, scope)
    for name, result in cuda.items():
        # What sim skips for a reason (a version of megatron-core, say), cuda skips too.
        assert result.status == sim[name].status == "ok" or result.status == sim[name].status == "skipped", (
            f"{name}: {result.status} ({result.error}), on sim {sim[name].status} ({sim[name].error})"
        )
        if result.status == "ok":
            assert len(result.time.step_ns) >= 20
            assert all(math.isfinite(step) and step > 0 for step in result.time.step_ns), name
            assert result.memory.peak_bytes > 0
    return ", ".join(
        f"{name} {statistics.median(result.time.step_ns) / 1e3:,.0f} us" if result.time else f"{name} {result.status}"
        for name, result in cuda.items()
    )


def variants_wait(profile, scope):
    """The same number of waits at the same lines as on sim."""
    need(*RUN_NEEDS)
    cuda, sim = both_runs(profile, scope)

    def places(result):
        return sorted((site.file, site.line, site.phase, site.count) for site in result.syncs.sites)

    for name, result in cuda.items():
        if result.status == "ok":
            assert places(result) == places(sim[name]), f"{name}: cuda {places(result)}, sim {places(sim[name])}"
    return ", ".join(f"{name} {result.syncs.count}" for name, result in cuda.items() if result.syncs)


def variants_values(profile, scope):
    """Values against the reference: as right, or as wrong, as on sim."""
    need(*RUN_NEEDS)
    if on_hostcuda():
        raise SkipCheck("hostcuda computes no values")
    cuda, sim = both_runs(profile, scope)
    for name, result in cuda.items():
        if result.status != "ok":
            continue
        here, there = result.numerics.status, sim[name].numerics.status
        right = ("equal", "close")
        assert here == there or (here in right and there in right), f"{name}: {here}, on sim {there}"
    return ", ".join(f"{name} {result.numerics.status}" for name, result in cuda.items() if result.numerics)


def nsight_systems():
    """A profiled run: nsys sees the waits that PyTorch sees, in the same ranges, and how long they block."""
    need(*RUN_NEEDS, "nvtx")
    if on_hostcuda():
        raise SkipCheck("hostcuda makes no call that nsys sees")
    from mtp_bench.nsight import tool

    if tool.find() is None:
        raise SkipCheck("nsys is not installed")
    options = ["--variant", "patched", "--lead", f"{LEAD_MS:g}", *(word for key in SMALL for word in ("--set", key))]
    with tempfile.TemporaryDirectory() as folder:
        where = ["--device", "cuda", "--profile", "packed-sft", "--out", folder]
        run = json.loads(child("-m", "mtp_bench", "profile", *where, *options, "--json"))
    (result,) = run["results"]
    syncs = result["syncs"]
    assert result["time"]["profiled"]
    assert syncs["agreed"], result["warnings"]
    assert syncs["detectors"]["nsys"] == syncs["detectors"]["torch"] > 0
    assert syncs["blocked_ns"] > 0
    return f"{syncs['detectors']}, {syncs['blocked_ns'] / 1e3:.1f} us blocked, {syncs['device_idle_ns']} ns device idle"


CHECKS = [
    ("GPU", the_gpu),
    ("clocks", clocks),
    ("time of a step", time_of_a_step),
    ("lead of a step", lead_of_a_step),
    ("cost of a wait", cost_of_a_wait),
    ("waits of expressions", waits_of_expressions),
    ("trace callbacks", trace_callbacks),
    ("graph capture", graph_capture),
    *(
        (f"{profile}, {scope}: {what}", functools.partial(check, profile, scope))
        for profile, scope in (*((profile, "loss") for profile in PROFILES), ("packed-sft", "step"))
        for what, check in (("runs", variants_run), ("waits", variants_wait), ("values", variants_values))
    ),
    ("Nsight Systems", nsight_systems),
]


def child(*arguments):
    """Standard output of this interpreter in a process of its own."""
    env = {**os.environ, "HOSTCUDA_READS": "1"}  # without meaning on a GPU
    done = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]
    return done.stdout


def outcome(check):
    """Run one check; return (``passed``, ``failed`` or ``skipped``, what it has to say)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "passed", check()
        except SkipCheck as reason:
            return "skipped", str(reason)
        except Exception as error:
            traceback.print_exc()
            return "failed", f"{type(error).__name__}: {error}"[:300]


def main():
    if not torch.cuda.is_available():
        print("no GPU is visible to PyTorch: nothing to check")
        return 0
    rows = []
    with device().session():
        for name, check in CHECKS:
            print(f"... {name}", file=sys.stderr, flush=True)
            rows.append((name, *outcome(check)))
    width = max(len(name) for name, _, _ in rows)
    print()
    for name, status, detail in rows:
        print(f"{name:{width}}  {status:7}  {' '.join(detail.split())}")
    counts = [sum(status == wanted for _, status, _ in rows) for wanted in ("passed", "failed", "skipped")]
    print(f"\n{counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
    return 1 if counts[1] else 0


if __name__ == "__main__":
    sys.exit(main())
