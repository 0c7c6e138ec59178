"""The reports in ``reports/examples/``, made again from the runs beside them (``make examples``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mtp_bench.compare import compare
from mtp_bench.report import html, markdown
from mtp_bench.results import FILE_NAME, load_run

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "reports" / "examples"


def made() -> Iterator[tuple[Path, str]]:
    """Every report with its text: of a folder that is a run, and of one whose folders are runs to compare."""
    for folder in sorted(path for path in FOLDER.iterdir() if path.is_dir()):
        if (folder / FILE_NAME).exists():
            run = load_run(folder)
            yield folder / "report.md", markdown.run_report(run)
            yield folder / "report.html", html.run_report(run)
        else:
            files = sorted(folder.glob(f"*/{FILE_NAME}"))
            sides = [(file.parent.name, [(file.parent.name, load_run(file))]) for file in files]
            command = " ".join(["mtp-bench compare", *(str(file.parent.relative_to(REPOSITORY)) for file in files)])
            comparison = compare(sides, command=command)
            yield folder / "compare.md", markdown.comparison_report(comparison)
            yield folder / "compare.html", html.comparison_report(comparison)


if __name__ == "__main__":
    for path, text in made():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(REPOSITORY))
