"""The report in Markdown, in the terminal's order; it pastes into a review, so it stays below GitHub's 64 KB."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mtp_bench.compare import Comparison, Row
from mtp_bench.differences import Difference
from mtp_bench.headline import headline
from mtp_bench.report.view import SiteView, WorkloadView, site_views, workload_views
from mtp_bench.report.words import (
    NONE,
    change,
    comparison_notes,
    environment_line,
    first_line,
    interval,
    microseconds,
    percent,
    plural,
    signed_microseconds,
)
from mtp_bench.results import Run

MAX_CHARS = 60_000


def run_report(run: Run) -> str:
    """The report of a run."""
    lines = ["# mtp-bench", "", first_line(run), "", f"**{headline(run)}**", ""]
    for view in workload_views(run):
        lines += [*_workload(view), ""]
    ending = [
        "## How it was run",
        "",
        "```",
        run.command or "mtp_bench.run(...) from Python",
        "```",
        "",
        environment_line(run),
        "",
    ]
    room = MAX_CHARS - len("\n".join([*lines, *ending]))
    return "\n".join([*lines, *_sites(site_views(run), room), "", *ending])


def comparison_report(comparison: Comparison) -> str:
    """The report of a comparison."""
    lines = ["# mtp-bench compare", ""]
    if comparison.environment_differences:
        lines += ["Different environments:", "", *(f"- {_text(d)}" for d in comparison.environment_differences), ""]
    header = ["workload", "scope", "lead ms", "baseline", "candidate", "verdict", "difference us", "98 % interval", "%"]
    rows = [[*_comparison_cells(row)] for row in comparison.rows]
    lines += _table([*header, "syncs a step", "values"], rows, numbers={2, 6, 7, 8})
    notes = [note for row in comparison.rows for note in comparison_notes(row)]
    lines += ["", *(f"- {_text(note)}" for note in dict.fromkeys(notes))]
    if comparison.failures:
        lines += ["", "Failed:", "", *(f"- {_text(failure)}" for failure in comparison.failures)]
    return _cut("\n".join(lines).rstrip() + "\n")


def _workload(view: WorkloadView) -> Iterator[str]:
    title = f" ({view.title})" if view.title else ""
    yield f"## {view.name}{title}"
    yield ""
    yield f"Scope {view.scope}, lead {view.lead_ms:g} ms; differences are from {view.baseline}."
    yield ""
    unit = "us a step, modelled" if view.modelled else "us a step"
    header = ["variant", "values", "syncs a step", "capturable", unit, "difference", "%"]
    if not view.modelled:
        header.append("98 % interval")
    header.append(f"device idle us{', modelled' if view.modelled else ''}")
    if not view.modelled:
        header.append("bound")
    rows = []
    for row in view.rows:
        cells = [
            f"`{row.variant}`",
            row.values,
            NONE if row.syncs is None else str(row.syncs),
            {True: "yes", False: "no", None: NONE}[row.capturable],
            microseconds(row.step_ns),
            _difference(row.difference, row.variant == view.baseline),
            percent(row.difference) if row.difference else "",
        ]
        if not view.modelled:
            cells.append(interval(row.difference) if row.difference else "")
        cells.append(microseconds(row.device_idle_ns))
        if not view.modelled:
            cells.append(row.bound or NONE)
        rows.append(cells)
    yield from _table(header, rows, numbers=set(range(2, 8 if view.modelled else 9)) - {3})
    if view.leads:
        yield ""
        yield from _leads(view)
    if view.notes:
        yield ""
        yield from (f"- {_text(note)}" for note in view.notes)


def _leads(view: WorkloadView) -> Iterable[str]:
    unit = "us a step, modelled" if view.modelled else "us a step"
    header = [unit, *(f"lead {lead:g} ms" for lead in view.leads_ms), *(f"difference, {x:g} ms" for x in view.leads_ms)]
    rows = [
        [
            f"`{row.variant}`",
            *map(microseconds, row.step_ns),
            *(_difference(found, row.variant == view.baseline) for found in row.difference),
        ]
        for row in view.leads
    ]
    return _table(header, rows, numbers=set(range(1, len(header))))


def _sites(sites: Sequence[SiteView], room: int) -> Iterator[str]:
    """The call sites, folded; as many as there is ``room`` for."""
    if not sites:
        yield "No syncs."
        return
    yield f"<details><summary>Syncs a step by call site ({plural(len(sites), 'line')})</summary>"
    yield ""
    room -= 500
    for index, site in enumerate(sites):
        lines = [f"- `{site.place}` in `{site.function}`", *([f"  `` {site.code} ``"] if site.code else [])]
        lines += [
            f"  - {reason.kind}, `{reason.op}`, in {reason.range}: {_text('; '.join(reason.counts))}"
            for reason in site.reasons
        ]
        room -= sum(len(line) + 1 for line in lines)
        if room < 0:
            yield f"- {plural(len(sites) - index, 'more line')} in run.json"
            break
        yield from lines
    yield ""
    yield "</details>"


def _comparison_cells(row: Row) -> Iterator[str]:
    found = row.difference
    base, cand = row.baseline_result, row.candidate_result
    yield from (row.workload, row.scope, f"{row.lead_ms:g}", row.baseline, row.candidate, row.verdict)
    yield _difference(found, False) + (" (modelled)" if found and row.modelled else "")
    yield (interval(found) or NONE) if found else NONE
    yield percent(found) if found else NONE
    yield change(*(str(side.syncs.count) if side and side.syncs else NONE for side in (base, cand)))
    yield change(*(side.numerics.status if side and side.numerics else NONE for side in (base, cand)))


def _difference(found: Difference | None, is_baseline: bool) -> str:
    return signed_microseconds(found.ns) if found else ("baseline" if is_baseline else NONE)


def _table(header: list[str], rows: list[list[str]], numbers: set[int]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join('---:' if index in numbers else '---' for index in range(len(header)))}|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |"


def _text(text: str) -> str:
    """One line that Markdown shows as it is."""
    return " ".join(text.split()).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def _cut(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    kept = text[:MAX_CHARS].rpartition("\n")[0]
    return f"{kept}\n\nCut here to fit a review; `--format json` has everything.\n"
