"""Charts of lanes, one below the other, by altair and vl-convert: what all pictures of the HTML report are.

A ``Drawing`` says how a kind of chart looks, once, since altair takes some 50 ms for it; ``Lanes`` are the data of one
chart. Layout depends on no font, so that a picture is the same on every machine. Colours are the light ones of
``PALETTE``; the page's style sheet puts the dark ones in their place.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rich.cells import cell_len

from mtp_bench.report.inert import inert
from mtp_bench.report.svg import redrawn
from mtp_bench.report.words import plural

# Name -> light, dark; a custom property of the style sheet each. No two light ones are the same.
PALETTE: Mapping[str, tuple[str, str]] = {
    "ink": ("#1c2024", "#e6e8ea"),
    "muted": ("#57606a", "#a3adb8"),
    "grid": ("#dde1e5", "#343a41"),
    "band": ("#e4e8ec", "#2e353d"),
    "slower": ("#b3261e", "#ff8f85"),
    "faster": ("#17693b", "#63cf8f"),
    "same": ("#4d5761", "#b4bdc6"),
    "unclear": ("#855300", "#ecb355"),
    "incomparable": ("#6a4a9c", "#c3a6f5"),
    "baseline": ("#4d5762", "#b4bdc5"),
    "candidate": ("#1f5fae", "#7db4ff"),
    "clock": ("#8a4b08", "#e0a05c"),
    "throttled": ("#b3261f", "#ff8f86"),
}
PLOT_WIDTH = 420
_GROUPS = 9  # have charts of their own, as many as a default run has tables; each chart costs Vega some 30 ms
_LANES = 40  # in one chart, so that it fits a printed page
_LABEL_WIDTH, _REMARK_WIDTH, _AXIS_HEIGHT = 236, 164, 52
_LABEL_CELLS = 32

Domain = tuple[float, float]


class Lane(Protocol):
    """What a chart needs to know of a lane."""

    @property
    def group(self) -> str:
        """Lanes of one group stand together under its name."""

    @property
    def label(self) -> str:
        """What the lane is called."""


L = TypeVar("L", bound=Lane)


def chunks(lanes: Sequence[L]) -> list[list[L]]:
    """The lanes of each chart: a group each where groups are few; else as many whole groups as one chart holds."""
    groups = [list(group) for _, group in itertools.groupby(lanes, key=lambda lane: lane.group)]
    few = len(groups) <= _GROUPS
    charts: list[list[L]] = []
    for group in groups:
        if few or not charts or len(charts[-1]) + len(group) > _LANES:
            charts.append([])
        charts[-1] += group
    return [chart[begin : begin + _LANES] for chart in charts for begin in range(0, len(chart), _LANES)]


class Lanes(Generic[L]):
    """The data of one chart by the name of their layer: lanes from top to bottom, headed by their group."""

    def __init__(self, lanes: Sequence[L], domain: Domain) -> None:
        self.lanes: list[tuple[float, L]] = []  # with the middle of the lane
        self.domain = domain
        self.count = 0
        self.data: dict[str, list[dict[str, float | str]]] = {}
        for index, lane in enumerate(lanes):
            if index == 0 or lane.group != lanes[index - 1].group:
                self.add("groups", y=self._next(), text=_cut(lane.group, 3 * _LABEL_CELLS))
            self.lanes.append((self._next(), lane))
            self.add("lanes", x=1.0, top=self.count - 1, bottom=self.count)

    @property
    def names(self) -> str:
        """What a text alternative calls what is drawn."""
        groups = dict.fromkeys(lane.group for _, lane in self.lanes)
        return f"{plural(len(self.lanes), 'row')} of {inert('; '.join(groups), 300)}"

    def add(self, layer: str, **values: float | str) -> None:
        """One more datum of a layer."""
        self.data.setdefault(layer, []).append(values)

    def path(self, layer: str, y: float, d: str, **values: str) -> None:
        """A path whose coordinates are pixels, from the left edge and the middle of the lane."""
        if d:
            self.add(layer, y=y, d=d, **values)

    def name(self, y: float, name: str, *remarks: str) -> None:
        """Write a lane's name and its remarks, one below the other."""
        self.add("names", y=y, text=_cut(name, _LABEL_CELLS))
        for index, remark in enumerate(remarks):
            self.add("remarks", y=y + (index - (len(remarks) - 1) / 2) * 0.38, text=remark)

    def pixel(self, x: float) -> float:
        """Where ``x`` stands; what lies outside the domain stands at its end."""
        low, high = self.domain
        return PLOT_WIDTH * min(1.0, max(0.0, (x - low) / (high - low)))

    def _next(self) -> float:
        self.count += 1
        return self.count - 0.5


