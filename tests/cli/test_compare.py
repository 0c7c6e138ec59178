"""``mtp-bench compare`` from outside: what it prints where, its exit codes, and that nothing breaks it or is lost."""

import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from mtp_bench import cli
from tests import runs
from tests.compare.sides import gpu_run, measured, mine

FORMATS = ("terminal", "markdown", "html", "json", "junit")
STEADY = [10_000.0 + window % 5 for window in range(20)]
NOISY = [10_000.0, 12_000.0] * 10


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def compare(*arguments):
    return CliRunner().invoke(cli.app, ["compare", *map(str, arguments)], env={"COLUMNS": "80"})


def write(**named):
    """Runs in folders of their names."""
    for name, run in named.items():
        run.write(Path(name))


def document(*arguments):
    """What ``--format json`` says."""
    done = compare(*arguments, "--format", "json")
    assert done.stderr == ""
    return json.loads(done.stdout)


def verdicts(*arguments):
    return [(row["candidate"], row["verdict"], row["reason"]) for row in document(*arguments)["rows"]]


def shell(*arguments, **environment):
    """The command as a process of its own; standard output as bytes."""
    return subprocess.run(
        [sys.executable, "-m", "mtp_bench", "compare", *arguments],
        capture_output=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2]), **environment},
    )


def test_the_variants_of_a_run_are_compared_with_original_or_the_one_asked_for():
    write(one=runs.modelled_run([1.0]))
    assert {row["baseline"] for row in document("one")["rows"]} == {"original"}
    found = document("one", "--baseline", "sync_free")
    assert {row["baseline"] for row in found["rows"]} == {"sync_free"}
    assert len(found["rows"]) == 8


def test_runs_are_compared_with_the_first_or_the_one_asked_for():
    write(a=runs.run([mine(1.0)]), b=runs.run([mine(1.0)]), c=runs.run([mine(1.0)]))
    assert [(row["baseline"], row["candidate"]) for row in document("a", "b", "c")["rows"]] == [
        ("mine (a)", "mine (b)"),
        ("mine (a)", "mine (c)"),
    ]
    assert [(row["baseline"], row["candidate"]) for row in document("a", "b", "c", "--baseline", "b")["rows"]] == [
        ("mine (b)", "mine (a)"),
        ("mine (b)", "mine (c)"),
    ]


def test_globs_and_folders_are_sides_of_several_runs():
    for name in ("main-1", "main-2", "night/1", "night/2"):
        write(**{f"runs/{name}": gpu_run(measured(*STEADY), cpu=runs.Cpu(model=name, count=8, affinity=8))})
    found = document("runs/main-*", "runs/night")
    assert found["sides"] == [
        {"label": "main-*", "runs": ["main-1", "main-2"]},
        {"label": "night", "runs": ["1", "2"]},
    ]
    assert [(row["candidate"], row["runs"]) for row in found["rows"]] == [
        ("mine (night)", {"baseline": 2, "candidate": 2})
    ]


def test_a_threshold_a_selection_and_an_order_reach_the_comparison():
    write(one=runs.modelled_run())
    found = document("one", "--threshold", "200us", "--select", "workload=packed-*", "--select", "lead=1")
    assert found["threshold"] == {"us": 200.0, "percent": 0.0}
    assert {(row["workload"], row["lead_ms"]) for row in found["rows"]} == {("packed-sft", 1.0)}
    ratios = [row["ratio"] for row in document("one", "--sort", "ratio")["rows"]]
    assert ratios == sorted(ratios, reverse=True)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 0),
        (["--fail-on", "values"], 0),
        (["--fail-on", "syncs"], 1),
        (["--fail-on", "syncs>3"], 0),
        (["--fail-on", "slower"], 1),
        (["--fail-on", "slower>2%"], 0),
        (["--fail-on", "slower>2%,syncs>3,values,unclear"], 0),
        (["--fail-on", "values", "--fail-on", "syncs"], 1),
        (["--fail-on", "values", "--threshold", "5%"], 0),
        (["--fail-on", "slower", "--threshold", "5%"], 0),
    ],
)
@pytest.mark.parametrize("format_", FORMATS)
def test_exit_codes_are_the_gates_in_every_format(format_, options, code):
    write(a=runs.run([mine(10_000.0)]), b=runs.run([mine(10_100.0, syncs=runs.syncs(runs.site(3)))]))
    done = compare("a", "b", *options, "--format", format_)
    assert (done.exit_code, done.stderr) == (code, "")


