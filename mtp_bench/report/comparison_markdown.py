"""The nine parts of a comparison in Markdown: what failed and what got worse in the open, the rest folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mtp_bench.compare import Row
from mtp_bench.compare.summary import VERDICTS
from mtp_bench.report import columns, plots
from mtp_bench.report import comparison_words as words
from mtp_bench.report.columns import Column
from mtp_bench.report.comparison_view import ComparisonView, regressed
from mtp_bench.report.groups import GroupView, TableView
from mtp_bench.report.inert import shortened
from mtp_bench.report.plots import UNICODE, Glyphs
from mtp_bench.report.review import Section, bullets, code, fence, inline, prose, table
from mtp_bench.report.words import FROM_PYTHON, plural

WHOLE = "`mtp-bench compare --format html` has everything"
_OPEN_ROWS = 20  # of the table: with more, what did not get worse is folded
_WIDTH = 100  # of pictures

T = TypeVar("T")
Draw = Callable[[Sequence[T], int, Glyphs], Iterator[plots.Line]]

# Space goes to what a reviewer acts on first.
_FIRST, _TABLE, _RANKS, _REPRODUCTION, _SITES, _VALUES, _DISTRIBUTION, _PICTURES = range(8)


def sections(view: ComparisonView) -> Iterator[Section]:
    """Everything a comparison has to say, in the order of all reports."""
    yield Section(["# mtp-bench compare", "", f"**{prose(view.verdict)}**"])
    yield from bullets(view.failures, "Failed gates:", noun="failure", rank=_FIRST)
    yield from bullets(view.undecided, "What gates cannot tell:", noun="lack", rank=_FIRST)
    yield from bullets(view.environment_differences, "Different environments:", noun="difference", rank=_FIRST)
    yield from cautions(view)
    yield from bullets(view.notes, "What was left out, and what varies:", noun="note", rank=_FIRST)
    yield from _rows(view)
    yield from _picture(words.forest_title(view), plots.forest, view.forest)
    yield from _distribution(view)
    yield from _picture(words.RUN_ORDER, plots.run_order, view.lanes)
    yield from _sites(view)
    yield from _values(view)
    yield from _reproduction(view)


def cautions(view: ComparisonView) -> Iterator[Section]:
    """Cautions with their advice, folded."""
    items = []
    for caution in view.cautions:
        found = [f"  - {prose(f'{whom}: {detail}' if whom else detail)}" for detail, whom in caution.found]
        items.append([f"- **{caution.kind}**: {prose(caution.advice)}", *found])
    if items:
        kinds = ", ".join(caution.kind for caution in view.cautions)
        yield Section(items=items, summary=f"Cautions: {kinds}", noun="caution", rank=_FIRST)


def _rows(view: ComparisonView) -> Iterator[Section]:
    """The rows that got worse; the others below them where they are few, else folded, as single ranks always are."""
    placed_rows = [_Placed(group, table, row) for group in view.groups for table in group.tables for row in table.rows]
    found = [placed for placed in placed_rows if placed.row.decides]
    worse = [placed for placed in found if regressed(placed.row)]
    others = [placed for placed in found if not regressed(placed.row)]
    if found:
        told = f"{plural(len(worse), 'row')} of {len(found)} got worse" if worse else "No row is known to be worse"
        title = [f"{told} (slower, more syncs or worse values). {prose(_common(found))}".rstrip(), ""]
        few = len(found) <= _OPEN_ROWS
        shown = worse + others if few else worse
        yield _table(_columns(shown, found), title, rank=_FIRST) if shown else Section(title)
        if others and not few:
            counts = Counter(placed.row.verdict for placed in others)
            told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
            yield _table(_columns(others, found), summary=f"{plural(len(others), 'other row')}: {told}", rank=_TABLE)
    ranks = [placed for placed in placed_rows if not placed.row.decides]
    if ranks:
        yield _table(_columns(ranks, found), summary=f"Single ranks ({plural(len(ranks), 'row')})", rank=_RANKS)
    several = len(view.groups) > 1
    notes = [f"{group.heading}: {note}" if several else note for group in view.groups for note in group.notes]
    yield from bullets(notes, summary=f"Reasons ({len(notes)})", noun="reason", rank=_TABLE)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A row, and where it stands."""

    group: GroupView
    table: TableView
    row: Row

    @property
    def context(self) -> dict[str, str]:
        """What tables have columns for where it is not the same in all rows."""
        scope = ", harness ".join(filter(None, [self.group.scope, self.group.harness]))
        lead = self.table.leads.partition(" ")[2]
        return {"workload": self.group.workload, "scope": scope, "lead": lead, "baseline": self.group.baseline}


