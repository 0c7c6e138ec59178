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
from mtp_bench.report import charts, columns, comparison_words, words
from mtp_bench.report.comparison_view import ComparisonView, SampleLane
from mtp_bench.report.groups import GroupView
from mtp_bench.report.inert import inert
from mtp_bench.report.job_run import job_run_view
from mtp_bench.report.lanes import PALETTE
from mtp_bench.report.view import site_views, workload_views
from mtp_bench.results import Run

if TYPE_CHECKING:
    from jinja2 import Environment

GLYPHS = {"slower": "\u25b2", "faster": "\u25bc", "same": "\u25cf", "unclear": "\u25c6", "incomparable": "\u2715"}
PAPER = ("#ffffff", "#15191d")
_LONGEST = 1_000  # characters of one text
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
    of_variants: dict[str, Any]
    if run.job is None:
        of_variants = {"headline": headline(run), "workloads": workload_views(run)}
    else:
        of_variants = {"headline": "", "rank": job_run_view(run)}  # the verdict is all there is to say
    comparison = compare([("this run", [("this run", run)])])
    return _page(
        comparison,
        title=f"mtp-bench run: {', '.join(run.workloads)}",
        first_line=words.first_line(run),
        **of_variants,
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
            parts=_parts(view),
            how_compared=comparison_words.how_compared(view),
            lacking=lacking,
            ratio_pictures=_pictures(drawn.forest(view.forest)) if drawn else [],
            distribution_pictures=_pictures(drawn.distribution(view.lanes)) if drawn else [],
            order_pictures=_pictures(drawn.run_order(view.lanes)) if drawn else [],
            **more,
        )
    )


def _parts(view: ComparisonView) -> list[tuple[str, str]]:
    """The macro of every part, which is its anchor too, and its heading."""
    named = {
        "verdict": "verdict",
        "environments": "environments and cautions",
        "table": "comparison",
        "ratios": comparison_words.forest_title(view),
        "distribution": comparison_words.DISTRIBUTION,
        "order": comparison_words.RUN_ORDER,
        "syncs": comparison_words.sites_title(view),
        "values": comparison_words.VALUES,
        "reproduce": comparison_words.REPRODUCTION,
    }
    return [(macro, f"{name[0].upper()}{name[1:]}") for macro, name in named.items()]


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
        "paper": PAPER,
        "palette": PALETTE,
        "verdicts": VERDICTS,
        "glyphs": GLYPHS,
        "legends": _LEGENDS,
        "from_python": words.FROM_PYTHON,
        "known": _known,
    }
    environment.filters |= {
        "capturable": _capturable,
        "clock": charts.clock,
        "clocks": _clocks,
        "cut": inert,
        "facts": comparison_words.run_facts,
        "heading": comparison_words.values_heading,
        "interval": words.interval,
        "known_change": words.known_change,
        "known_microseconds": lambda sides: words.known_change(sides, words.microseconds),
        "lead": "{:g} ms".format,
        "losses": lambda losses: ", ".join(words.significant(loss, 5) for loss in losses),
        "mebibytes": lambda sides: words.known_change(sides, words.mebibytes),
        "microseconds": words.microseconds,
        "name": _name,
        "percent": words.percent,
        "plural": words.plural,
        "probability": words.probability,
        "ratio": _ratio,
        "ratio_interval": _ratio_interval,
        "samples": _samples,
        "signed_microseconds": words.signed_microseconds,
        "significant": words.significant,
        "title": comparison_words.run_title,
        "windows": columns.windows,
    }
    return environment


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) else inert(str(value), _LONGEST)


def _name(text: str, limit: int = 160) -> Markup:
    """A name that reads in its own direction, whatever stands around it."""
    return Markup("<bdi>{}</bdi>").format(inert(text, limit))


def _pictures(drawings: Sequence[str]) -> list[Markup]:
    return [Markup(drawing) for drawing in drawings]


def _ratio(ratio: float) -> str:
    return f"{ratio:.4f}" if math.isfinite(ratio) else words.NONE


def _ratio_interval(found: Difference) -> str:
    """``[0.9993, 1.0029]``; "" where there is none."""
    if found.ratio_low is None or found.ratio_high is None:
        return ""
    return f"[{_ratio(found.ratio_low)}, {_ratio(found.ratio_high)}]"


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


def _known(group: GroupView, name: str) -> bool:
    """Whether any row of a group has that quantity, on either side."""
    return any(side is not None for table in group.tables for row in table.rows for side in getattr(row, name))
