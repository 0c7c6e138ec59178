"""The pictures of the HTML report, each an SVG: ratios with their intervals, samples a side, samples in run order.

The samples of a lane are one path: ten thousand marks would be slow to make and slow to show.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtp_bench.compare import Verdict
from mtp_bench.report.lanes import PALETTE, LaneChart, chunks, colours, widened, x_channel
from mtp_bench.report.words import microseconds

_SHAPES = {"slower": "triangle-up", "faster": "triangle-down", "same": "circle", "unclear": "diamond"}
_OUTSIDE = 0.01  # of the samples lie beyond either end of an axis, and are drawn at it


@dataclass(frozen=True, slots=True)
class Ratio:
    """A row of the forest plot; ``ratio`` is None where there is none. ``threshold`` is a fraction of the baseline."""

    group: str
    label: str
    verdict: Verdict
    modelled: bool
    ratio: float | None
    low: float | None
    high: float | None
    threshold: float


@dataclass(frozen=True, slots=True)
class Samples:
    """The windows of one run on one side of a row, in the order they were measured.

    ``reference_ns`` is the median of the baseline, which a distribution is drawn against.
    """

    group: str
    label: str
    baseline: bool
    step_ns: tuple[float, ...]
    throttled: tuple[bool, ...]
    clock_mhz: tuple[int | None, ...]
    reference_ns: float

    @property
    def kept_ns(self) -> tuple[float, ...]:
        """The windows that count: those without throttling, unless all had it."""
        kept = tuple(ns for ns, hot in zip(self.step_ns, self.throttled, strict=True) if not hot)
        return kept or self.step_ns

    @property
    def clock(self) -> str:
        """``1,755 to 1,980 MHz``; "" where the clock is not known."""
        known = [mhz for mhz in self.clock_mhz if mhz is not None]
        if not known:
            return ""
        low, high = f"{min(known):,}", f"{max(known):,}"
        return f"{low} MHz" if low == high else f"{low} to {high} MHz"


def lacking() -> str:
    """The packages that pictures need and that are not installed here; "" where nothing lacks."""
    missing = []
    for module, package in (("altair", "altair"), ("vl_convert", "vl-convert-python")):
        try:
            __import__(module)
        except ImportError:
            missing.append(package)
    return " ".join(missing)


def forest(rows: Sequence[Ratio]) -> list[str]:
    """Ratios with their 98 % intervals, in the order of ``rows``, all on one scale; [] where no row has a ratio."""
    known = [row for row in rows if _known(row)]
    if not known:
        return []
    ends = [1.0, *(end for row in known for end in (row.ratio, row.low, row.high) if end is not None)]
    far = max(abs(end - 1) for end in ends)
    reach = max((row.threshold for row in known if far == 0 or row.threshold <= 2 * far), default=0.0)
    domain = widened(min(*ends, 1 - reach), max(*ends, 1 + reach))
    return [_forest(chunk, domain) for chunk in chunks(rows)]


def distribution(lanes: Sequence[Samples]) -> list[str]:
    """Every window as a tick, quartiles as a box, the median as a bar, against the median of the baseline."""
    return [_distribution(chunk) for chunk in chunks(lanes)]


def run_order(lanes: Sequence[Samples]) -> list[str]:
    """Windows in the order they were measured, around their median, and the SM clock below them."""
    return [_run_order(chunk) for chunk in chunks(lanes)]


def _known(row: Ratio) -> bool:
    return row.ratio is not None and math.isfinite(row.ratio)


def _forest(rows: Sequence[Ratio], domain: tuple[float, float]) -> str:
    import altair as alt

    chart = LaneChart(rows, height=20)
    for y, row in chart.lanes:
        chart.name(y, row.label, f"{row.verdict}{', modelled' if row.modelled else ''}")
        if _known(row):
            low, high = (row.ratio if end is None else end for end in (row.low, row.high))
            chart.add("band", y=y, low=1 - row.threshold, high=1 + row.threshold)
            chart.add("interval", y=y, low=low, high=high, verdict=row.verdict)
            chart.add("modelled" if row.modelled else "measured", y=y, x=row.ratio, verdict=row.verdict)
    title = "step time, candidate / baseline"
    colour = alt.Color("verdict:N", scale=colours(*_SHAPES), legend=None)
    shapes = alt.Scale(domain=list(_SHAPES), range=list(_SHAPES.values()))
    span = {"x": x_channel("low", title, domain), "x2": alt.X2("high"), "y": chart.y}
    point = {"x": x_channel("x", title, domain), "y": chart.y, "color": colour}
    point["shape"] = alt.Shape("verdict:N", scale=shapes, legend=None)
    layers = [
        chart.layer("band").mark_bar(color=PALETTE["band"][0], size=14).encode(**span),
        chart.one(point["x"]),
        chart.layer("interval").mark_rule(strokeWidth=2).encode(**span, color=colour),
        chart.layer("measured").mark_point(size=60, filled=True, opacity=1).encode(**point),
        chart.layer("modelled").mark_point(size=60, strokeWidth=1.5).encode(**point),
    ]
    told = ", ".join(f"{count} {verdict}" for verdict, count in Counter(row.verdict for row in rows).items())
    modelled = ", modelled" if any(row.modelled for row in rows) else " with 98 % intervals"
    return chart.svg(layers, f"Forest plot of the ratios of {chart.names}{modelled}: {told}.")


def _distribution(lanes: Sequence[Samples]) -> str:
    import altair as alt

    chart = LaneChart(lanes, height=26)
    ratios = [ns / lane.reference_ns for lane in lanes for ns in lane.kept_ns]
    low, high = np.quantile(ratios, [_OUTSIDE, 1 - _OUTSIDE]).tolist()
    domain = widened(min(1.0, low), max(1.0, high))
    for y, lane in chart.lanes:
        chart.name(y, lane.label, f"{microseconds(statistics.median(lane.kept_ns))} us")
        side = "baseline" if lane.baseline else "candidate"
        for ns, hot in zip(lane.step_ns, lane.throttled, strict=True):
            chart.tick("ticks", ns / lane.reference_ns, y, lane=y, side="throttled" if hot else side)
        low, middle, high = (np.quantile(lane.kept_ns, [0.25, 0.5, 0.75]) / lane.reference_ns).tolist()
        chart.add("box", y=y, low=low, high=high, middle=middle, side=side)
    title = "step time of a window / median of the baseline"
    scale = colours("baseline", "candidate", "throttled")
    colour, stroke = (channel("side:N", scale=scale, legend=None) for channel in (alt.Color, alt.Stroke))
    span = {"x": x_channel("low", title, domain), "x2": alt.X2("high")}
    box = chart.layer("box").encode(y=chart.y, color=colour)
    layers = [
        chart.one(x_channel("x", title, domain)),
        chart.path("ticks", opacity=0.6).encode(x=x_channel("x", title, domain), color=colour),
        box.mark_bar(size=14, fillOpacity=0.25, strokeWidth=1.5).encode(**span, stroke=stroke),
        box.mark_tick(size=20, thickness=3).encode(x=x_channel("middle", title, domain)),
    ]
    return chart.svg(layers, f"Distribution of the step times of {chart.names}.")


def _run_order(lanes: Sequence[Samples]) -> str:
    import altair as alt

    chart = LaneChart(lanes, height=36)
    away = [abs(ns / statistics.median(lane.kept_ns) - 1) for lane in lanes for ns in lane.kept_ns]
    reach = float(np.quantile(away, 1 - 2 * _OUTSIDE)) or 0.001
    clocks = [mhz for lane in lanes for mhz in lane.clock_mhz if mhz is not None]
    slowest, fastest = min(clocks, default=0), max(clocks, default=0)
    for y, lane in chart.lanes:
        median = statistics.median(lane.kept_ns)
        chart.name(y, lane.label, *filter(None, [f"{microseconds(median)} us", lane.clock]))
        side = "baseline" if lane.baseline else "candidate"
        for window, (ns, hot, mhz) in enumerate(zip(lane.step_ns, lane.throttled, lane.clock_mhz, strict=True), 1):
            at = y - 0.15 - 0.27 * max(-1.0, min(1.0, (ns / median - 1) / reach))
            chart.add("steps", x=window, y=at, lane=y, side=side)
            chart.add("clock", x=window, y=None if mhz is None else _at_clock(y, mhz, slowest, fastest), lane=y)
            if hot:
                chart.tick("throttled", window, y - 0.15, lane=y)
    title = ["window, in the order measured", f"upper line: step time, median and {reach * 100:.2g} % to either side"]
    if clocks:
        title[1] += f"; lower line: SM clock, {slowest:,} to {fastest:,} MHz"
    x = x_channel("x", title, (0.0, float(max(len(lane.step_ns) for lane in lanes))))
    colour = alt.Color("side:N", scale=colours("baseline", "candidate"), legend=None)
    layers = [
        chart.path("clock", color=PALETTE["clock"][0]).encode(x=x),
        chart.path("throttled", color=PALETTE["throttled"][0]).encode(x=x),
        chart.path("steps").encode(x=x, color=colour),
    ]
    return chart.svg(layers, f"Step times of {chart.names} in the order measured, and the SM clock.")


def _at_clock(y: float, mhz: int, slowest: int, fastest: int) -> float:
    """Where a clock stands in the lower part of the lane at ``y``."""
    return y + 0.45 - 0.2 * ((mhz - slowest) / (fastest - slowest) if fastest > slowest else 0.5)
