"""Time and memory of `mtp-bench import` against the size of a capture, and against `nsys stats` on the same file.

    python -m benchmarks.import_nsys [--rows 10000,100000,...] [--nsys-to ROWS] [--keep FOLDER] [CAPTURE...]

Captures are made in the schema of nsys 2026.2 and in the proportions of a real one of two H100s (to 225 CUDA calls one
sync, 31 copies, 121 kernels and 580 NVTX ranges, up to 5 deep), for eight processes of three threads: the main one,
autograd's, and one that asks for events. `import` runs as a user runs it, its start included, and so does `nsys stats`,
with its summaries of CUDA calls and of NVTX ranges; each once untimed first, so that both find the file in memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.nsight.captures import columns, create_table, global_pid, global_tid, write_meta

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
LIMIT_SECONDS, LIMIT_BYTES = 60.0, 2e9  # of the largest
EIGHT_RANKS, EIGHT_RANKS_SECONDS = 1_000_000, 10.0  # five steps of eight ranks
SCHEMA, VERSION = "3.25.0", "2026.2.1.210"
PROCESSES, STEPS = 8, 5
CYCLE = 225  # calls of which one is a sync
REPORTS = (("cuda_api_sum", "nvtx_sum"), ("cudaapisum", "nvtxsum"))  # named so from nsys 2023.1 on, and before

RUNTIME, KERNEL, MEMCPY, SYNC, NVTX = TABLES = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
)
WRITTEN = {
    RUNTIME: "start end eventClass globalTid correlationId nameId returnValue",
    KERNEL: "start end deviceId contextId streamId correlationId globalPid demangledName shortName",
    MEMCPY: "start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind",
    SYNC: "start end deviceId contextId streamId correlationId globalPid syncType eventId",
    NVTX: "start end eventType text globalTid domainId",
}
CALLS = ("cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaStreamSynchronize_v3020", "cudaEventQuery_v3020")
CALLS += ("cudaEventRecord_v3020", "cudaStreamWaitEvent_v3020", "gemm_kernel")
LAUNCH, COPY, SYNCHRONIZE, QUERY, RECORD, WAIT, GEMM = range(1, len(CALLS) + 1)
DEPTHS = (1, 2, 3, 4, 3)
OPERATORS = ("aten::linear", "aten::addmm", "aten::to", "aten::_to_copy", "aten::copy_")
SYNC_TYPES = {SYNCHRONIZE: 3, QUERY: 1, WAIT: 2}
Row = tuple[str, tuple[int | str, ...]]


class Rank:
    """One process of a capture: rows, each with the table it goes to, of ``calls`` calls of CUDA."""

    def __init__(self, number: int, calls: int) -> None:
        process = 1000 + number
        self.number, self.calls, self.step_calls = number, calls, max(2, calls // STEPS)
        self.main, self.autograd, self.watchdog = (global_tid(process, process + thread) for thread in range(3))
        self.pid = global_pid(process)
        self.device_free = 0  # when the device has done what it was given

    def rows(self) -> Iterator[Row]:
        """All rows, call by call."""
        now = step_start = backward_start = 1_000_000_000
        for index in range(self.calls):
            in_step = index % self.step_calls
            start = now
            for table, values in self._call(index, start, in_step > self.step_calls // 2):
                if table == RUNTIME:
                    now = int(values[1])
                yield table, values
            now += 1_000 if index % CYCLE == 0 else 2_500
            if in_step == self.step_calls // 2:
                backward_start = now - 1_200
            if in_step == self.step_calls - 1:
                yield NVTX, (backward_start, now - 100, 60, "backward", self.main, 1)
                yield NVTX, (step_start - 1_100, now, 60, "step", self.main, 1)
                step_start = now + 1_200

    def _call(self, index: int, start: int, in_backward: bool) -> Iterator[Row]:
        """One call, the ranges around it, and what it has the device do."""
        in_cycle, correlation = index % CYCLE, index + 1
        name, took = _name_and_duration(in_cycle)
        thread = self.watchdog if name == QUERY else self.autograd if in_backward else self.main
        end = max(start + took, self.device_free + 5_000 if name == SYNCHRONIZE else 0)
        yield RUNTIME, (start, end, 0, thread, correlation, name, 0)
        if name == COPY:
            kind, source, target, size = (1, 0, 2, 8) if in_cycle == 0 else (8, 2, 2, 4_718_592)
            place = (*self._run(start, 1_500), self.number, 1, 7, correlation, self.pid)
            yield MEMCPY, (*place, size, kind, source, target)
        elif name == LAUNCH:
            yield KERNEL, (*self._run(end, 7_000), self.number, 1, 7, correlation, self.pid, GEMM, GEMM)
        elif name in SYNC_TYPES:
            yield SYNC, (start, end, 0, 1, 7, correlation, self.pid, SYNC_TYPES[name], 0)
        if in_cycle != 1:  # the ranges around a copy are around its synchronisation too
            is_copy = in_cycle == 0
            last = max(end + 110_000, self.device_free + 10_000) if is_copy else end
            for depth in range(3 if is_copy else DEPTHS[index % 5]):
                text = f"{OPERATORS[(depth + 2) % 5 if is_copy else depth]}, op_id = {self._operator(index, depth)}"
                yield NVTX, (start - 900 + depth * 100, last + 900 - depth * 100, 59, text, thread, 0)

    def _run(self, given: int, took: int) -> tuple[int, int]:
        """When the device does something that it was ``given`` then."""
        start = max(self.device_free, given)
        self.device_free = start + took
        return start, self.device_free

    def _operator(self, index: int, depth: int) -> int:
        """Numbers of operators: those of two ranks rarely meet with the same name, as in a real capture."""
        return (self.number * 1_000_003) + index * 5 + depth


def _name_and_duration(in_cycle: int) -> tuple[int, int]:
    """Which call comes at a place of the cycle, and how long it takes in ns."""
    if in_cycle in (0, 1):  # a blocking copy: the device is waited for in the second call
        return (COPY, 12_000) if in_cycle == 0 else (SYNCHRONIZE, 6_000)
    if in_cycle % 56 == 7:
        return QUERY, 2_000
    if in_cycle % 7 == 3:
        return COPY, 6_000
    if in_cycle % 15 < 9:
        return LAUNCH, 5_000
    return (WAIT if in_cycle % 30 == 29 else RECORD), 1_500


def make_capture(path: Path, calls: int) -> None:
    """Write a capture with ``calls`` calls of CUDA."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    write_meta(connection, SCHEMA, VERSION)
    create_table(connection, "StringIds", columns("StringIds", SCHEMA))
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(CALLS, 1))
    inserts = {}
    for table in TABLES:
        create_table(connection, table, columns(table, SCHEMA))
        names = WRITTEN[table].split()
        listed = ", ".join(f'"{name}"' for name in names)
        inserts[table] = f"INSERT INTO {table} ({listed}) VALUES ({', '.join('?' * len(names))})"
    domains = [(0, 75, "mtp_bench", global_tid(1000 + number, 1000 + number), 1) for number in range(PROCESSES)]
    connection.executemany(
        'INSERT INTO NVTX_EVENTS ("start", eventType, text, globalTid, domainId) VALUES (?, ?, ?, ?, ?)', domains
    )
    waiting: dict[str, list[tuple[int | str, ...]]] = {table: [] for table in TABLES}
    for number in range(PROCESSES):
        for table, values in Rank(number, calls // PROCESSES).rows():
            rows = waiting[table]
            rows.append(values)
            if len(rows) == 20_000:
                connection.executemany(inserts[table], rows)
                rows.clear()
    for table, rows in waiting.items():
        connection.executemany(inserts[table], rows)
    connection.commit()
    connection.close()


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def cost_of(command: list[str]) -> Cost:
    """Run ``command`` to its end; the peak is that of the largest process of it."""
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{said}")
    return Cost(time.perf_counter() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def best_of(commands: list[list[str]], tries: int) -> list[Cost]:
    """The quickest of ``tries`` of each, in turns, after one that does not count: other work only adds."""
    rounds = [[cost_of(command) for command in commands] for _ in range(tries + 1)]
    return [min(costs, key=lambda cost: cost.seconds) for costs in zip(*rounds[1:], strict=True)]


def stats_command(nsys: str, capture: Path) -> list[str]:
    """`nsys stats` with its summaries of CUDA calls and NVTX ranges."""
    known = subprocess.run([nsys, "stats", "--help-reports"], capture_output=True, text=True, check=False).stdout
    reports = next((names for names in REPORTS if names[0] in known), REPORTS[0])
    options = [option for name in reports for option in ("--report", name)]
    return [nsys, "stats", *options, "--format", "csv", "--output", "-", str(capture)]


def main() -> int:
    """Make, read and compare; say what is too slow, too large or slower than nsys."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(map(str, SIZES)), help="numbers of CUDA calls, separated by commas")
    parser.add_argument("--nsys-to", type=int, default=SIZES[-2], help="largest capture that nsys stats reads too")
    parser.add_argument("--keep", type=Path, help="folder in which to keep the captures, and look for them")
    parser.add_argument("captures", nargs="*", type=Path, help="captures to read as well, real ones say")
    arguments = parser.parse_args()
    nsys = os.environ.get("NSYS") or shutil.which("nsys")
    if nsys is None:
        print("nsys is not installed here: no comparison with nsys stats")
    too_much = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sizes = [int(size) for size in arguments.rows.split(",") if size]
        print(
            f"{'CUDA calls':>20} {'file':>9} {'import':>9} {'CPU':>9} {'peak':>9} {'us a call':>9} "
            f"{'nsys stats':>10} {'ratio':>6}"
        )
        for name, calls in [*((str(path), None) for path in arguments.captures), *((f"{n:,}", n) for n in sizes)]:
            path = Path(name) if calls is None else folder / f"capture-{calls}.sqlite"
            if not path.exists():
                make_capture(path, calls or 0)
            too_much |= measure(name[-20:], path, calls, nsys if (calls or 0) <= arguments.nsys_to else None)
            if calls is not None and arguments.keep is None:
                path.unlink()
    return int(too_much)


def measure(name: str, path: Path, calls: int | None, nsys: str | None) -> bool:
    """Print a row of the table; whether it shows too much."""
    commands = [[sys.executable, "-m", "mtp_bench", "import", str(path)]]
    if nsys:
        commands.append(stats_command(nsys, path))
    ours, *others = best_of(commands, tries=1 if (calls or 0) > 100_000 else 7)
    theirs = others[0] if others else None
    wrong = []
    if calls and calls >= SIZES[-1] and (ours.seconds > LIMIT_SECONDS or ours.peak_bytes > LIMIT_BYTES):
        wrong.append(f"more than {LIMIT_SECONDS:g} s or {LIMIT_BYTES / 1e9:g} GB")
    if calls == EIGHT_RANKS and ours.seconds > EIGHT_RANKS_SECONDS:
        wrong.append(f"more than {EIGHT_RANKS_SECONDS:g} s")
    if theirs and ours.seconds > theirs.seconds:
        wrong.append("slower than nsys stats")
    a_call = f"{ours.cpu_seconds / calls * 1e6:.2f}" if calls else "-"
    compared = f"{theirs.seconds:8.2f} s {ours.seconds / theirs.seconds:6.2f}" if theirs else f"{'-':>10} {'-':>6}"
    print(
        f"{name:>20} {path.stat().st_size / 1e6:6.0f} MB {ours.seconds:7.2f} s {ours.cpu_seconds:7.2f} s "
        f"{ours.peak_bytes / 1e6:6.0f} MB {a_call:>9} {compared}  {'; '.join(wrong)}".rstrip(),
        flush=True,
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
