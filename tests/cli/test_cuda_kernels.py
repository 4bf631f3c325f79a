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


def test_a_machine_without_a_gpu_lists_it_with_the_reason(cli, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    kernel = f"{EXAMPLES / 'my_gemm.cu'}:tiled"
    [record] = cli.json("profile", "--kernel", kernel, "--providers", "user", "--shapes",
                        "64x48x40", *FORMATS)["records"]  # fmt: skip
    assert record["outcome"] == "unsupported"
    assert "runs on NVIDIA GPUs" in record["reason"]


@pytest.mark.parametrize(
    ("entry", "manifest", "message"),
    [
        ("tiled", None, "no my_gemm.toml next to it"),
        ("other", "", "unknown kernel 'other' in my_gemm.toml"),
        ("tiled", "threads = 3", "unknown key 'threads' in my_gemm.toml [tiled]"),
    ],
)
def test_mistakes_of_the_request_end_it_before_anything_runs(cli, entry, manifest, message):
    shutil.copy(EXAMPLES / "my_gemm.cu", "my_gemm.cu")
    if manifest is not None:
        text = (EXAMPLES / "my_gemm.toml").read_text()
        Path("my_gemm.toml").write_text(f"{text}{manifest}\n")
    ended = cli(*AHEAD, "--kernel", f"my_gemm.cu:{entry}", "--shapes", "64x48x40", *FORMATS,
                status=2)  # fmt: skip
    assert message in ended.stderr
    assert "hint:" in ended.stderr
    assert not Path("gemmetry-out").exists()


def test_a_folder_of_machine_code_is_listed_with_what_it_needs(cli):
    ended = cli(*AHEAD, "--kernel", str(EXAMPLES / "cubins"), "--shapes", "64x48x40,128x64x64",
                *FORMATS, status=0)  # fmt: skip
    records = json.loads(ended.stdout)["records"]
    assert [(one["m"], one["configuration"], one["registers"]) for one in records] == [
        (64, "nvcc_default", 168),
        (128, "cute_default", 64),
        (128, "nvcc_default", 168),
    ]
    assert {one["compiled_for"] for one in records} == {"sm_90a"}


def test_machine_code_for_another_architecture_is_unsupported(cli):
    command = [word.replace("sm_90", "sm_100") for word in AHEAD]
    ended = cli(*command, "--kernel", str(EXAMPLES / "cubins" / "nvcc_gemm.cubin"),
                "--shapes", "64x48x40", *FORMATS)  # fmt: skip
    [record] = json.loads(ended.stdout)["records"]
    assert record["outcome"] == "unsupported"
    assert "machine code for sm_90a, which sm_100 does not run" in record["reason"]


def test_machine_code_that_is_cut_off_ends_the_request(cli):
    data = (EXAMPLES / "cubins" / "nvcc_gemm.cubin").read_bytes()
    Path("nvcc_gemm.cubin").write_bytes(data[: len(data) // 2])
    shutil.copy(EXAMPLES / "cubins" / "nvcc_gemm.toml", "nvcc_gemm.toml")
    ended = cli(*AHEAD, "--kernel", "nvcc_gemm.cubin", "--shapes", "64x48x40", *FORMATS, status=2)
    assert "nvcc_gemm.cubin is not machine code for NVIDIA GPUs: it is damaged" in ended.stderr
    assert "hint:" in ended.stderr
