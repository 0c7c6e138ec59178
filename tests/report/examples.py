"""The reports in ``reports/examples/``, made again from the runs beside them (``make examples``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mtp_bench.compare import compare
from mtp_bench.report import html, markdown
from mtp_bench.results import FILE_NAME, load_run

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "reports" / "examples"


def made(examples: Path = FOLDER) -> Iterator[tuple[Path, str]]:
    """Every report with its text: of a folder that is a run, of one whose folders are runs to compare, and of a job."""
    for folder in sorted(path for path in examples.iterdir() if path.is_dir()):
        if (folder / FILE_NAME).exists():
            run = load_run(folder)
            yield folder / "report.md", markdown.run_report(run)
            yield folder / "report.html", html.run_report(run)
        else:
            files = sorted(folder.glob(f"*/{FILE_NAME}"))
            runs = [(file.parent.name, load_run(file)) for file in files]
            if all(run.job for _, run in runs):  # the ranks of a job are one side
                sides, folders = [(folder.name, runs)], [folder]
            else:
                sides, folders = [(label, [(label, run)]) for label, run in runs], [file.parent for file in files]
            root = examples.parents[1]
            command = " ".join(["mtp-bench compare", *(str(path.relative_to(root)) for path in folders)])
            comparison = compare(sides, command=command)
            yield folder / "compare.md", markdown.comparison_report(comparison)
            yield folder / "compare.html", html.comparison_report(comparison)


if __name__ == "__main__":
    for path, text in made():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(REPOSITORY))
