"""A chart of lanes, one below the other, by altair and vl-convert: what all pictures of the HTML report are.

Layout depends on no font, so that a picture is the same on every machine. Colours are the light ones of ``PALETTE``;
the page's style sheet puts the dark ones in their place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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
_CHARTS = 5  # of one kind, unless there are more lanes than they hold: each costs Vega some 30 ms
_LANES = 40  # in one chart, so that it fits a printed page
_LABEL_WIDTH, _PLOT_WIDTH, _REMARK_WIDTH = 236, 420, 164
_AXIS_HEIGHT = 52
_LABEL_CELLS = 36


class Lane(Protocol):
    """What a chart needs to know of a lane."""

    @property
    def group(self) -> str:
        """Lanes of one group stand together under its name."""

    @property
    def label(self) -> str:
        """What the lane is called."""


L = TypeVar("L", bound=Lane)


def chunks(lanes: Sequence[L]) -> Iterator[Sequence[L]]:
    """The lanes of one chart after the other: a group each where they are few, more where they are many."""
    least = -(-len(lanes) // _CHARTS)
    begun = 0
    for index in range(1, len(lanes) + 1):
        ended = index == len(lanes) or lanes[index].group != lanes[index - 1].group
        if index - begun == _LANES or (ended and (index - begun >= least or index == len(lanes))):
            yield lanes[begun:index]
            begun = index


class LaneChart(Generic[L]):
    """Lanes from top to bottom: a name on the left, a remark on the right, marks between them.

    ``add`` collects data by the name of a layer, ``draw`` takes the layers, ``svg`` makes the picture.
    """

    def __init__(self, lanes: Sequence[L], height: int) -> None:
        self.lanes: list[tuple[float, L]] = []  # with the middle of the lane
        self._height = height
        self._data: dict[str, list[dict[str, float | str | None]]] = {"one": [{"x": 1.0}]}
        self._count = 0
        for index, lane in enumerate(lanes):
            if index == 0 or lane.group != lanes[index - 1].group:
                self.add("groups", y=self._next(), text=_cut(lane.group, 3 * _LABEL_CELLS))
            self.lanes.append((self._next(), lane))

    @property
    def names(self) -> str:
        """What a text alternative calls what is drawn."""
        groups = dict.fromkeys(lane.group for _, lane in self.lanes)
        return f"{plural(len(self.lanes), 'row')} of {inert('; '.join(groups), 300)}"

    @property
    def y(self) -> Any:
        """The channel that places a mark in its lane."""
        import altair as alt

        return alt.Y("y:Q", scale=alt.Scale(domain=[self._count, 0], nice=False, zero=False), axis=None)

    def add(self, layer: str, **values: float | str | None) -> None:
        """One more datum of a layer."""
        self._data.setdefault(layer, []).append(values)

    def tick(self, layer: str, x: float, y: float, **values: float | str) -> None:
        """One more upright stroke of a path."""
        self.add(layer, x=x, y=y - 0.3, **values)
        self.add(layer, x=x, y=y + 0.3, **values)
        self.add(layer, x=None, y=None, **values)

    def name(self, y: float, name: str, *remarks: str) -> None:
        """Write a lane's name and its remarks, one below the other."""
        self.add("names", y=y, text=_cut(name, _LABEL_CELLS))
        for index, remark in enumerate(remarks):
            self.add("remarks", y=y + (index - (len(remarks) - 1) / 2) * 0.38, text=remark)

    def layer(self, name: str) -> Any:
        """The chart of what was added to a layer, still without a mark."""
        import altair as alt

        return alt.Chart(alt.NamedData(name))

    def path(self, name: str, **style: Any) -> Any:
        """A layer whose data are a path a lane and side, broken where a datum has no ``y``."""
        import altair as alt

        self._data.setdefault(name, [])
        for index, datum in enumerate(self._data[name]):
            datum["order"] = index
        marked = self.layer(name).mark_line(invalid="break-paths-show-domains", strokeWidth=1, **style)
        return marked.encode(y=self.y, order=alt.Order("order:Q"), detail=alt.Detail("lane:N"))

    def one(self, x: Any) -> Any:
        """The layer of a line at 1, where candidate and baseline are the same."""
        return self.layer("one").mark_rule(color=PALETTE["muted"][0]).encode(x=x)

    def svg(self, layers: Sequence[Any], label: str) -> str:
        """The picture; ``label`` is its text alternative."""
        import altair as alt
        import vl_convert

        ink, muted = PALETTE["ink"][0], PALETTE["muted"][0]
        texts = [
            self._text("groups", ink, fontWeight="bold", align="left", x=-_LABEL_WIDTH),
            self._text("names", ink, align="right", x=-10),
            self._text("remarks", muted, align="left", x=_PLOT_WIDTH + 10),
        ]
        chart = alt.layer(*layers, *texts).properties(
            width=_PLOT_WIDTH,
            height=self._count * self._height,
            padding={"left": _LABEL_WIDTH + 4, "right": _REMARK_WIDTH, "top": 2, "bottom": _AXIS_HEIGHT},
            autosize=alt.AutoSizeParams(type="none"),
        )
        spec = chart.configure(background="transparent", aria=False).configure_view(stroke=None).to_dict(validate=False)
        spec["datasets"] = self._data  # altair would check every datum against its schema: seconds for 10,000 samples
        return redrawn(vl_convert.vegalite_to_svg(json.dumps(spec)), label)

    def _text(self, layer: str, colour: str, x: float, **style: Any) -> Any:
        import altair as alt

        marked = self.layer(layer).mark_text(baseline="middle", fontSize=12, color=colour, **style)
        return marked.encode(y=self.y, x=alt.value(x), text=alt.Text("text:N"))

    def _next(self) -> float:
        self._count += 1
        return self._count - 0.5


def x_channel(field: str, title: str | list[str], domain: tuple[float, float]) -> Any:
    """The horizontal channel, its title in one line or several; what lies outside ``domain`` is drawn at its end."""
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
    return alt.X(f"{field}:Q", scale=alt.Scale(domain=list(domain), nice=False, zero=False, clamp=True), axis=axis)


def colours(*names: str) -> Any:
    """A scale from names of ``PALETTE`` to their colours."""
    import altair as alt

    return alt.Scale(domain=list(names), range=[PALETTE[name][0] for name in names])


def widened(low: float, high: float) -> tuple[float, float]:
    """A domain with some room on both sides."""
    room = 0.05 * (high - low) or 0.01 * abs(high) or 1.0
    return low - room, high + room


def _cut(text: str, cells: int) -> str:
    """As much of ``text`` as stands in so many columns of a terminal, which is about as wide as it is drawn."""
    shown = inert(text, cells)
    while cell_len(shown) > cells:
        shown = f"{shown.removesuffix('...')[:-1]}..."
    return shown
