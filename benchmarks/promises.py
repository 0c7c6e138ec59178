"""What mtp-bench promises of itself: how long `--help`, the first line and the whole default run on sim may take."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time

COMMAND = [sys.executable, "-m", "mtp_bench"]


def help_cpu_seconds() -> float:
    """CPU time of `mtp-bench --help`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, "--help"], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def default_run_seconds() -> tuple[float, float]:
    """Wall time until the first line of the default run on sim, and until its end."""
    with tempfile.TemporaryDirectory() as out:
        started = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, "run", "--device", "sim", "--out", out], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert process.stdout is not None
        process.stdout.readline()
        first_line = time.perf_counter() - started
        process.stdout.read()
        if process.wait() != 0:
            raise SystemExit("the default run on sim failed")
        return first_line, time.perf_counter() - started


def main() -> int:
    """Print what was promised beside the best of a few tries: the machine's other work only adds."""
    runs = [default_run_seconds() for _ in range(2)]
    rows = [
        ("mtp-bench --help, CPU", min([help_cpu_seconds() for _ in range(3)]), 0.3),
        ("default run on sim, first line", min([first for first, _ in runs]), 4.0),
        ("default run on sim, all of it", min([whole for _, whole in runs]), 20.0),
    ]
    for name, seconds, limit in rows:
        print(f"{name:<32} {seconds:6.2f} s of {limit:g} s{'' if seconds <= limit else '  too slow'}")
    return int(any(seconds > limit for _, seconds, limit in rows))


if __name__ == "__main__":
    sys.exit(main())