class Drawing:
    """A kind of chart: its layers of marks, the names on the left and the remarks on the right of ``lane_height``."""

    def __init__(self, layers: Sequence[Any], lane_height: int) -> None:
        import altair as alt

        ink, muted = PALETTE["ink"][0], PALETTE["muted"][0]
        texts = [
            _text("groups", ink, -_LABEL_WIDTH, fontWeight="bold", align="left"),
            _text("names", ink, -10, align="right"),
            _text("remarks", muted, PLOT_WIDTH + 10, align="left"),
        ]
        chart = alt.layer(*layers, *texts).properties(
            width=PLOT_WIDTH,
            padding={"left": _LABEL_WIDTH + 4, "right": _REMARK_WIDTH, "top": 2, "bottom": _AXIS_HEIGHT},
            autosize=alt.AutoSizeParams(type="none"),
        )
        configured = chart.configure(background="transparent", aria=False).configure_view(stroke=None)
        self._spec: dict[str, Any] = configured.to_dict(validate=False)
        self._lane_height = lane_height

    def svg(self, lanes: Lanes[Any], label: str) -> str:
        """The picture of ``lanes``; ``label`` is its text alternative."""
        import vl_convert

        low, high = lanes.domain
        values = {"low": low, "high": high, "count": lanes.count}
        spec = {
            **self._spec,
            "height": lanes.count * self._lane_height,
            "params": [{"name": name, "value": value} for name, value in values.items()],
            "datasets": lanes.data,
        }
        return redrawn(vl_convert.vegalite_to_svg(json.dumps(spec)), label)


def layer(name: str) -> Any:
    """The chart of one layer's data, still without a mark."""
    import altair as alt

    return alt.Chart(alt.NamedData(name))


def y_channel(field: str = "y") -> Any:
    """What places a mark in its lane."""
    import altair as alt

    return alt.Y(f"{field}:Q", scale=alt.Scale(domain=[alt.ExprRef("count"), 0], nice=False, zero=False), axis=None)


def x_channel(field: str, title: str | list[str]) -> Any:
    """The horizontal axis, its title in one line or several; what lies outside its domain is drawn at the end."""
    import altair as alt

    ink, muted, grid = (PALETTE[name][0] for name in ("ink", "muted", "grid"))
    axis = alt.Axis(
        title=title,
        titleColor=ink,
        titleFontSize=12,
        titleFontWeight="normal",
        labelColor=muted,
        labelFontSize=11,
        labelOverlap=False,
        tickCount=5,
        tickColor=muted,
        domainColor=muted,
        gridColor=grid,
    )
    domain = [alt.ExprRef("low"), alt.ExprRef("high")]
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=domain, nice=False, zero=False, clamp=True), axis=axis)


def colours(*names: str) -> Any:
    """A scale from names of ``PALETTE`` to their colours."""
    import altair as alt

    return alt.Scale(domain=list(names), range=[PALETTE[name][0] for name in names])


def line_at_1(title: str | list[str], **style: Any) -> Any:
    """The layer of a line at 1, where candidate and baseline are the same, through all lanes but not their headings."""
    import altair as alt

    top, bottom = y_channel("top"), alt.Y2("bottom")
    marked = layer("lanes").mark_rule(color=PALETTE["muted"][0], **style)
    return marked.encode(x=x_channel("x", title), y=top, y2=bottom)


def paths(name: str, width: float, opacity: float = 1, **style: Any) -> Any:
    """A layer of ``Lanes.path``: one element a path, however many samples it holds."""
    import altair as alt

    unit = 4  # the size at which a unit of a path is a pixel
    marked = layer(name).mark_point(size=unit, filled=False, strokeWidth=width, opacity=opacity, **style)
    return marked.encode(x=alt.value(0), y=y_channel(), shape=alt.Shape("d:N", scale=None))


def polyline(points: Iterable[tuple[float, float]]) -> str:
    """The path through ``points``."""
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def strokes(xs: Iterable[float], top: float, bottom: float) -> str:
    """The path of an upright stroke at every ``x``."""
    return "".join(f"M{x:.1f},{top:g}V{bottom:g}" for x in xs)


def widened(low: float, high: float) -> Domain:
    """A domain with some room on both sides."""
    room = 0.05 * (high - low) or 0.01 * abs(high) or 1.0
    return low - room, high + room


def _text(name: str, colour: str, x: float, **style: Any) -> Any:
    import altair as alt

    marked = layer(name).mark_text(baseline="middle", fontSize=12, color=colour, **style)
    return marked.encode(y=y_channel(), x=alt.value(x), text=alt.Text("text:N"))


def _cut(text: str, cells: int) -> str:
    """As much of ``text`` as stands in so many columns of a terminal, which is about as wide as it is drawn."""
    shown = inert(text, cells)
    while cell_len(shown) > cells:
        shown = f"{shown.removesuffix('...')[:-1]}..."
    return shown