@pytest.mark.parametrize("format_", FORMATS)
def test_what_a_gate_found_is_said_in_every_format(format_):
    write(a=runs.run([mine(10_000.0)]), b=runs.run([mine(10_100.0)]))
    shown = " ".join(compare("a", "b", "--fail-on", "slower>20us", "--format", format_).stdout.split())
    assert re.search(r"slower(>|&gt;)20us.*slower than .?mine.? \(.?a.?\) by 100\.0 us a step", shown)


def test_a_gate_that_cannot_tell_is_3():
    write(a=gpu_run(measured(*NOISY)), b=gpu_run(measured(*NOISY[::-1])))
    assert compare("a", "b").exit_code == 0
    assert compare("a", "b", "--fail-on", "slower").exit_code == 3
    assert compare("a", "b", "--fail-on", "unclear").exit_code == 1
    assert compare("a", "b", "--fail-on", "syncs,values").exit_code == 0


def test_incomparable_is_3_without_a_gate():
    write(a=gpu_run(measured(*STEADY)), b=runs.run([mine(1.0)]))
    assert compare("a", "b").exit_code == 3
    assert compare("a", "b", "--fail-on", "syncs").exit_code == 0
    assert compare("a", "b", "--fail-on", "slower").exit_code == 3


def test_a_document_is_all_that_is_on_standard_output():
    write(a=runs.modelled_run(), b=runs.modelled_run())
    json.loads(compare("a", "b", "--format", "json").stdout, parse_constant=pytest.fail)
    assert ElementTree.fromstring(compare("a", "b", "--format", "junit").stdout.encode()).tag == "testsuites"
    html = compare("a", "b", "--format", "html").stdout
    assert html.lower().startswith("<!doctype html>")
    assert html.rstrip().endswith("</html>")
    assert compare("a", "b", "--format", "markdown").stdout.startswith("# mtp-bench compare")


USAGE = [
    (["--baseline", "patchd"], "error: --baseline 'patchd': no such variant in this run; did you mean 'patched'?"),
    (
        ["--threshold", "2"],
        "error: --threshold '2': expected a time, a percentage or both, as in 10us, 0.5% or 20us,1%",
    ),
    (["--threshold", "-1%"], "error: --threshold '-1%': expected a time, a percentage or both"),
    (["--select", "workload"], "error: --select 'workload': expected KEY=GLOB with a key of workload, scope"),
    (["--select", "varaint=x"], "error: --select 'varaint=x': expected KEY=GLOB with a key of"),
    (["--select", "variant=patchd"], "error: --select variant=patchd: nothing matches"),
    (["--select", "workload=padded-sft", "--select", "variant=orig*"], "error: --select "),
    (["--fail-on", "slow"], "error: --fail-on 'slow': no such gate; did you mean 'slower'?"),
    (["--fail-on", "slower>2"], "error: --fail-on slower>2: '2': expected a time, a percentage or both"),
    (["--fail-on", ""], "error: --fail-on '': expected names separated by commas"),
    (["--fail-on", "syncs,,values"], "error: --fail-on 'syncs,,values': expected names separated by commas"),
]


@pytest.mark.parametrize(("options", "message"), USAGE, ids=lambda value: " ".join(value) if value else "")
def test_wrong_usage_is_one_line_and_2(options, message):
    write(one=runs.modelled_run([1.0]))
    done = compare("one", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["one", "--sort", "size"], ["one", "--format", "xml"], ["one", "--nonsense"]])
def test_wrong_usage_of_the_command_line_is_2(options):
    write(one=runs.modelled_run([1.0]))
    done = compare(*options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_a_baseline_of_several_runs_names_one_of_them():
    write(main=runs.modelled_run([1.0]), branch=runs.modelled_run([1.0]))
    done = compare("main", "branch", "--baseline", "brnch")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: --baseline 'brnch': of several runs it names one of them; did you mean 'branch'?\n"


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "error: broken/run.json:1: not JSON: the file is empty"),
        ('{"schema_version": 1,', "error: broken/run.json:1: cut off: the file ends in the middle; run it again"),
        ('{"schema_version": 2}', "error: broken/run.json: written by a newer mtp-bench (schema_version 2"),
        ('{"schema_version": 0}', "error: broken/run.json: schema_version: no mtp-bench wrote 0, this one reads 1"),
        ("{}", "error: broken/run.json: not a run of mtp-bench: it has no schema_version"),
    ],
)
def test_one_broken_run_of_many_is_one_line_and_2_in_every_format(format_, text, message):
    write(fine=runs.modelled_run([1.0]), broken=runs.modelled_run([1.0]))
    Path("broken/run.json").write_text(text)
    done = compare("fine", "broken", "--format", format_)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


