"""The command line: what goes to which stream, in which order, and with which exit code."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mtp_bench import __version__, cli, runner, variants
from mtp_bench.compare.headline import headline
from mtp_bench.errors import InputError, RunError
from mtp_bench.megatron import versions
from mtp_bench.results import load_run
from mtp_bench.workloads import load
from tests import runs

STARTED = {
    "kind": "sim",
    "name": "H100",
    "modelled": True,
    "driver": None,
    "cuda": None,
    "spec": "sim:h100",
    "workloads": [load("packed-sft")],
    "scope": "loss",
}


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Run a command in an empty folder. ``invoke.run`` is what the runner returns, ``invoke.asked`` what it got."""
    monkeypatch.chdir(tmp_path)

    def measure(**asked):
        call.asked = asked
        folder = asked["out"]("sim:h100")
        call.run.write(folder)
        asked["on_start"](STARTED)
        if call.raises is not None:
            raise call.raises
        return call.run

    monkeypatch.setattr(runner, "run", measure)

    def call(*arguments):
        return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], env={"COLUMNS": "100"})

    call.run, call.raises, call.asked = runs.modelled_run(), None, None
    return call


def shell(*arguments, cwd, timeout=120, **environment):
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "mtp_bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2]), **environment},
    )


def test_help_takes_at_most_300_ms_and_imports_nothing_heavy(tmp_path):
    code = (
        "import sys\nfrom mtp_bench.__main__ import main\nsys.argv = ['mtp-bench', '--help']\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code\n"
        "heavy = {'torch', 'pandas', 'pydantic', 'rich', 'numpy', 'scipy', 'megatron'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime <= 0.3


def test_version(invoke):
    assert invoke("--version").stdout == f"mtp-bench {__version__}\n"


def test_every_command_and_option_has_help():
    commands = typer.main.get_command(cli.app).commands
    assert set(commands) == {"run", "compare", "check", "report", "profile", "import", "attach", "list", "doctor"}
    for command in commands.values():
        assert command.help
        assert [param.name for param in command.params if not param.help] == []


def test_run_prints_what_the_design_says_in_its_order(invoke):
    done = invoke("run", "--device", "sim")
    lines = done.stdout.splitlines()
    assert lines[0] == f"mtp-bench {__version__} on sim:h100, H100 (modelled), torch {_torch()}, scope loss: packed-sft"
    assert lines[1].startswith("The `num_tokens > 0` guard costs 16.5 us a step, packed rolls cost 240.0 us")
    places = [
        done.stdout.index(part)
        for part in ("padded-sft (SFT", "packed-sft (SFT", "syncs a step by call site", "\nreport: ")
    ]
    assert places == sorted(places)
    assert re.fullmatch(r"report: reports/\d{8}-\d{6}-sim-h100/report\.md", lines[-1])
    assert (done.exit_code, done.stderr) == (0, "")


def _torch():
    from importlib.metadata import version

    return version("torch")


def test_run_leaves_run_json_and_report_md(invoke):
    invoke("run", "--out", "here")
    assert load_run("here") == invoke.run
    assert Path("here/report.md").read_text().startswith("# mtp-bench\n")


def test_auto_says_that_there_is_no_gpu(invoke):
    assert "(modelled, no GPU found)" in invoke("run").stdout.splitlines()[0]


def test_two_runs_in_one_second_have_folders_of_their_own(invoke):
    for _ in range(3):
        assert invoke("run").exit_code == 0
    assert len(list(Path("reports").iterdir())) == 3


def test_options_reach_the_runner(invoke):
    invoke(
        "run", "--profile", "packed-sft", "--profile", "mimo-7b", "--variant", "patched", "--variant", "a.b:c",
        "--variant", "patched", "--device", "cuda:1", "--scope", "step", "--set", "hidden_size=64", "--lead", "0,2.5",
        "--values", "real", "--detectors", "torch,kineto", "--trace", "t.json", "--seed", "7",
    )  # fmt: skip
    asked = invoke.asked
    assert asked["profiles"] == ["packed-sft", "mimo-7b"]
    assert asked["variants"] == ["patched", "a.b:c"]
    assert (asked["device"], asked["scope"], asked["values"], asked["seed"]) == ("cuda:1", "step", "real", 7)
    assert asked["set"] == ["hidden_size=64"]
    assert asked["leads_ms"] == [0.0, 2.5]
    assert asked["detectors"] == ["torch", "kineto"]
    assert asked["trace"] == Path("t.json")


def test_without_options_the_runner_decides(invoke):
    invoke("run")
    names = ("profiles", "variants", "leads_ms", "detectors", "trace")
    assert [invoke.asked[name] for name in names] == [None] * 5
    assert (invoke.asked["set"], invoke.asked["seed"]) == ((), None)


def test_json_is_one_document_and_messages_go_to_standard_error(invoke):
    done = invoke("run", "--json")
    assert json.loads(done.stdout) == json.loads(invoke.run.to_json())
    assert done.stderr.startswith(f"mtp-bench {__version__} on sim:h100")


def test_a_failed_variant_is_named_at_the_end_with_exit_code_1(invoke):
    invoke.run = runs.run([runs.result("original"), runs.result("a.b:c", status="failed", error="boom", time=None)])
    done = invoke("run")
    assert done.exit_code == 1
    assert done.stderr == "error: a.b:c failed on packed-sft\n"
    assert "a.b:c: failed: boom" in done.stdout


def test_wrong_values_are_a_finding_not_a_failure(invoke):
    invoke.run = runs.run([runs.result("original", numerics=runs.numerics("nan"))])
    assert invoke("run").exit_code == 0


def test_input_errors_are_one_line_and_2(invoke):
    invoke.raises = InputError("--variant x: no such variant\nreally")
    done = invoke("run")
    assert (done.exit_code, done.stderr) == (2, "error: --variant x: no such variant really\n")


def test_a_run_that_cannot_go_on_is_one_line_and_1(invoke):
    invoke.raises = RunError("the worker process did not start: exit code 1; its output ends with:\nboom\n  at a.py")
    done = invoke("run")
    assert done.exit_code == 1
    assert done.stderr == ("error: the worker process did not start: exit code 1; its output ends with: boom at a.py\n")


def test_ctrl_c_before_the_first_result_does_not_claim_what_an_earlier_run_left(invoke, monkeypatch):
    runs.modelled_run().write(Path("here"))

    def interrupted(**asked):
        asked["out"]("sim:h100")
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run", interrupted)
    done = invoke("run", "--out", "here")
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")
    assert not Path("here/report.md").exists()


def test_ctrl_c_keeps_what_is_done(invoke):
    invoke.raises = KeyboardInterrupt()
    done = invoke("run", "--out", "here")
    assert done.exit_code == 130
    assert done.stderr == "kept 30 results in here\ninterrupted\n"
    assert load_run("here") == invoke.run
    assert Path("here/report.md").exists()


@pytest.mark.parametrize("option", ["--fail-on", "--detectors"])
@pytest.mark.parametrize("text", ["", ",", "syncs,"])
def test_a_list_without_names_is_said_so(invoke, option, text):
    runs.modelled_run().write(Path("here"))
    done = invoke(*(["compare", "here"] if option == "--fail-on" else ["run"]), option, text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"error: {option} {text!r}: expected names separated by commas\n"


def test_a_seed_out_of_range_is_named_with_the_range(invoke):
    done = invoke("run", "--seed", "9" * 20)
    assert done.exit_code == 2
    assert re.search(r"'--seed': .*9223372036854775807", done.stderr)


def test_a_lead_that_is_no_number_is_said_so(invoke):
    done = invoke("run", "--lead", "0;1")
    assert (done.exit_code, done.stderr) == (
        2,
        "error: --lead '0;1': expected milliseconds separated by commas, as in --lead 0,1,10\n",
    )


def test_report_makes_the_reports_again(invoke):
    runs.modelled_run().write(Path("here"))
    done = invoke("report", "here")
    assert done.exit_code == 0
    assert done.stdout.startswith("mtp-bench 0.1.0 on sim:h100 (modelled)")
    assert "10,256.5" in done.stdout
    assert done.stdout.endswith("report: here/report.md\n")
    text = Path("here/report.md").read_text()
    invoke("report", "here/run.json", "--out", "there")
    assert Path("there/report.md").read_text() == text


def test_columns_of_0_are_no_width(tmp_path):
    runs.modelled_run().write(tmp_path / "here")
    assert "10,256.5" in shell("report", "here", cwd=tmp_path, COLUMNS="0").stdout


def test_compare_in_every_format(invoke):
    runs.modelled_run([0.0]).write(Path("one"))
    runs.modelled_run([0.0]).write(Path("two"))
    assert "baseline one" in invoke("compare", "one", "two").stdout
    assert invoke("compare", "one", "two", "--format", "markdown").stdout.startswith("# mtp-bench compare")
    found = json.loads(invoke("compare", "one", "two/run.json", "--format", "json").stdout)
    assert {row["verdict"] for row in found["rows"]} == {"same"}
    assert invoke("compare", "one", "--baseline", "sync_free").exit_code == 0


def test_compare_exits_3_where_it_cannot_compare_and_1_where_a_gate_fails(invoke):
    runs.modelled_run([0.0]).write(Path("one"))
    runs.measured_run().write(Path("two"))
    assert invoke("compare", "one", "two").exit_code == 3
    runs.run([runs.result("mine")]).write(Path("good"))
    runs.run([runs.result("mine", syncs=runs.syncs(runs.site(1)))]).write(Path("bad"))
    assert invoke("compare", "good", "bad").exit_code == 0
    failed = invoke("compare", "good", "bad", "--fail-on", "syncs,values")
    assert failed.exit_code == 1
    assert "failed: syncs: mine (bad) on packed-sft at lead 1 ms: 1 sync a step, mine (good) has 0" in failed.stdout


def test_in_a_pipe_the_first_sentence_is_one_line_and_no_line_ends_with_blanks(tmp_path):
    runs.modelled_run().write(tmp_path / "here")
    done = shell("report", "here", cwd=tmp_path)
    assert done.stdout.splitlines()[1] == headline(runs.modelled_run())
    for command in (["report", "here"], ["compare", "here"], ["compare", "here", "here/run.json"]):
        done = shell(*command, cwd=tmp_path)
        assert done.stdout
        assert [line for line in done.stdout.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("command", ["compare", "report"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such run"),
        ("{", "cut off"),
        ("no", "not JSON"),
        ('{"schema_version": ' + "1" * 5_000 + "}", "not JSON"),
        ('{"schema_version": 99}', "newer mtp-bench"),
    ],
)
def test_a_run_that_cannot_be_read_is_one_line_and_2(invoke, command, text, message):
    if text is not None:
        Path("run.json").write_text(text)
    done = invoke(command, "run.json")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert re.fullmatch(rf"error: run\.json.*{message}.*\n", done.stderr)


def test_list(invoke):
    profiles = invoke("list", "profiles").stdout
    assert "packed-sft       SFT, packed row" in profiles
    devices = invoke("list", "devices").stdout
    assert "cuda[:N]" in devices
    assert re.search(r"^sim:h100 +.*\(modelled\)$", devices, re.M)
    variants = [line.split()[0] for line in invoke("list", "variants").stdout.splitlines()]
    assert variants[:6] == ["original", "patched", "sync_free", "host_lens", "boundary_roll", "exact"]
    assert invoke("list", "nothing").exit_code == 2


def listed_variants(invoke):
    done = invoke("list", "variants")
    assert (done.exit_code, done.stderr) == (0, "")
    return dict(line.split(None, 1) for line in done.stdout.splitlines())


def test_list_names_all_variants_without_megatron_core(invoke, monkeypatch):
    with_it = listed_variants(invoke)
    monkeypatch.setattr(versions, "folder", lambda: None)
    without_it = listed_variants(invoke)
    assert list(without_it) == list(with_it)
    missing = "cannot run here: megatron-core is not installed: pip install megatron-core"
    assert without_it["patched"] == f"{with_it['patched']}; {missing}"
    assert without_it["megatron"] == f"the installed megatron-core's own code; {missing}"


def test_list_names_an_entry_point_that_does_not_load(invoke, monkeypatch):
    point = EntryPoint("broken", "no_such_module:loss", variants.ENTRY_POINT_GROUP)
    monkeypatch.setattr(variants, "entry_points", lambda group, name="broken": [point] if name == "broken" else [])
    listed = listed_variants(invoke)
    assert listed["broken"].startswith("cannot run here: cannot import no_such_module: ModuleNotFoundError")
    assert list(listed)[:7] == list(variants.builtin_names())


BAD_INPUT = [
    (["--profile", "pakced-sft"], "no profile 'pakced-sft'; did you mean 'packed-sft'?"),
    (["--profile", "none/x.toml"], "profile none/x.toml: no such file"),
    (["--profile", "bad.toml"], "bad.toml:1: not TOML: "),
    (["--profile", "wrong.toml"], "wrong.toml: hidden_size = 'wide': expected a whole number from 1 to 1048576"),
    (["--set", "hiden_size=64"], "--set: unknown key 'hiden_size'; did you mean 'hidden_size'?"),
    (["--set", "packed=maybe"], "--set: packed = 'maybe': expected true or false"),
    (
        ["--scope", "step", "--set", "cp_size=2"],
        "cp_size = 2: context parallelism runs with --scope loss, not with step",
    ),
    (["--scope", "lss"], "--scope 'lss': use loss or step"),
    (["--values", "big"], "--values 'big': use "),
    (["--lead", "-1"], "--lead -1: expected milliseconds from 0 to 1000"),
    (["--variant", "pached"], "--variant pached: no such variant; did you mean 'patched'?"),
    (["--variant", "no_such_module:fn"], "--variant no_such_module:fn: "),
    (["--variant", "json:no_such"], "--variant json:no_such: "),
    (["--device", "tpu"], "--device 'tpu': no such device; use auto, cuda, cuda:N, sim or sim:PROFILE"),
    (["--device", "sim:h1000"], "h1000"),
    (["--out", "file/below"], "cannot write to file/below: Not a directory; choose another folder with --out"),
    (["--detectors", "nsys"], "--detectors nsys: "),
]


@pytest.mark.parametrize(("options", "message"), BAD_INPUT, ids=[" ".join(options) for options, _ in BAD_INPUT])
def test_bad_input_of_run_is_one_line_without_a_traceback_and_2(tmp_path, options, message):
    (tmp_path / "bad.toml").write_text("a = = 1\n")
    (tmp_path / "wrong.toml").write_text('hidden_size = "wide"\n')
    (tmp_path / "file").write_text("")
    device = [] if "--device" in options else ["--device", "sim"]
    done = shell("run", *device, *options, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("reports/*/report.md"))


def test_cuda_without_a_gpu_is_an_error_not_a_fallback(tmp_path):
    done = shell("run", "--device", "cuda", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert re.fullmatch(r"error: --device cuda: no GPU is visible to PyTorch .*use --device sim.*\n", done.stderr)


SMALL = ["--set", "hidden_size=64", "--set", "vocab_size=128", "--set", "sequences=[6, 3]", "--device", "sim"]


@pytest.mark.slow
def test_a_run_end_to_end_and_its_report_again(tmp_path):
    done = shell("run", *SMALL, "--out", "first", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1].startswith("The `num_tokens > 0` guard costs ")
    again = shell("report", "first", cwd=tmp_path)
    assert again.stdout.split("\n", 1)[1] == done.stdout.split("\n", 1)[1]


@pytest.mark.slow
def test_two_runs_with_one_seed_differ_in_times_and_dates_only(tmp_path):
    for name in ("a", "b"):
        assert shell("run", *SMALL, "--seed", "3", "--out", name, cwd=tmp_path).returncode == 0
    first, second = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("a", "b"))
    for top in (first, second):
        del top["created_at"], top["command"]
        del top["environment"]["git"]  # a commit may come between the two
    assert first == second
    assert {keys["seed"] for keys in first["workloads"].values()} == {3}


@pytest.mark.slow
def test_variants_that_break_are_rows_and_nothing_is_lost(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "def raises(hidden_states):\n    raise ValueError('not today')\n"
        "def wrong_shape(hidden_states):\n    return hidden_states\n"
        "def aborts(hidden_states):\n    os.abort()\n"
    )
    broken = [option for name in ("raises", "wrong_shape", "aborts") for option in ("--variant", f"mine:{name}")]
    done = shell(
        "run", *SMALL, "--profile", "padded-sft", "--variant", "original", *broken, "--variant", "sync_free",
        "--out", "here", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    found = {result.variant: result for result in load_run(tmp_path / "here").results if result.lead_ms == 0}
    assert {name: result.status for name, result in found.items()} == {
        "original": "ok",
        "mine:raises": "failed",
        "mine:wrong_shape": "failed",
        "mine:aborts": "failed",
        "sync_free": "ok",
    }
    assert "ValueError: not today at mine.py:3 in raises" in found["mine:raises"].error
    assert "expected shape [6, 2, 64]" in found["mine:wrong_shape"].error
    assert "SIGABRT" in found["mine:aborts"].error
    assert found["sync_free"].time is not None


def processes_in(folder):
    """The processes that run in ``folder``."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if link.resolve() == folder:
                found.append((link.parent / "cmdline").read_bytes())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_run_keeps_what_is_done_and_leaves_no_worker(tmp_path, number, code):
    process = subprocess.Popen(
        [sys.executable, "-m", "mtp_bench", "run", "--device", "sim", "--out", "here"],
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509  # the tests may run under nohup
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])},
    )
    path = tmp_path / "here" / "run.json"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (path.exists() and load_run(path).results):
        time.sleep(0.05)
    assert len(processes_in(tmp_path)) == 2
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert re.search(r"^kept \d+ results in here$", errors, re.M)
    assert "Traceback" not in errors
    assert load_run(path).results
    assert (tmp_path / "here" / "report.md").exists()
    assert processes_in(tmp_path) == []
