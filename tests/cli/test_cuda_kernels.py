"""A user's CUDA C++ kernel on the command line of a machine without a GPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LESSONS = Path(__file__).parents[2] / "src" / "gemmetry" / "providers" / "kernels" / "lessons"
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

FORMATS = ("--dtypes", "bf16", "--layouts", "tn")
AHEAD = ("compile", "--providers", "user", "--device", "cuda-sm_90", "--json")


def test_it_is_compiled_without_a_gpu(cli):
    kernel = f"{EXAMPLES / 'my_gemm.cu'}:tiled"
    ended = cli(*AHEAD, "--kernel", kernel, "--shapes", "64x48x40", *FORMATS, status=0)
    records = json.loads(ended.stdout)["records"]
    assert [record["configuration"] for record in records] == ["TILE16", "TILE32"]
    assert {record["outcome"] for record in records} == {"ok"}
    assert all(record["registers"] and record["spill_bytes"] == 0 for record in records)


def test_a_source_that_does_not_compile_has_the_compilers_reason(cli):
    """The failed attempt whose tiles are indexed like arrays."""
    kernel = f"{LESSONS / 'attempt_2_tiles.cu'}:matvec"
    ended = cli(*AHEAD, "--kernel", kernel, "--shapes", "1x4x3", "--dtypes", "f32", "--layouts",
                "tn", status=1)  # fmt: skip
    [record] = json.loads(ended.stdout)["records"]
    assert record["outcome"] == "compile_error"
    assert "attempt_2_tiles.cu(32): error" in record["reason"]


def test_a_mistake_of_the_request_ends_it_before_anything_runs(cli):
    shutil.copy(EXAMPLES / "my_gemm.cu", "my_gemm.cu")
    ended = cli(*AHEAD, "--kernel", "my_gemm.cu:tiled", "--shapes", "64x48x40", *FORMATS, status=2)
    assert "no my_gemm.toml next to it" in ended.stderr and "hint:" in ended.stderr
    assert not Path("gemmetry-out").exists()
