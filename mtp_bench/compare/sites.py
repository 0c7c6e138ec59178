"""Syncs by call site, of the baseline and of a candidate: which lines came, which went, which only moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mtp_bench.results import Result, Site

_Place = tuple[int, str, str, str, str, str]  # line, file, function, code, op, kind


@dataclass(frozen=True, slots=True)
class SiteChange:
    """Syncs a step at one line, in the baseline and in the candidate.

    ``moved_from`` is the line of the baseline where the same code of the same function stands elsewhere in the file.
    """

    file: str
    line: int
    function: str
    code: str
    op: str
    kind: str
    before: int
    after: int
    moved_from: int | None = None

    @property
    def count(self) -> int:
        """Syncs more than in the baseline; negative for fewer."""
        return self.after - self.before


def site_changes(baseline: Result, candidate: Result) -> tuple[SiteChange, ...]:
    """Every line whose number of syncs changed, and every one that moved, in the baseline's order, new ones last."""
    before, after = _by_place(baseline), _by_place(candidate)
    origins = _moved(before, after)
    came_from = {place: origin for origin, place in origins.items()}
    changes = []
    for place in dict.fromkeys([*before, *after]):
        if place in origins:
            continue  # told of where it stands now
        origin = came_from.get(place)
        was, now = before.get(origin or place, []), after.get(place, [])
        counts = sum(site.count for site in was), sum(site.count for site in now)
        if counts[0] != counts[1] or origin is not None:
            site = (now or was)[0]
            changes.append(
                SiteChange(
                    site.file,
                    site.line,
                    site.function,
                    site.code,
                    site.op,
                    site.kind,
                    *counts,
                    moved_from=origin[0] if origin else None,
                )
            )
    return tuple(changes)


def _by_place(result: Result) -> dict[_Place, list[Site]]:
    sites: dict[_Place, list[Site]] = {}
    for site in result.syncs.sites if result.syncs else []:
        sites.setdefault((site.line, site.file, site.function, site.code, site.op, site.kind), []).append(site)
    return sites


def _moved(before: Iterable[_Place], after: Iterable[_Place]) -> dict[_Place, _Place]:
    """Places of the baseline that are gone, with the new place in the same function that has their code; by line."""
    before, after = set(before), set(after)
    new: dict[tuple[str, ...], list[_Place]] = {}
    for place in sorted(after - before):
        new.setdefault(place[1:], []).append(place)
    moved = {}
    for place in sorted(before - after):
        _, _, _, code, _, _ = place
        if code and new.get(place[1:]):
            moved[place] = new[place[1:]].pop(0)
    return moved