ODD = {
    "nothing but a baseline": (runs.run([mine(1.0)]), None),
    "no results at all": (runs.run(), None),
    "no results on one side": (runs.run([mine(1.0)]), runs.run()),
    "no results on either": (runs.run(), runs.run()),
    "failed": (runs.run([mine(1.0)]), runs.run([runs.result("mine", status="failed", error="boom", time=None)])),
    "failed on both sides": (
        runs.run([runs.result("mine", status="failed", error="boom", time=None)]),
        runs.run([runs.result("mine", status="failed", error="boom", time=None)]),
    ),
    "skipped on both sides": (
        runs.run([mine(1.0), runs.result("other", status="skipped", error="too old", time=None)]),
        runs.run([mine(1.0), runs.result("other", status="skipped", error="too old", time=None)]),
    ),
    "nothing but what failed": (
        runs.run(
            [
                runs.result("mine", status="failed", error="boom", time=None, numerics=None, syncs=None),
                runs.result("other", status="failed", error="boom", time=None, numerics=None, syncs=None),
            ]
        ),
        None,
    ),
    "one window": (gpu_run(measured(1.0)), gpu_run(measured(2.0))),
    "one window against many": (gpu_run(measured(1.0)), gpu_run(measured(*STEADY))),
    "NaN": (gpu_run(measured(math.nan, 1.0)), gpu_run(measured(*STEADY))),
    "infinite": (gpu_run(measured(*STEADY)), gpu_run(measured(math.inf, -math.inf))),
    "a step of no time": (runs.run([mine(0.0)]), runs.run([mine(0.0)])),
    "no time against some": (runs.run([mine(0.0)]), runs.run([mine(1.0)])),
    "measured steps of no time": (gpu_run(measured(*[0.0] * 20)), gpu_run(measured(*STEADY))),
    "all throttled": (
        gpu_run(runs.result("mine", time=runs.time(1.0, 2.0, modelled=False, throttled=[True, True]))),
        gpu_run(measured(*STEADY)),
    ),
    "no variant in common": (runs.run([mine(1.0)]), runs.run([mine(1.0, variant="new")])),
    "no workload in common": (
        runs.run([mine(1.0, workload="packed-sft")]),
        runs.run([mine(1.0, workload="padded-sft")]),
    ),
    "no lead in common": (runs.run([mine(1.0, lead_ms=0.0)]), runs.run([mine(1.0, lead_ms=1.0)])),
    "the missing baseline of a lead": (
        runs.run(
            [mine(1.0, variant="original", lead_ms=0.0), mine(1.0, lead_ms=0.0), mine(1.0, lead_ms=1.0)],
        ),
        None,
    ),
    "modelled against measured": (runs.run([mine(1.0)]), gpu_run(measured(*STEADY))),
    "very large": (gpu_run(measured(*[1e12] * 20)), gpu_run(measured(*[1e-9] * 20))),
}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", ODD)
def test_odd_runs_are_compared_or_said_to_be_incomparable_in_every_format(name, format_):
    first, second = ODD[name]
    write(a=first, **({"b": second} if second else {}))
    sides = ["a", "b"] if second else ["a"]
    done = compare(*sides, "--format", format_)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (0, 3)
    assert done.stderr == ""
    assert done.stdout.strip()
    gated = compare(*sides, "--format", format_, "--fail-on", "slower,syncs,values,unclear")
    assert gated.exit_code in (0, 1, 3)


