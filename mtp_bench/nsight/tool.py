"""The nsys that is used: where it is, its version, the options that it knows, and what it says when it fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mtp_bench.errors import InputError, RunError
from mtp_bench.nsight.ending import kill_nsys

# Where NVIDIA's installers and Debian put nsys beside PATH.
_PLACES = (
    "opt/nvidia/nsight-systems*/*/bin/nsys",
    "opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "opt/nvidia/nsight-systems*/bin/nsys",
    "opt/nvidia/nsight-compute*/*/host/*/nsys",
    "usr/local/cuda*/bin/nsys",
    "usr/local/cuda*/nsight-systems*/bin/nsys",
    "usr/lib/nsight-systems/bin/nsys",
)
INSTALL = (
    "install NVIDIA's nsight-systems-cli, or Debian's nsight-systems from non-free, or set NSYS to the path of an nsys"
)
# From here on the nvtx package asks the tool whether a domain is enabled; nsys 2022.4 and 2023.4 do not answer, and
# every range is lost.
_NVTX_ASKS = (0, 2, 12)
_NSYS_ANSWERS = (2024,)
_ANSWER_SECONDS = 60
# An option has a line of its own in the help; where a description is wrapped before one, more words follow.
_OPTION = re.compile(r"^\s+(?:-\w, )?--([a-z][a-z0-9-]*)(?:[=\[].*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Nsys:
    """One installed nsys. ``version`` holds up to four numbers, none where it does not say them."""

    path: str
    version: tuple[int, ...]

    @property
    def name(self) -> str:
        """``nsys 2022.4.2.1``."""
        return f"nsys {numbered(self.version)}" if self.version else f"nsys ({self.path})"

    @cached_property
    def profile_options(self) -> frozenset[str]:
        """The long options of ``nsys profile``, as its own help lists them; empty where that cannot be read."""
        try:
            return self.options("profile")
        except RunError:
            return frozenset()

    def options(self, command: str) -> frozenset[str]:
        """The long options of ``nsys COMMAND``, without their dashes; those that are deprecated there left out."""
        return frozenset(_OPTION.findall(self.ask(command, "--help").stdout))

    def ask(self, *arguments: str, seconds: float = _ANSWER_SECONDS) -> subprocess.CompletedProcess[str]:
        """Run ``nsys ARGUMENTS`` and return what it says. RunError where it does not run or does not end."""
        return run_quietly([self.path, *arguments], seconds)


def run_quietly(
    command: Sequence[str], seconds: float = _ANSWER_SECONDS, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of Nsight Systems and keep what it prints. RunError where it does not run or does not end."""
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
        )
    except OSError as error:
        raise RunError(f"{command[0]} does not run: {error.strerror}") from None
    with process:
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except BaseException as error:
            kill_nsys(process.pid)
            if isinstance(error, subprocess.TimeoutExpired):
                raise RunError(f"{command[0]} {command[1]} did not end within {seconds:g} s") from None
            raise
    return subprocess.CompletedProcess(list(command), process.returncode, stdout, stderr)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a program of Nsight Systems that failed said of it: one line, without control characters."""
    return first_words(done.stderr) or first_words(done.stdout) or f"nothing, with exit code {done.returncode}"


def first_words(text: str) -> str:
    """The first line of ``text`` that says something, without control characters; progress bars are no words."""
    lines = (" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in text.splitlines())
    return next((line for line in lines if line and "%" not in line[-80:]), "")[:300]


def find(environ: Mapping[str, str] = os.environ) -> str | None:
    """The path that ``NSYS`` names, else the nsys on PATH, else the newest in the usual folders; None without one.

    Raises InputError where ``NSYS`` names no program.
    """
    asked = environ.get("NSYS")
    if asked:
        found = shutil.which(asked)
        if found is None:
            raise InputError(f"NSYS={asked}: no such program; set it to the path of nsys")
        return found
    on_path = shutil.which("nsys", path=environ.get("PATH"))
    if on_path:
        return on_path
    places = [path for pattern in _PLACES for path in Path("/").glob(pattern) if os.access(path, os.X_OK)]
    return str(max(places, key=lambda path: numbers(str(path)))) if places else None


def installed() -> Nsys:
    """The nsys that is used, with its version. InputError where there is none, RunError where it does not run."""
    path = find()
    if path is None:
        raise InputError(f"nsys is not on PATH nor in the usual folders; {INSTALL}")
    done = run_quietly([path, "--version"])
    if done.returncode != 0:
        raise RunError(f"{path} does not run: {said(done)}")
    return Nsys(path, parse_version(done.stdout))


def parse_version(text: str) -> tuple[int, ...]:
    """``(2022, 4, 2, 1)`` of what ``nsys --version`` prints."""
    return numbers(text.rpartition("version")[2])[:4]


def numbers(text: str) -> tuple[int, ...]:
    """All whole numbers in ``text``."""
    return tuple(int(digits) for digits in re.findall(r"\d+", text))


def numbered(version: Sequence[int]) -> str:
    """``2022.4.2.1``."""
    return ".".join(map(str, version))


def why_ranges_are_lost(nvtx: str | None, nsys: Sequence[int]) -> str:
    """Why no range of the package ``nvtx`` can reach ``nsys``, and what to do; "" where nothing is known against it."""
    if not nvtx:
        return "not installed: pip install nvtx, or profiles show no ranges"
    if numbers(nvtx) >= _NVTX_ASKS and len(nsys) > 1 and tuple(nsys) < _NSYS_ANSWERS:
        old = numbered(nsys[:2])
        return f"{nvtx} loses all ranges silently under nsys {old}: use nsys 2024 or later, or nvtx 0.2.11"
    return ""
