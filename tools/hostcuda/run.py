#!/usr/bin/env python3
"""Run Python on hostcuda: `VENV/bin/python tools/hostcuda/run.py -m pytest ...`.

What follows run.py goes to the interpreter that runs it. Builds hostcuda first where that has not been done for these
sources and this PyTorch (build/hostcuda/HASH, a few seconds).
"""

import hashlib
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import build

CACHE = build.HERE.parents[1] / "build" / "hostcuda"


def library():
    """Return the folder that holds libhostcuda.so, built if it has to be."""
    version = (build.package("torch") / "version.py").read_text()
    if re.search(r"^cuda\b.*= None", version, re.MULTILINE):
        raise SystemExit(f"hostcuda: {sys.executable} has a CPU build of PyTorch; hostcuda stands under a CUDA build")
    sources = [*build.SOURCES, "hostcuda.h", "build.py"]
    parts = [version, *((build.HERE / name).read_text() for name in sources)]
    folder = CACHE / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = pathlib.Path(tempfile.mkdtemp(dir=CACHE))
        build.build(fresh)
        try:
            fresh.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return folder


def environment(folder):
    """Return the environment in which PyTorch starts on hostcuda."""
    searched = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return os.environ | {"LD_PRELOAD": str(folder / "libhostcuda.so"), "LD_LIBRARY_PATH": ":".join(searched)}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    os.execve(sys.executable, [sys.executable, *sys.argv[1:]], environment(library()))
