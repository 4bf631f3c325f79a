from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from gemmetry.domain.settings import MOST_PROCESSES
from gemmetry.domain.specs import fields as f
from gemmetry.domain.specs.loader import load_spec, make_spec
from gemmetry.domain.specs.model import ProfileSpec, ProviderSpec, spec_text


def test_defaults_need_nothing_and_cannot_be_changed():
    spec = ProfileSpec()
    assert (spec.seed, spec.verification_enabled, spec.model_fields_set) == (42, True, set())
    with pytest.raises(ValidationError):
        spec.seed = 3


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("torch,iree", ["torch", "iree"]), (["torch iree"], ["torch", "iree"]),
        ({"torch": None, "null": {"devices": 2}}, ["torch", "null"]), ([None], ["null"]),
        (None, ["null"]), ([{"name": None, "options": {}}], ["null"]),
        ([ProviderSpec(name="torch")], ["torch"]),
    ],
)  # fmt: skip
def test_providers_are_read_in_every_form(value, names):
    assert [p.name for p in ProfileSpec(providers=value).providers] == names


@pytest.mark.parametrize(
    "values",
    [
        {"nonsense": 1}, {"name": "../x"}, {"seed": -1}, {"interval_width": 0},
        {"min_samples": 20, "max_samples": 10}, {"processes": MOST_PROCESSES + 1},
        {"active_steps": 1, "dispatch_repeat_count": 1}, {"layouts": "tt", "transpose_a": True},
        {"layouts": "tt", "enable_layout_search": True}, {"regime": "fast"},
        {"alpha": float("nan")}, {"cuda_arch": "90"}, {"deadlines": {"compile": 0}},
        {"providers": [{"options": {}}]}, {"format": "pdf"},
    ],
)  # fmt: skip
def test_refuses(values):
    with pytest.raises(ValidationError):
        ProfileSpec(**values)


def read(kind, value):
    return TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (f.Sizes, 256, (256,)), (f.Sizes, 1e5, (100000,)),
        (f.Sizes, "64:128:32, 7", ("64:128:32", 7)), (f.Sizes, [1, "log2:2:8"], (1, "log2:2:8")),
        (f.Dtypes, "fp32,bf16", ("f32", "bf16")), (f.Dtypes, "f16:f16", ("f16",)),
        (f.Dtypes, ["f16,f16,f32", ["e4m3", "e4m3", "bf16"]], ("f16:f16:f32", "e4m3:e4m3:bf16")),
        (f.Layouts, "TT tn", ("tt", "tn")), (f.Kinds, "batch-matmul", ("batch_matmul",)),
        (f.Epilogues, "none,bias+relu", ("none", "bias+relu")),
        (f.Epilogues, [["bias", "relu"]], ("bias+relu",)),
        (f.Shapes, [[1, 2, 3], 64, {"m": 1, "n": 2, "k": 3, "batch": 4}, "llm"],
         ("1x2x3", "64x64x64", "4x1x2x3", "llm")),
        (f.Shapes, "64,1x2x3", ("64x64x64", "1x2x3")), (f.Patterns, "a*,{b,c}", ("a*", "{b,c}")),
        (f.Devices, "llvm-cpu,cuda:1", ("cpu", "cuda:1")), (f.Duration, "500ms", 0.5),
        (f.Tags, "a:1,b:x:y", {"a": "1", "b": "x:y"}), (f.Tags, {"a": 1}, {"a": "1"}),
        (f.Duration, 3, 3.0), (f.Memory, "2GiB", 2**31),
    ],
)  # fmt: skip
def test_reads(kind, value, expected):
    assert read(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (f.Sizes, 1.5, "whole"), (f.Sizes, True, "not a size"), (f.Sizes, {"a": 1}, "not a size"),
        (f.Dtypes, "f61", "f61"), (f.Dtypes, 3, "list of dtypes"), (f.Dtypes, [3], "not a dtype"),
        (f.Dtypes, [["f16", "f16", "f16", "f16"]], "4 formats"), (f.Layouts, "tt,xx", "'xx'"),
        (f.Kinds, "gemm", "gemm"), (f.Epilogues, "none+relu", "none"),
        (f.Epilogues, "swish", "swish"), (f.Epilogues, 3, "list of epilogues"),
        (f.Shapes, [[1, 2]], "not a shape"), (f.Shapes, 3, "list of shapes"),
        (f.Shapes, ["0x1x1"], "m=0"), (f.Patterns, 3, "not a pattern"),
        (f.Patterns, "re:(", "regular expression"), (f.Devices, "gpu7", "gpu7"),
        (f.Tags, "a", "not a tag"), (f.Names, {"a": 1}, "list of names"),
        (f.Duration, "soon", "soon"), (f.Duration, 0, "above zero"), (f.Memory, "lots", "lots"),
        (f.RunName, "a b", "'a b' is not a name. Use up to 64 letters"),
        (f.RunName, 3, "3 is not a name"), (f.CudaArchitecture, "90", "Write sm_90"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused_in_our_wording(kind, value, message):
    with pytest.raises(ValidationError, match=message):
        read(kind, value)


EVERYTHING = {
    "name": "all-of-it", "operation_kind": "matmul,batch_matmul", "tags": "on:no,x:1e5",
    "problem_m": "64:1024:128, log2:2:8", "shapes": ["llm", [1, 2, 3]],
    "conv_shapes": "1x8x8x4_3x3x8", "dtypes": ["f16", ["f16", "f16", "f32"]], "layouts": "tt,tn",
    "epilogues": "none,bias+relu", "dispatches": "*{a,b},re:no", "deadlines": {"compile": "90s"},
    "providers": [{"name": "null", "options": {"devices": 2}}, "torch",
                  {"name": "user", "configurations": [{"block": 64}]}],
    "time_budget": "500ms", "memory_budget": "2GiB", "verification_enabled": False,
    "output": ["a.csv", "b.json"], "seed": 0, "baseline": None,
}  # fmt: skip


@pytest.mark.parametrize("values", [{}, EVERYTHING, {"providers": "null"}, {"alpha": -0.5}])
def test_what_is_written_reads_back(tmp_path, values):
    spec = make_spec(values)
    path = tmp_path / "spec.yaml"
    path.write_text(spec_text(spec))
    assert load_spec(path) == spec


def test_only_what_was_given_is_written():
    text = spec_text(make_spec({"seed": 42}))
    assert [line for line in text.splitlines() if not line.startswith("#")] == ["seed: 42"]