@pytest.mark.parametrize("name", ODD)
def test_nothing_of_odd_runs_is_dropped_in_silence(name):
    """Every result's variant is in a row or a note, or a row is about its whole workload or lead."""
    first, second = ODD[name]
    write(a=first, **({"b": second} if second else {}))
    found = document(*(["a", "b"] if second else ["a"]))
    whole = {row["workload"] for row in found["rows"] if not row["variant"]}
    told = json.dumps([[row["baseline"], row["candidate"]] for row in found["rows"]] + found["notes"])
    for result in [*first.results, *(second.results if second else ())]:
        assert result.variant in told or result.workload in whole
    for run in filter(None, (first, second)):
        assert run.results or "without results" in told


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("failed", [("mine (b)", "incomparable", "mine (b) failed")]),
        ("one window", [("mine (b)", "unclear", None)]),
        ("NaN", [("mine (b)", "incomparable", "mine (a) has step times that are not finite")]),
        ("infinite", [("mine (b)", "incomparable", "mine (b) has step times that are not finite")]),
        (
            "no variant in common",
            [("mine (b)", "incomparable", "not in b"), ("new (b)", "incomparable", "not in a")],
        ),
        (
            "no workload in common",
            [
                ("b", "incomparable", "b has no packed-sft in scope loss"),
                ("b", "incomparable", "a has no padded-sft in scope loss"),
            ],
        ),
        (
            "no lead in common",
            [("b", "incomparable", "b has no lead of 0 ms"), ("b", "incomparable", "a has no lead of 1 ms")],
        ),
        (
            "modelled against measured",
            [("mine (b)", "incomparable", "modelled times are not compared with measured ones")],
        ),
    ],
)
def test_why_there_is_no_verdict(name, expected):
    first, second = ODD[name]
    write(a=first, b=second)
    found = verdicts("a", "b")
    assert [(who, verdict) for who, verdict, _ in found] == [(who, verdict) for who, verdict, _ in expected]
    for (_, _, reason), (_, _, wanted) in zip(found, expected, strict=True):
        assert wanted is None or reason == wanted


def test_why_a_variant_failed_is_in_every_format():
    first, second = ODD["failed"]
    write(a=first, b=second)
    for format_ in FORMATS:
        assert "boom" in compare("a", "b", "--format", format_).stdout


HOSTILE = "<script>alert(1)</script>\x1b[31m\x07\u202e\ufffe`|&\"'"


@pytest.mark.parametrize("format_", FORMATS)
def test_hostile_names_are_inert_in_every_format(format_):
    hostile = runs.run([runs.result(HOSTILE, HOSTILE, status="failed", error=HOSTILE, time=None)])
    write(a=hostile, **{"b\x1b[31m": hostile})
    text = compare("a", "b\x1b[31m", "--format", format_).stdout
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ufffe]", text)
    if format_ in ("markdown", "html", "junit"):
        assert "<script>alert" not in text


def test_a_process_of_its_own_says_the_same():
    write(a=runs.run([mine(10_000.0)]), b=runs.run([mine(10_100.0, variant="mine")]))
    for options, code in ((["--fail-on", "slower"], 1), (["--fail-on", "slower>2%"], 0), ([], 0)):
        done = shell("a", "b", "--format", "json", *options)
        assert (done.returncode, done.stderr) == (code, b"")
        found = json.loads(done.stdout)
        assert found["rows"][0]["verdict"] == "slower"
        assert found["command"] == shlex.join(["mtp-bench", "compare", "a", "b", "--format", "json", *options])
    broken = shell("a", "none")
    assert (broken.returncode, broken.stdout) == (2, b"")
    assert broken.stderr == b"error: none: no such run; give a run.json or the folder that holds one\n"


@pytest.mark.parametrize("format_", FORMATS)
def test_a_locale_without_utf_8_breaks_no_format(format_):
    name = "\u05e9\u05dc\u05d5\u05dd-\u4f60"
    write(a=runs.run([mine(1.0, variant=name)]), b=runs.run([mine(2.0, variant=name)]))
    done = shell("a", "b", "--format", format_, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, b"")
    if format_ in ("html", "junit"):
        assert name in done.stdout.decode("utf-8")


def test_a_reader_that_stops_reading_is_no_traceback():
    write(a=runs.modelled_run(), b=runs.modelled_run())
    command = [sys.executable, "-m", "mtp_bench", "compare", "a", "b", "--format", "html"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert b"Traceback" not in errors


def test_no_format_imports_torch():
    write(a=runs.modelled_run([1.0]), b=runs.modelled_run([1.0]))
    code = (
        "import sys\nfrom mtp_bench.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    for format_ in FORMATS:
        done = subprocess.run(
            [sys.executable, "-c", code, "compare", "a", "b", "--format", format_],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
        )
        assert (done.returncode, done.stderr) == (0, "")
