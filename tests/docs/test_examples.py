"""What README.md and docs/ show is there: Python examples run, commands and options exist, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from mtp_bench.cli import app

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCUMENTS = [README, *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = typer.main.get_command(app).commands


def blocks(document, language):
    """The fenced blocks of ``document`` in ``language``, with the line at which each begins."""
    text = document.read_text()
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if found[1] == language:
            yield text[: found.start()].count("\n") + 2, found[2]


def section(title):
    """The text of README.md from a heading to the next one."""
    return README.read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def usages():
    """Command -> what README.md's command block says of it."""
    (block,) = re.findall(r"^```\n(mtp-bench .*?)^```$", section("Commands"), re.MULTILINE | re.DOTALL)
    return {text.split()[0]: text for text in re.split(r"^mtp-bench ", block, flags=re.MULTILINE)[1:]}


def options(command):
    """Every option of a command but ``--help``."""
    parameters = COMMANDS[command].params
    names = [(name, option) for option in parameters for name in [*option.opts, *option.secondary_opts]]
    return {name: option for name, option in names if name.startswith("--")}


PYTHON = [
    pytest.param(code, id=f"{document.name}:{line}")
    for document in DOCUMENTS
    for line, code in blocks(document, "python")
]


def test_readme_has_python_examples():
    assert any(example.id.startswith("README.md:") for example in PYTHON)


@pytest.mark.parametrize("code", PYTHON)
def test_python_examples_run(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_readme_names_every_command():
    assert set(usages()) == set(COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_readme_names_every_option_of_a_command_and_no_other(command):
    named = set(re.findall(r"--[a-z][a-z-]*", usages()[command]))
    assert named == set(options(command)) - {"--help"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_examples_take_their_options(document):
    """Whatever stands behind ``mtp-bench`` or ``make`` in a block or between backticks."""
    text = document.read_text()
    code = "\n".join([*(block for _, block in blocks(document, "")), *re.findall(r"`([^`\n]+)`", text)])
    for command, rest in re.findall(r"^mtp-bench ([a-z]+)([^#\n]*)", code, re.MULTILINE):
        assert command in COMMANDS
        taken = {*options(command), *(options("run") if command == "profile" else ()), "--help"}
        assert set(re.findall(r"--[a-z][a-z-]*", rest)) <= taken
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)) <= targets


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_and_every_option_has_help(command):
    assert COMMANDS[command].help
    for parameter in COMMANDS[command].params:
        assert getattr(parameter, "help", None), f"{command} {parameter.name} has no help"
    shown = subprocess.run(
        [sys.executable, "-m", "mtp_bench", command, "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name, option in options(command).items():
        assert re.search(rf"{name}\b(?!-)", shown), name
        assert "".join(option.help.split()) in "".join(shown.split())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(document):
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
    for link in links:
        if not re.match(r"[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            assert target.exists(), link
            if anchor:
                assert anchor in anchors(target), link


def anchors(document):
    """GitHub's names of the headings of ``document``."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tree_in_the_readme_is_the_repository():
    (tree,) = re.findall(r"^```\n(mtp_bench/\n.*?)^```$", section("The repository"), re.MULTILINE | re.DOTALL)
    for line in tree.splitlines():
        name, folder = line.split()[0].rstrip(","), ROOT / "mtp_bench" if line.startswith("  ") else ROOT
        goes_on = line.startswith("   ")
        assert goes_on or (folder / name).exists(), name
        for module in re.findall(r"\b\w+\.py\b", line):
            assert (folder / module).exists() or (folder / name / module).exists(), module
