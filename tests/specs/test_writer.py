from __future__ import annotations

import pytest

from gemmetry.domain.specs.loader import load_spec, make_spec
from gemmetry.domain.specs.model import spec_text

EVERYTHING = {
    "name": "all-of-it",
    "operation_kind": "matmul,batch_matmul",
    "problem_m": "64:1024:128, log2:2:8",
    "shapes": ["llm", [1, 2, 3]],
    "conv_shapes": "1x8x8x4_3x3x8",
    "dtypes": ["f16", ["f16", "f16", "f32"]],
    "layouts": "tt,tn",
    "epilogues": "none,bias+relu",
    "providers": [{"name": "null", "options": {"devices": 2}}, "torch",
                  {"name": "user", "configurations": [{"block": 64}]}],
    "dispatches": "*{a,b},re:no",
    "tags": "on:no,x:1e5",
    "deadlines": {"compile": "90s"},
    "time_budget": "500ms",
    "memory_budget": "2GiB",
    "verification_enabled": False,
    "output": ["a.csv", "b.json"],
    "seed": 0,
    "baseline": None,
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
