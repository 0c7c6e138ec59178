"""Variants by name, and what a user is told who names something else."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from mtp_bench import variants
from mtp_bench.errors import InputError
from mtp_bench.variants import Variant, VariantError
from tests.releases import release

ARGUMENTS = dict.fromkeys(variants.ARGUMENTS) | {
    "hidden_states": torch.zeros(6, 2, 4),
    "config": SimpleNamespace(mtp_num_layers=1),
}
USER = '''
"""The user's module."""
numbers = [1, 2]

seen = {}

def fine(hidden_states, labels, config):
    """Half of the loss."""
    seen.update(hidden_states=hidden_states, labels=labels, config=config)
    return hidden_states[:3]

def anything(**arguments):
    seen.update(arguments)
    return arguments["hidden_states"][:3]

def everything(hidden_states):
    return hidden_states

def nothing(hidden_states):
    pass

def wants_more(hidden_states, teacher):
    return hidden_states
'''


@pytest.fixture
def user(tmp_path, monkeypatch):
    (tmp_path / "my_losses.py").write_text(USER)
    (tmp_path / "my_broken.py").write_text("import no_such_module_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_losses", None)


def test_the_built_in_names():
    names = ("original", "patched", "sync_free", "host_lens", "boundary_roll", "exact", "megatron")
    assert variants.builtin_names() == names
    assert [variants.load(name).name for name in names] == list(names)


def test_names_do_not_import_torch():
    code = "import sys; from mtp_bench import variants; variants.available_names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_verl_is_listed_where_it_is_installed(monkeypatch):
    monkeypatch.delenv("MTP_BENCH_VERL", raising=False)
    assert "verl" not in variants.available_names()
    monkeypatch.setenv("MTP_BENCH_VERL", str(release("verl", "0.9.1")))
    assert "verl" in variants.available_names()
    loaded = variants.load("verl")
    assert (loaded.version, loaded.note) == ("0.9.1", "")


def test_verl_on_the_python_path_is_found_without_importing_it():
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); from mtp_bench import variants;"
        "assert variants.load('verl').version == '0.8.0'; sys.exit('verl' in sys.modules)"
    )
    path = [str(release("verl", "0.8.0")), *filter(None, sys.path)]
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"], check=False)
    assert done.returncode == 0


def test_a_folder_without_verl_is_an_input_error(monkeypatch, tmp_path):
    monkeypatch.setenv("MTP_BENCH_VERL", str(tmp_path))
    with pytest.raises(InputError, match=r"MTP_BENCH_VERL=.*: expected a folder with verl/models/mcore/mtp_patch.py"):
        variants.load("verl")


def test_the_users_callable_gets_the_arguments_that_it_names(user):
    fine = variants.load("my_losses:fine")
    seen = sys.modules["my_losses"].seen
    assert (fine.title, fine.path) == ("Half of the loss.", "my_losses:fine")
    assert fine(**ARGUMENTS).shape == (3, 2, 4)
    assert sorted(seen) == ["config", "hidden_states", "labels"]
    variants.load("my_losses:anything")(**ARGUMENTS)
    assert sorted(seen) == sorted(variants.ARGUMENTS)


@pytest.mark.parametrize(("name", "returned"), [("everything", "a tensor of shape [6, 2, 4]"), ("nothing", "NoneType")])
def test_the_users_callable_must_return_the_main_hidden_states(user, name, returned):
    with pytest.raises(VariantError) as caught:
        variants.load(f"my_losses:{name}")(**ARGUMENTS)
    assert str(caught.value) == (
        f"my_losses:{name} returned {returned}; expected shape [3, 2, 4], the first of 2 chunks of hidden_states"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("orignal", "--variant orignal: no such variant; did you mean 'original'?"),
        ("my_losses:fin", "--variant my_losses:fin: my_losses has no 'fin'; did you mean 'fine'?"),
        ("my_losses:numbers", "--variant my_losses:numbers: my_losses:numbers is a list; expected a callable"),
        ("my_losses:", "--variant my_losses:: expected package.module:callable"),
        ("no_such_module:f", "--variant no_such_module:f: cannot import no_such_module: ModuleNotFoundError: "),
        ("my_broken:f", "--variant my_broken:f: cannot import my_broken: ModuleNotFoundError: "),
        ("my_losses:wants_more", "--variant my_losses:wants_more: its argument 'teacher' is none of "),
    ],
)
def test_what_cannot_be_loaded_is_an_input_error(user, name, message):
    with pytest.raises(InputError) as caught:
        variants.load(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_entry_point_is_a_name(user, monkeypatch):
    from importlib.metadata import EntryPoint

    def entry_points(group, name=None):
        point = EntryPoint("mine", "my_losses:fine", group)
        return [point] if group == "mtp_bench.variants" and name in (None, "mine") else []

    monkeypatch.setattr(variants, "entry_points", entry_points)
    assert "mine" in variants.available_names()
    assert variants.load("mine").name == "mine"


def test_a_variant_without_arguments_to_its_taste_is_refused():
    with pytest.raises(InputError, match="its argument 'x'"):
        Variant("odd", lambda x, /: x)
