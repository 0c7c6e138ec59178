"""Runs whose reports are looked at: measured ones of every verdict, large ones, and ones made by somebody hostile."""

from __future__ import annotations

import random

from tests import runs

HOSTILE = [
    "<script>alert(1)</script>",
    "</title></style></svg><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" \'',
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "&lt;b&gt;&#60;script&#62;",
    "javascript:alert(1)",
    "\x1b[31mred\x1b[0m\x07\x00",
    "\u202egnirts\u202c \u2066isolated",
    "\u05d0\u05d1\u05d2 \u0634\u0643\u0644",
    "\ud800 alone",
    "long " * 5_000,
    "unbroken" * 5_000,
]


def measured(variants=(("original", 0.0), ("patched", 0.02), ("sync_free", 0.0), ("host_lens", -0.05)), **changes):
    """A run of one workload: steps of 10 ms and 0.3 % of noise, variants that differ by a fraction of a step."""
    return runs.run(list(results("packed-sft", variants, **changes)), environment=runs.environment(device=runs.GPU))


def results(workload, variants, windows=40, seed=0, throttled=(), lead_ms=1.0):
    """The results of one workload, interleaved on one GPU that drifts and whose clock steps down for a while."""
    noise = random.Random(f"{workload} {seed}")
    for variant, more in variants:
        us = [10_000 * (1 + more + noise.gauss(0, 0.003) + 0.001 * window / windows) for window in range(windows)]
        yield runs.result(
            variant,
            workload,
            lead_ms,
            device="cuda:0",
            time=runs.time(
                *us,
                modelled=False,
                sm_clock_mhz=[1980 - 45 * (10 <= window < 15) for window in range(windows)],
                throttled=[window in throttled for window in range(windows)],
            ),
            syncs=runs.syncs(*([runs.site(32)] if more >= 0 else [])),
        )


def large(count=200, windows=50):
    """A run of ``count`` results, five variants a workload, ``windows`` samples each."""
    variants = (("original", 0.0), ("patched", 0.02), ("sync_free", 0.001), ("host_lens", -0.01), ("mine", -0.05))
    found = [
        result
        for index in range(count // len(variants))
        for result in results(f"workload-{index}", variants, windows, throttled=(3,))
    ]
    return runs.run(found, environment=runs.environment(device=runs.GPU))


def hostile():
    """A run in which everything that a person or a program may name says something else than a name."""
    found = []
    for index, text in enumerate(HOSTILE):
        workload = f"{index} {text}"
        site = runs.site(3, file=text, function=text, code=text, op=text, range=[text], stack=[])
        found += [
            runs.result("original", workload, syncs=runs.syncs(), time=runs.time(*range(100, 130), modelled=False)),
            runs.result(
                text,
                workload,
                syncs=runs.syncs(site),
                time=runs.time(*range(200, 230), modelled=False),
                numerics=runs.numerics("nan", detail=text),
                warnings=[text],
                graph_capture=runs.GraphCapture(possible=False, reason=text),
                variant_info=runs.VariantInfo(version=text, path=text, note=text),
            ),
            runs.result(f"failed {text}", workload, status="failed", error=text, time=None, numerics=None, syncs=None),
        ]
    device = runs.DeviceInfo(kind="cuda", name=HOSTILE[0], modelled=False, driver=HOSTILE[1], cuda=HOSTILE[2])
    text = " ".join(HOSTILE[:10])
    environment = runs.environment(device=device, torch=text, packages={"mtp-bench": text}, cuda_env={"A": text})
    return runs.run(found, command=text, created_at=text, environment=environment)
