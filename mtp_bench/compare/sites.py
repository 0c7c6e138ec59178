"""Syncs by call site, of the baseline and of a candidate: which lines came, which went, which only moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mtp_bench.results import Site, Syncs

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


def site_changes(baseline: Syncs | None, candidate: Syncs | None) -> tuple[SiteChange, ...]:
    """Every line whose number of syncs changed, and every one that moved, in the baseline's order, new ones last.

    None where the syncs of one side are not known.
    """
    if baseline is None or candidate is None:
        return ()
    before, after = _by_place(baseline), _by_place(candidate)
    moved = _moved(before, after)
    stand_now = {place: moved.get(place, place) for place in before}
    came = [place for place in after if place not in stand_now.values()]
    changes = []
    for was, now in [*stand_now.items(), *((place, place) for place in came)]:
        sites = after.get(now, []), before.get(was, [])
        count, count_before = (sum(site.count for site in found) for found in sites)
        if count != count_before or was != now:
            site = (sites[0] or sites[1])[0]
            changes.append(
                SiteChange(
                    site.file,
                    site.line,
                    site.function,
                    site.code,
                    site.op,
                    site.kind,
                    count_before,
                    count,
                    moved_from=was[0] if was != now else None,
                )
            )
    return tuple(changes)


def _by_place(syncs: Syncs) -> dict[_Place, list[Site]]:
    sites: dict[_Place, list[Site]] = {}
    for site in syncs.sites:
        sites.setdefault((site.line, site.file, site.function, site.code, site.op, site.kind), []).append(site)
    return sites


def _moved(before: Iterable[_Place], after: Iterable[_Place]) -> dict[_Place, _Place]:
    """Places of the baseline that stand elsewhere now, with their new place: the same code of the same function.

    Where the code stands as often as before, by its order, since lines above have moved all of it; else what is still
    in its line stays there.
    """
    old, new = _by_code(before), _by_code(after)
    moved: dict[_Place, _Place] = {}
    for code, was in old.items():
        now = new.get(code, [])
        if len(was) == len(now):
            moved |= {place: to for place, to in zip(was, now, strict=True) if place != to}
        else:
            moved |= zip(sorted({*was} - {*now}), sorted({*now} - {*was}), strict=False)
    return moved


def _by_code(places: Iterable[_Place]) -> dict[tuple[str, ...], list[_Place]]:
    """Places by all but their line, in the order of lines; what has no code cannot be recognised elsewhere."""
    found: dict[tuple[str, ...], list[_Place]] = {}
    for place in sorted(places):
        if place[3]:
            found.setdefault(place[1:], []).append(place)
    return found