def _varying(found: Sequence[_Placed]) -> list[str]:
    return [key for key in found[0].context if len({placed.context[key] for placed in found}) > 1]


def _common(found: Sequence[_Placed]) -> str:
    """What is the same in all rows, as a sentence."""
    same = [f"{key} {value}" for key, value in found[0].context.items() if value and key not in _varying(found)]
    return f"In all rows: {', '.join(same)}." if same else ""


def _columns(shown: Sequence[_Placed], found: Sequence[_Placed]) -> list[Column]:
    """The table of ``shown``, with columns for what varies in all that were ``found``."""
    rows = [placed.row for placed in shown]
    names, *decision = columns.decision(rows)
    titles = {names.title, *(column.title for column in decision)}
    context = [Column(key, tuple(placed.context[key] for placed in shown), number=False) for key in _varying(found)]
    evidence = [column for column in columns.evidence(rows) if column.title not in titles]
    return [names, *context, *decision, *evidence]


def _table(
    found: Sequence[Column], title: Sequence[str] = (), summary: str = "", noun: str = "row", rank: int = 0
) -> Section:
    head, rows = table(found)
    return Section(title, head, rows, summary=summary, noun=noun, rank=rank)


def _picture(
    title: str, draw: Callable[[Sequence[T], int, Glyphs], Iterator[plots.Line]], what: Sequence[T]
) -> Iterator[Section]:
    """A picture of characters between fences, which show them in one width."""
    lines = [line for line, _ in draw(what, _WIDTH, UNICODE)]
    if lines:
        marks = fence(lines)
        yield Section(
            head=[f"{marks}text"], items=[[line] for line in lines], tail=[marks], summary=_title(title), rank=_PICTURES
        )


def _distribution(view: ComparisonView) -> Iterator[Section]:
    if view.lanes:
        where = Column("where", tuple(lane.group for lane in view.lanes), number=False)
        several = len(set(where.cells)) > 1
        name, *numbers = columns.distribution(view.lanes)
        title = [] if several else [prose(where.cells[0]), ""]
        found = [name, *([where] if several else []), *numbers]
        yield _table(found, title, summary=_title(words.DISTRIBUTION), rank=_DISTRIBUTION)


def _sites(view: ComparisonView) -> Iterator[Section]:
    items = []
    for site in view.sites:
        lines = [f"- {code(site.place)} in {code(site.function)}", *([f"  {code(site.code)}"] if site.code else [])]
        for reason, found in words.outcomes(site):
            lines += [f"  - {inline(reason)}: {inline(words.outcome_line(outcome))}" for outcome in found]
        items.append(lines)
    if items:
        changed = sum(site.changed for site in view.sites)
        told = f"{_title(words.sites_title(view))} ({plural(len(items), 'line')}, {changed} changed)"
        yield Section(items=items, summary=told, noun="line", rank=_SITES)


def _values(view: ComparisonView) -> Iterator[Section]:
    if not view.values:
        return
    where = Column("where", tuple(words.values_heading(value) for value in view.values), number=False)
    several = len(set(where.cells)) > 1
    name, *others = columns.values(view.values)
    title = [] if several else [prose(where.cells[0]), ""]
    yield _table([name, *([where] if several else []), *others], title, summary=_title(words.VALUES), rank=_VALUES)
    notes = list(words.values_notes(view.values))
    yield from bullets(notes, summary=f"What is wrong with values ({len(notes)})", noun="note", rank=_VALUES)


def _reproduction(view: ComparisonView) -> Iterator[Section]:
    items = [
        [prose(words.run_title(run)), "", *_command(run.command or FROM_PYTHON), "", prose(words.run_facts(run)), ""]
        for run in view.runs
    ]
    command = ["", *_command(view.command)] if view.command else []
    title = [prose(words.how_compared(view)), *command, ""]
    yield Section(title, items=items, summary=_title(words.REPRODUCTION), noun="run", rank=_REPRODUCTION)


def _command(text: str) -> list[str]:
    shown = shortened(text)
    marks = fence([shown])
    return [marks, shown, marks]


def _title(text: str) -> str:
    return text[0].upper() + text[1:]
