"""``--expect-fail FILE``: the faults that a project knows it has, so that its CI fails for new ones alone."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mtp_bench.errors import InputError, did_you_mean


@dataclass(frozen=True)
class Line:
    """One line of the file: a variant, a glob of case ids, and where it stands."""

    variant: str
    cases: str
    where: str


@dataclass(frozen=True)
class Expectations:
    """The pairs of variant and case that are expected to fail."""

    lines: tuple[Line, ...] = ()

    @classmethod
    def read(cls, file: Path) -> Expectations:
        """Read ``file``: a variant and a case id or glob a line, ``#`` comments. InputError names the line at fault."""
        from mtp_bench.conformance import all_cases

        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--expect-fail {file}: cannot be read: {error}") from None
        ids = [case.id for case in all_cases()]
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            where = f"{file}:{number}"
            if not words:
                continue
            if len(words) != 2:
                raise InputError(f"{where}: {' '.join(words)!r}: expected variant and case, as in `original empty-*`")
            if not fnmatch.filter(ids, words[1]):
                raise InputError(f"{where}: no such case {words[1]!r}{did_you_mean(words[1], ids)}")
            variant, cases = words
            lines.append(Line(variant, cases, where))
        return cls(tuple(lines))

    def require_known(self, variants: Sequence[str]) -> None:
        """InputError for a line whose variant neither exists nor is checked."""
        from mtp_bench.variants import available_names

        known = {*variants, *available_names()}
        for line in self.lines:
            if line.variant not in known and ":" not in line.variant:
                raise InputError(f"{line.where}: no such variant {line.variant!r}{did_you_mean(line.variant, known)}")

    def names(self, variant: str, case: str) -> bool:
        """Whether the pair is expected to fail."""
        return any(line.variant == variant and fnmatch.fnmatchcase(case, line.cases) for line in self.lines)
