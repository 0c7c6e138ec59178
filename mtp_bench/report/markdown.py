"""The report in Markdown, in the terminal's order; it pastes into a review, so it stays below GitHub's 64 KB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mtp_bench.compare import Comparison, Difference, Row
from mtp_bench.compare.headline import headline
from mtp_bench.report.view import LeadRow, SiteView, WorkloadView, site_views, workload_views
from mtp_bench.report.words import (
    NONE,
    change,
    comparison_groups,
    comparison_notes,
    environment_line,
    first_line,
    has_results,
    interval,
    microseconds,
    percent,
    plural,
    signed_microseconds,
    whole_microseconds,
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
    rows = [[*_comparison_cells(row)] for row in comparison.rows if has_results(row)]
    if rows:
        lines += _table([*header, "syncs a step", "values"], rows, numbers={2, 6, 7, 8})
    notes = [f"{rows[0].workload}: {note}" for rows in comparison_groups(comparison) for note in comparison_notes(rows)]
    lines += ["", *(f"- {_text(note)}" for note in dict.fromkeys([*notes, *comparison.notes]))]
    if comparison.judgement.failures:
        lines += ["", "Failed:", "", *(f"- {_text(failure)}" for failure in comparison.judgement.failures)]
    if comparison.judgement.undecided:
        lines += ["", "Cannot tell:", "", *(f"- {_text(lack)}" for lack in comparison.judgement.undecided)]
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
    if not view.steps_agree and len(view.leads_ms) > 1 and view.leads:
        yield ""
        yield from _by_lead(view, "", ("a step", "difference"), _step_cells)
    if view.host_known:
        yield ""
        yield from _by_lead(view, "host's side: ", ("to enqueue a step", "ahead at entry"), _host_cells)
    notes = [*([view.steps_agree] if view.steps_agree else []), *view.notes]
    if notes:
        yield ""
        yield from (f"- {_text(note)}" for note in notes)


def _by_lead(
    view: WorkloadView, what: str, titles: tuple[str, str], cells: Callable[[LeadRow, WorkloadView], list[str]]
) -> Iterable[str]:
    """Two quantities of every variant, each at every lead."""
    columns = [f"{title}, lead {lead:g} ms" for title in titles for lead in view.leads_ms]
    header = [f"{what}us{', modelled' if view.modelled else ''}", *columns]
    rows = [[f"`{row.variant}`", *cells(row, view)] for row in view.leads]
    return _table(header, rows, numbers=set(range(1, len(header))))


def _step_cells(row: LeadRow, view: WorkloadView) -> list[str]:
    baseline = row.variant == view.baseline
    return [*map(microseconds, row.step_ns), *(_difference(found, baseline) for found in row.difference)]


def _host_cells(row: LeadRow, view: WorkloadView) -> list[str]:
    return [*map(whole_microseconds, row.host_ns), *map(whole_microseconds, row.lead_ns)]


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
    lead = NONE if row.lead_ms is None else f"{row.lead_ms:g}"
    yield from (row.workload, row.scope, lead, row.baseline, row.candidate, row.verdict)
    yield _difference(found, False) + (" (modelled)" if found and row.modelled else "")
    yield (interval(found) or NONE) if found else NONE
    yield percent(found) if found else NONE
    yield change(*(NONE if count is None else str(count) for count in row.syncs))
    yield change(*(status or NONE for status in row.values))


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
