"""What a check found: a result a case and variant, and the document that ``--json`` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mtp_bench.conformance.model import Case

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Result:
    """A variant in a case. ``expected_failure`` says that ``--expect-fail`` names the pair."""

    case: Case
    variant: str
    version: str
    status: str
    observed: Any = None
    expected: Any = None
    detail: str = ""
    expected_failure: bool = False

    @property
    def unexpected(self) -> bool:
        """Whether this makes the check fail: a failure that was not expected, or a pass of what should fail."""
        return (self.status == "failed") != self.expected_failure and self.status in ("passed", "failed")

    def document(self) -> dict[str, Any]:
        """One entry of ``cases``."""
        return {
            "id": self.case.id,
            "variant": self.variant,
            "version": self.version,
            "status": self.status,
            "observed": self.observed,
            "expected": self.expected,
            "detail": self.detail,
            "references": [
                {"project": ref.project, "number": ref.number, "url": ref.url} for ref in self.case.references
            ],
            "title": self.case.title,
            "property": self.case.property,
            "ranks": self.case.ranks.count if self.case.ranks else 1,
            "expected_failure": self.expected_failure,
        }


@dataclass(frozen=True)
class Report:
    """All results of a check, variant by variant, each in the order of the cases."""

    results: Sequence[Result]
    device: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing was found that ``--expect-fail`` does not name, and nothing there passes."""
        return not any(result.unexpected for result in self.results)

    @property
    def variants(self) -> list[str]:
        """The variants, in order."""
        return list(dict.fromkeys(result.variant for result in self.results))

    @property
    def cases(self) -> list[Case]:
        """The cases, in order."""
        return list({result.case.id: result.case for result in self.results}.values())

    def of(self, variant: str) -> list[Result]:
        """The results of one variant."""
        return [result for result in self.results if result.variant == variant]

    def to_json(self) -> str:
        """The document of ``check --json``."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "device": self.device,
            "environment": self.environment,
            "passed": self.passed,
            "cases": [result.document() for result in self.results],
        }
        return json.dumps(document, indent=1, allow_nan=False) + "\n"
