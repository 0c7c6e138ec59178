"""The pictures of the HTML report, each an SVG: ratios with their intervals, samples a side, samples in run order.

The samples of a lane are one path: ten thousand marks would be slow to make and slow to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mtp_bench.report.comparison_view import ForestEntry, SampleLane
from mtp_bench.report.lanes import (
    PALETTE,
    Drawing,
    Lanes,
    chunks,
    colours,
    layer,
    line_at_1,
    paths,
    polyline,
    strokes,
    widened,
    x_channel,
    y_channel,
)
from mtp_bench.report.words import microseconds

_SHAPES = {"slower": "triangle-up", "faster": "triangle-down", "same": "circle", "unclear": "diamond"}
_OUTSIDE = 0.01  # of the samples lie beyond either end of an axis, and are drawn at it


def lacking() -> str:
    """The packages that pictures need and that are not installed here; "" where nothing lacks."""
    missing = []
    for module, package in (("altair", "altair"), ("vl_convert", "vl-convert-python")):
        try:
            __import__(module)
        except ImportError:
            missing.append(package)
    return " ".join(missing)


def clock(lane: SampleLane) -> str:
    """``1,755 to 1,980 MHz``; "" where the clock is not known."""
    low, high = lane.clock_range_mhz or (None, None)
    return "" if low is None else f"{low:,} MHz" if low == high else f"{low:,} to {high:,} MHz"


def forest(rows: Sequence[ForestEntry]) -> list[str]:
    """Ratios with their 98 % intervals, in the order of ``rows``, all on one scale; [] where no row has a ratio."""
    known = [row for row in rows if row.ratio is not None]
    if not known:
        return []
    ends = [1.0, *(end for row in known for end in (row.ratio, row.low, row.high) if end is not None)]
    far = max(abs(end - 1) for end in ends)
    reach = max((row.threshold for row in known if far == 0 or row.threshold <= 2 * far), default=0.0)
    domain = widened(min(*ends, 1 - reach), max(*ends, 1 + reach))
    drawing = _forest_drawing()
    return [_forest(drawing, Lanes(chunk, domain)) for chunk in chunks(rows)]


def distribution(lanes: Sequence[SampleLane]) -> list[str]:
    """Every window as a stroke, quartiles as a box, the median as a bar, against the median of the baseline."""
    shown = [lane for lane in lanes if lane.reference_ns]
    drawing = _distribution_drawing() if shown else None
    return [_distribution(drawing, chunk) for chunk in chunks(shown) if drawing]


def run_order(lanes: Sequence[SampleLane]) -> list[str]:
    """Windows in the order they were measured, around their median, and the SM clock below them; all on one scale."""
    shown = [lane for lane in lanes if lane.quartiles_ns[2]]
    if not shown:
        return []
    away = [abs(ns / lane.quartiles_ns[2] - 1) for lane in shown for ns in lane.kept_ns]
    reach = float(np.quantile(away, 1 - 2 * _OUTSIDE)) or 0.001
    clocks = [mhz for lane in shown for mhz in lane.clock_mhz if mhz is not None]
    slowest, fastest = (min(clocks), max(clocks)) if clocks else (0, 0)
    title = ["window, in the order measured", f"upper line: step time, median and {reach * 100:.2g} % to either side"]
    if clocks:
        title[1] += f"; lower line: SM clock, {slowest:,} to {fastest:,} MHz"
    drawing = _order_drawing(title)
    windows = float(max(len(lane.step_ns) for lane in shown))
    return [_run_order(drawing, Lanes(chunk, (0.0, windows)), reach, (slowest, fastest)) for chunk in chunks(shown)]


def _forest_drawing() -> Drawing:
    import altair as alt

    title = "step time, candidate / baseline"
    colour, y = alt.Color("verdict:N", scale=colours(*_SHAPES), legend=None), y_channel()
    shapes = alt.Scale(domain=list(_SHAPES), range=list(_SHAPES.values()))
    span = {"x": x_channel("low", title), "x2": alt.X2("high"), "y": y}
    point = {"x": x_channel("x", title), "y": y, "color": colour}
    point["shape"] = alt.Shape("verdict:N", scale=shapes, legend=None)
    return Drawing(
        [
            layer("band").mark_bar(color=PALETTE["band"][0], size=14).encode(**span),
            line_at_1(title),
            layer("interval").mark_rule(strokeWidth=2).encode(**span, color=colour),
            layer("measured").mark_point(size=60, filled=True, opacity=1).encode(**point),
            layer("modelled").mark_point(size=60, strokeWidth=1.5, opacity=1).encode(**point),
        ],
        lane_height=20,
    )


def _forest(drawing: Drawing, chart: Lanes[ForestEntry]) -> str:
    for y, row in chart.lanes:
        chart.name(y, row.label, f"{row.verdict}{', modelled' if row.modelled else ''}")
        if row.ratio is not None:
            low, high = (row.ratio if end is None else end for end in (row.low, row.high))
            chart.add("band", y=y, low=1 - row.threshold, high=1 + row.threshold)
            chart.add("interval", y=y, low=low, high=high, verdict=row.verdict)
            chart.add("modelled" if row.modelled else "measured", y=y, x=row.ratio, verdict=row.verdict)
    rows = [row for _, row in chart.lanes]
    told = ", ".join(f"{count} {verdict}" for verdict, count in Counter(row.verdict for row in rows).items())
    modelled = ", modelled" if any(row.modelled for row in rows) else " with 98 % intervals"
    return drawing.svg(chart, f"Forest plot of the ratios of {chart.names}{modelled}: {told}.")


def _distribution_drawing() -> Drawing:
    import altair as alt

    title = "step time of a window / median of the baseline"
    scale = colours("baseline", "candidate", "throttled")
    colour, stroke = (channel("side:N", scale=scale, legend=None) for channel in (alt.Color, alt.Stroke))
    box = layer("box").encode(y=y_channel(), color=colour)
    return Drawing(
        [
            line_at_1(title),
            paths("strokes", 1, opacity=0.6).encode(color=colour),
            box.mark_bar(size=14, fillOpacity=0.25, strokeWidth=1.5).encode(
                x=x_channel("low", title), x2=alt.X2("high"), stroke=stroke
            ),
            box.mark_tick(size=20, thickness=3).encode(x=x_channel("middle", title)),
        ],
        lane_height=26,
    )


def _distribution(drawing: Drawing, lanes: Sequence[SampleLane]) -> str:
    ratios = [ns / lane.reference_ns for lane in lanes for ns in lane.kept_ns]
    low, high = np.quantile(ratios, [_OUTSIDE, 1 - _OUTSIDE]).tolist()
    chart = Lanes(lanes, widened(min(1.0, low), max(1.0, high)))
    for y, lane in chart.lanes:
        _, lower, middle, upper, _ = lane.quartiles_ns
        chart.name(y, lane.label, f"{microseconds(middle)} us")
        for hot, top in ((False, -8.0), (True, 3.0)):
            at = [ns for ns, throttled in zip(lane.step_ns, lane.throttled, strict=True) if throttled is hot]
            d = strokes((chart.pixel(ns / lane.reference_ns) for ns in at), top, 8.0)
            chart.path("strokes", y, d, side="throttled" if hot else _side(lane))
        low, middle, high = (ns / lane.reference_ns for ns in (lower, middle, upper))
        chart.add("box", y=y, low=low, middle=middle, high=high, side=_side(lane))
    return drawing.svg(chart, f"Distribution of the step times of {chart.names}.")


def _order_drawing(title: list[str]) -> Drawing:
    import altair as alt

    sides = alt.Color("side:N", scale=colours("baseline", "candidate"), legend=None)
    layers = [
        line_at_1(title, opacity=0),  # for its axis
        paths("clock", 1.5, color=PALETTE["clock"][0]),
        paths("throttled", 1, color=PALETTE["throttled"][0]),
        paths("steps", 1.5).encode(color=sides),
    ]
    return Drawing(layers, lane_height=36)


def _run_order(drawing: Drawing, chart: Lanes[SampleLane], reach: float, clocks: tuple[int, int]) -> str:
    for y, lane in chart.lanes:
        median = lane.quartiles_ns[2]
        chart.name(y, lane.label, f"{microseconds(median)} us", *filter(None, [clock(lane)]))
        away = (max(-1.0, min(1.0, (ns / median - 1) / reach)) for ns in lane.step_ns)
        chart.path(
            "steps", y, polyline((chart.pixel(x), -5 - 10 * up) for x, up in enumerate(away, 1)), side=_side(lane)
        )
        chart.path("clock", y, _clock_path(chart, lane, *clocks))
        hot = (chart.pixel(window) for window, throttled in enumerate(lane.throttled, 1) if throttled)
        chart.path("throttled", y, strokes(hot, -16, 16))
    return drawing.svg(chart, f"Step times of {chart.names} in the order measured, and the SM clock.")


def _clock_path(chart: Lanes[SampleLane], lane: SampleLane, slowest: int, fastest: int) -> str:
    """The clock in the lower part of a lane, from one window where it is known to the next."""
    span = max(1, fastest - slowest)
    known = ((window, mhz) for window, mhz in enumerate(lane.clock_mhz, 1) if mhz is not None)
    points = [(chart.pixel(window), 16 - 7 * (mhz - slowest) / span) for window, mhz in known]
    return polyline(points) if points else ""


def _side(lane: SampleLane) -> str:
    return "baseline" if lane.baseline else "candidate"
