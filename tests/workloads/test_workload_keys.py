"""Workloads: which keys and values are taken, and what is said of the others."""

import dataclasses

import pytest

from mtp_bench import workloads
from mtp_bench.errors import InputError
from mtp_bench.workloads import Workload

BUILTIN = ("deepseek-v3", "empty-shard", "glm-4.5", "mimo-7b", "packed-sft", "padded-sft", "qwen3-next-80b")


def of(**keys):
    return Workload.from_dict("w", keys)


def test_the_profiles_of_the_design_are_there():
    assert workloads.builtin_names() == BUILTIN


@pytest.mark.parametrize("name", BUILTIN)
def test_a_profile_names_its_source_and_loads_again_from_what_run_json_keeps(name):
    workload = workloads.load(name)
    assert workload.source
    assert workload.title
    described = workload.describe()
    assert described.pop("lengths") == list(workload.lengths)
    assert Workload.from_dict(name, described) == workload


# hidden_size, vocab_size, MTP layers and the dense width active per token, as published.
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mimo-7b", (4096, 151680, 1, 11008)),
        ("glm-4.5", (5120, 151552, 1, 9 * 1536)),
        ("qwen3-next-80b", (2048, 151936, 1, 11 * 512)),
        ("deepseek-v3", (7168, 129280, 1, 9 * 2048)),
    ],
)
def test_a_model_profile_has_the_published_dimensions(name, published):
    w = workloads.load(name)
    assert (w.hidden_size, w.vocab_size, w.mtp_num_layers, w.ffn_hidden_size) == published


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hiden_size": 64}, "unknown key 'hiden_size'; did you mean 'hidden_size'?"),
        ({"hidden_size": "64"}, "hidden_size = '64': expected a whole number from 1 to 1048576"),
        ({"hidden_size": 64.0}, "hidden_size = 64.0: expected a whole number from 1 to 1048576"),
        ({"hidden_size": True}, "hidden_size = true: expected a whole number from 1 to 1048576"),
        ({"hidden_size": 0}, "hidden_size = 0: expected a whole number from 1 to 1048576"),
        ({"packed": 1}, "packed = 1: expected true or false"),
        ({"params_dtype": "fp16"}, "params_dtype = 'fp16': expected 'fp32' or 'bf16'"),
        ({"cu_seqlens": []}, "cu_seqlens = []: expected 'padded' or 'actual'"),
        ({"harness": "nemo"}, "harness = 'nemo': expected 'bare' or 'megatron' or 'verl'"),
        ({"mtp_loss_scaling_factor": float("nan")}, "mtp_loss_scaling_factor = nan: expected a number from 0 to 1e+06"),
        ({"mtp_num_layers": 0}, "mtp_num_layers = 0: expected a whole number from 1 to 64"),
        ({"cp_size": 65}, "cp_size = 65: expected a whole number from 1 to 64"),
        ({"cp_size": "2"}, "cp_size = '2': expected a whole number from 1 to 64"),
        ({"seed": -1}, "seed = -1: expected a whole number from 0 to 9223372036854775807"),
        ({"num_attention_heads": 7}, "num_attention_heads = 7 does not divide hidden_size = 1024"),
        ({"sequences": [4, 0]}, "sequences: a sequence of length 0 is possible with packed = true only"),
        ({"sequences": [2], "mask": [1]}, "mask: 1 entries for 2 tokens; give one a token, sequence by sequence"),
    ],
)
def test_a_wrong_key_is_named_with_what_would_be_right(keys, message):
    with pytest.raises(InputError) as error:
        of(**keys)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "sequences", [[], [0], [1, -1], [1.5], ["a"], [True], 7, "normal:3x4", "lognormal:0x4", "lognormal:5x4", [1 << 23]]
)
def test_sequences_that_are_none_are_refused(sequences):
    with pytest.raises(InputError, match=r"^sequences = "):
        of(sequences=sequences, packed=True)


@pytest.mark.parametrize(
    "mask",
    ["prompt", "prompt:2", "prompt:-1", "prompt:nan", "tail:x", "full:1", "none", [], ["a"], [-1.0], [float("inf")], 3],
)
def test_masks_that_are_none_are_refused(mask):
    with pytest.raises(InputError, match=r"^mask = "):
        of(mask=mask)


def test_every_key_of_a_workload_is_checked():
    fields = {field.name for field in dataclasses.fields(Workload)} - {"name"}
    assert fields == set(workloads._CHECKS)


def test_set_takes_toml_values_and_words_without_quotes():
    w = workloads.load(
        "packed-sft", ["hidden_size=128", "mask=tail:2", "sequences=[3, 2]", "packed=false", 'harness="verl"']
    )
    assert (w.hidden_size, w.mask, w.sequences, w.packed, w.harness) == (128, "tail:2", (3, 2), False, "verl")


@pytest.mark.parametrize("text", ["hidden_size", "=3", ""])
def test_set_without_key_or_value_says_the_form(text):
    with pytest.raises(InputError, match=r"expected key=value"):
        workloads.load("packed-sft", [text])


def test_set_names_the_key_and_itself():
    with pytest.raises(InputError, match=r"^--set: unknown key 'sed'; did you mean 'seed'"):
        workloads.load("packed-sft", ["sed=1"])


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(InputError, match="no profile 'packed_sft'; did you mean 'packed-sft'"):
        workloads.load("packed_sft")


def test_a_profile_file_is_named_by_its_stem(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("hidden_size = 32\nnum_attention_heads = 4\n")
    assert workloads.load(str(path)) == Workload("mine", hidden_size=32, num_attention_heads=4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a = 1\nb = = 2\n", r"mine\.toml:2: not TOML: .*line 2"),
        (b"a = 'x", r"mine\.toml.*: not TOML"),
        (b"\xff\xfe", r"mine\.toml: not TOML: not UTF-8 text at byte 0"),
        (b"seeed = 1\n", r"mine\.toml: unknown key 'seeed'; did you mean 'seed'"),
        (b"[workload]\nseed = 1\n", r"mine\.toml: unknown key 'workload'"),
        (b"seed = 2020-01-01\n", r"mine\.toml: seed = .*: expected a whole number"),
    ],
)
def test_a_file_that_is_no_profile_is_named_with_its_line(tmp_path, content, message):
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        workloads.load(str(path))


def test_a_file_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml: no such file"):
        workloads.load(str(tmp_path / "none.toml"))


def test_two_workloads_of_one_name_are_refused(tmp_path):
    path = tmp_path / "packed-sft.toml"
    path.write_text("seed = 1\n")
    with pytest.raises(InputError, match="a second workload named 'packed-sft'"):
        workloads.load_all(["packed-sft", str(path)])
