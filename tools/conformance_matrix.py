"""Runs ``mtp-bench check`` with every release that docs/conformance.md is about, and writes that page.

    python -m tools.conformance_matrix [--deps FOLDER] [--jobs N] [--pip-args ARGS]

Each release lies in a folder of its own, made with pip where it is missing, and runs in processes of its own: two
releases of one package cannot be imported into one. What they did is kept in docs/conformance.json;
``--page-only`` writes the page from there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mtp_bench.conformance import all_cases
from mtp_bench.megatron import versions
from tools.conformance_page import page

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "conformance.json"
PAGE = ROOT / "docs" / "conformance.md"
DEPS = ROOT / ".deps"
OVERLAP = "tools.verl_overlap:mtp_loss"
CORE_OF_VERL = "0.16.1"  # the last that verl runs a loss of its own with
TRITON = "3.8.0"  # imported by megatron-core from 0.18 on, and not part of torch's CPU build
SECONDS = 900
_LINE = re.compile(r":\d+(?= in )")  # where a rank raised: which one raises first, and so which line, is chance
_IN_DEPS = re.compile(r"[^\s\"]*verl-[\d.]+/(?=verl/)")  # where a file of verl lies here


@dataclass(frozen=True)
class Environment:
    """What one process of the check imports, and the variants that it runs: (name, title of the column) each."""

    megatron_core: str
    columns: tuple[tuple[str, str], ...]
    verl: str = ""

    def releases(self) -> list[str]:
        """The folders that it needs, by the name and version of what is in them."""
        needed = [] if versions.version() == self.megatron_core else [f"megatron_core-{self.megatron_core}"]
        if self.megatron_core >= "0.18":
            needed.append(f"triton-{TRITON}")
        return [*needed, f"verl-{self.verl}"] if self.verl else needed


ENVIRONMENTS = (
    *(
        Environment(release, (("megatron", f"megatron-core {release}"),))
        for release in ("0.14.0", "0.15.3", "0.16.1", "0.17.1", "0.18.2", "0.19.2")
    ),
    *(
        Environment(CORE_OF_VERL, (("verl", f"verl {release}"), (OVERLAP, f"verl {release}, 1F1B overlap")), release)
        for release in ("0.8.0", "0.9.1")
    ),
)
COLUMNS = [title for environment in ENVIRONMENTS for _, title in environment.columns]

Results = dict[str, dict[str, dict[str, Any]]]
"""Column -> case id -> ``status``, ``observed`` and ``detail``."""


def make(release: str, deps: Path, pip_args: Sequence[str] = ()) -> None:
    """Unpack ``release`` (``name-version``) into a folder of its own, without what it depends on."""
    if (deps / release).is_dir():
        return
    unfinished = deps / f".partial-{release}"
    shutil.rmtree(unfinished, ignore_errors=True)
    name, _, number = release.rpartition("-")
    install = ["install", "--quiet", "--no-deps", "--ignore-requires-python", "--only-binary", ":all:", *pip_args]
    command = [sys.executable, "-m", "pip", *install, "--target", str(unfinished), f"{name}=={number}"]
    subprocess.run(command, check=True)
    unfinished.rename(deps / release)


def run(environment: Environment, deps: Path = DEPS, *, ranks: bool = True) -> Results:
    """Check the variants of ``environment`` in a process of its own."""
    folders = [str(deps / release) for release in environment.releases() if not release.startswith("verl-")]
    path = os.pathsep.join([str(ROOT), *folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONPATH": path}
    if environment.verl:
        variables["MTP_BENCH_VERL"] = str(deps / f"verl-{environment.verl}")
    asked = [argument for name, _ in environment.columns for argument in ("--variant", name)]
    command = [sys.executable, "-W", "ignore", "-m", "mtp_bench", "check", *asked, "--json"]
    done = subprocess.run(
        [*command, "--ranks" if ranks else "--no-ranks"],
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{shlex.join(command)} with {environment} ended with {done.returncode}:\n{done.stderr}")
    titles = dict(environment.columns)
    found: Results = {title: {} for title in titles.values()}
    cases = {case.id: case for case in all_cases()}
    for result in json.loads(_IN_DEPS.sub("", done.stdout))["cases"]:
        case = cases[result["id"]]
        detail = result["detail"].replace(case.fault, "").strip()
        if case.ranks is not None:
            detail = _LINE.sub("", detail)
        kept = {"status": result["status"], "observed": result["observed"], "detail": detail}
        found[titles[result["variant"]]][case.id] = kept
    return found


def read() -> tuple[str, Results]:
    """What the results were made with, and the results, as they were when the page was written."""
    document = json.loads(RESULTS.read_text())
    return document["made_with"], document["results"]


def written(results: Results) -> str:
    """``results`` as JSON, a line a case, so that a difference shows which."""
    columns = (
        f'"{column}": {{\n' + ",\n".join(f' "{id_}": {json.dumps(result)}' for id_, result in found.items()) + "\n}"
        for column, found in results.items()
    )
    made_with = f"PyTorch {version('torch')}, Python {platform.python_version()}"
    return f'{{\n"made_with": "{made_with}",\n"results": {{\n' + ",\n".join(columns) + "\n}\n}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.conformance_matrix", description=__doc__.split("\n")[0])
    parser.add_argument("--deps", type=Path, default=DEPS, help="folder of the releases' folders (default: .deps)")
    parser.add_argument("--jobs", type=int, default=2, help="releases that run at a time (default: 2)")
    parser.add_argument("--pip-args", default="", help="further arguments of pip, an index say")
    parser.add_argument("--page-only", action="store_true", help="write the page from docs/conformance.json")
    options = parser.parse_args(arguments)
    if not options.page_only:
        options.deps.mkdir(exist_ok=True)
        for release in dict.fromkeys(name for environment in ENVIRONMENTS for name in environment.releases()):
            make(release, options.deps, shlex.split(options.pip_args))
        with ThreadPoolExecutor(options.jobs) as pool:
            parts = list(pool.map(lambda environment: run(environment, options.deps), ENVIRONMENTS))
        results = {column: found for part in parts for column, found in part.items()}
        RESULTS.write_text(written(results))
    PAGE.write_text(page(all_cases(), *read()))


if __name__ == "__main__":
    main()
