"""The report as one HTML file that needs nothing beside it: no network, no script, and no picture to be complete.

Two things keep people's text from doing anything: every value that a template shows goes through ``inert`` and is
escaped, whatever the template says, and the page forbids itself scripts and requests. Only the pictures of ``charts``,
which ``svg.redrawn`` makes from elements it knows, are taken as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from mtp_bench.compare import Comparison, Difference, Row, compare
from mtp_bench.compare.headline import headline
from mtp_bench.compare.summary import VERDICTS
from mtp_bench.report import charts, words
from mtp_bench.report.comparison_view import ComparisonView, GroupView, SampleLane
from mtp_bench.report.inert import inert
from mtp_bench.report.lanes import PALETTE
from mtp_bench.report.view import site_views, workload_views
from mtp_bench.results import Run, write_number

if TYPE_CHECKING:
    from jinja2 import Environment

GLYPHS = {"slower": "\u25b2", "faster": "\u25bc", "same": "\u25cf", "unclear": "\u25c6", "incomparable": "\u2715"}
_PAPER = ("#ffffff", "#15191d")
_LONGEST, _LONGEST_NAME = 1_000, 160  # characters of one text, and of one that stands in a table or a heading
_PARTS = (
    ("verdict", "Verdict"),
    ("environments", "Environments and cautions"),
    ("table", "Comparison"),
    ("ratios", "Ratios"),
    ("distribution", "Distribution of samples"),
    ("order", "Samples in run order"),
    ("syncs", "Syncs by call site"),
    ("values", "Values"),
    ("reproduce", "How to reproduce"),
)
_MARKS = ", ".join(f"{glyph} {verdict}" for verdict, glyph in GLYPHS.items() if verdict != "incomparable")
_LEGENDS = {
    "ratios": "Step time of the candidate over that of the baseline, left of 1 is faster. "
    f"{_MARKS}, hollow where modelled; line: 98 % interval; band: threshold.",
    "distribution": "Step times against the median of the baseline: a stroke a window, quartiles as a box, the median "
    "as a bar. Grey: baseline; blue: candidate; short and red: throttled, left out. "
    "What lies outside is drawn at the edge.",
    "order": "Windows in the order they were measured, a lane a side: step time around its median, and below it the SM "
    "clock. Upright strokes: throttled, left out.",
}


def comparison_report(comparison: Comparison) -> str:
    """The report of a comparison."""
    sides = [side.label for side in comparison.sides]
    title = f"variants of {sides[0]}" if comparison.within else f"{', '.join(sides[1:])} with {sides[0]}"
    return _page(comparison, title=f"mtp-bench compare: {title}")


def run_report(run: Run) -> str:
    """The report of a run: what it is made for, then the comparison of its variants."""
    comparison = compare([("this run", [("this run", run)])])
    return _page(
        comparison,
        title=f"mtp-bench run: {', '.join(run.workloads)}",
        first_line=words.first_line(run),
        headline=headline(run),
        workloads=workload_views(run),
        run_sites=site_views(run),
    )


def _page(comparison: Comparison, **more: Any) -> str:
    view = ComparisonView.of(comparison)
    lacking = charts.lacking()
    drawn = charts if not lacking else None
    return (
        _templates()
        .get_template("report.html.j2")
        .render(
            view=view,
            lacking=lacking,
            ratio_pictures=_pictures(drawn.forest(view.forest)) if drawn else [],
            distribution_pictures=_pictures(drawn.distribution(view.lanes)) if drawn else [],
            order_pictures=_pictures(drawn.run_order(view.lanes)) if drawn else [],
            **more,
        )
    )


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("mtp_bench.report"),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "paper": _PAPER,
        "palette": PALETTE,
        "verdicts": VERDICTS,
        "glyphs": GLYPHS,
        "parts": _PARTS,
        "legends": _LEGENDS,
        "known": _known,
    }
    environment.filters |= {
        "microseconds": words.microseconds,
        "whole_microseconds": words.whole_microseconds,
        "signed_microseconds": words.signed_microseconds,
        "percent": words.percent,
        "interval": words.interval,
        "change": lambda sides: words.change(*(words.NONE if side is None else str(side) for side in sides)),
        "plural": words.plural,
        "name": lambda text: inert(text, _LONGEST_NAME),
        "number": _number,
        "ratio": _ratio,
        "ratio_interval": _ratio_interval,
        "p": _p,
        "windows": _windows,
        "clock": charts.clock,
        "samples": _samples,
        "clocks": _clocks,
        "capturable": _capturable,
        "mebibytes": _mebibytes,
        "lead": lambda ms: f"{ms:g} ms",
    }
    return environment


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) else inert(str(value), _LONGEST)


def _pictures(drawings: Sequence[str]) -> list[Markup]:
    return [Markup(drawing) for drawing in drawings]


def _number(value: float | None) -> str:
    """A value as it is read: ``6.2042``, ``nan``, ``-``."""
    if value is None:
        return words.NONE
    return f"{value:.6g}" if math.isfinite(value) else str(write_number(value))


def _ratio(ratio: float) -> str:
    return f"{ratio:.4f}" if math.isfinite(ratio) else words.NONE


def _ratio_interval(found: Difference) -> str:
    """``[0.9993, 1.0029]``; "" where there is none."""
    if found.ratio_low is None or found.ratio_high is None:
        return ""
    return f"[{_ratio(found.ratio_low)}, {_ratio(found.ratio_high)}]"


def _p(p: float | None) -> str:
    return words.NONE if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _windows(row: Row) -> str:
    """``40, 38`` of baseline and candidate, and of how many runs where there are several."""
    found = row.difference
    if found is None:
        return words.NONE
    of_runs = f" of {', '.join(map(str, found.runs))} runs" if max(found.runs) > 1 else ""
    return f"{', '.join(map(str, found.windows))}{of_runs}"


def _samples(lane: SampleLane) -> Markup:
    """All step times in microseconds, in the order measured; ``*`` where the GPU was throttled."""
    return Markup(" ").join(
        f"{ns / 1e3:.1f}{'*' if hot else ''}" for ns, hot in zip(lane.step_ns, lane.throttled, strict=True)
    )


def _clocks(lane: SampleLane) -> Markup:
    """The clock of every window, those that follow each other with the same one together: ``1980x12 1965x3``."""
    runs: list[tuple[int | None, int]] = []
    for mhz in lane.clock_mhz:
        before, count = runs[-1] if runs else (None, 0)
        if count and before == mhz:
            runs[-1] = mhz, count + 1
        else:
            runs.append((mhz, 1))
    return Markup(" ").join(f"{words.NONE if mhz is None else mhz}\u00d7{count}" for mhz, count in runs)


def _capturable(row: Row) -> str:
    """Whether the steps of both sides can be captured in a CUDA graph."""
    found = [
        [result.graph_capture.possible if result.graph_capture else None for result in side]
        for side in (row.baseline_results, row.candidate_results)
    ]
    told = [words.NONE if not side or None in side else "yes" if all(side) else "no" for side in found]
    return words.change(*told)


def _mebibytes(sides: tuple[int | None, int | None]) -> str:
    return words.change(*(words.NONE if side is None else f"{side / 2**20:,.0f}" for side in sides))


def _known(group: GroupView, name: str) -> bool:
    """Whether any row of a group has that quantity, on either side."""
    return any(side is not None for table in group.tables for row in table.rows for side in getattr(row, name))
