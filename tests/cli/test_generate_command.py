from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("iree.compiler", reason="the iree extra is not installed")

EXPECTED = Path(__file__).parent / "expected"


def test_without_options_it_is_the_dispatch_profilers_set(cli):
    ended = cli("generate")
    assert ended.status == 0
    assert ended.stdout == (EXPECTED / "generate.txt").read_text()
    assert ended.stdout.count("Emitting tuning configuration") == 109
    files = sorted(str(path) for path in Path("generated").rglob("*.mlir"))
    assert len(files) == 17
    name = "matmul_256x512x128_f16t_f16t_f16t"
    assert f"generated/linalg/matmul/{name}/{name}.mlir" in files


def test_shapes_replace_the_set(cli):
    ended = cli("generate", "--generated-dir", "out", "--problem-m=768", "--problem-n=512",
                "--problem-k=1024", "--json")  # fmt: skip
    assert ended.status == 0
    files = json.loads(ended.stdout)["files"]
    assert [file["operation"] for file in files] == [
        "matmul_768x512x1024_f16t_f16t_f16t",
        "matmul_768x512x1024_f32t_f32t_f32t",
        "matmul_768x512x1024_f16t_f16t_f32t",
    ]
    for file in files:
        assert Path(file["path"]).is_file()
        assert "default" in file["configurations"]


def test_the_documents_sweep_generates(cli):
    ended = cli("generate", "--problem-m=64:1024:128", "--problem-n=64:1024:128",
                "--problem-k=4096", "--dtypes=f16,f32", "--default-config")  # fmt: skip
    assert ended.status == 0
    assert ended.stdout.count("[Generating]") == 128
    assert ended.stdout.count("Emitting tuning configuration : default") == 128


def test_dry_run_writes_nothing(cli):
    ended = cli("generate", "--dry-run")
    assert ended.stdout.startswith("109 dispatches of 17 operations")
    assert not list(Path().iterdir())


def test_a_provider_without_sources_is_reported(cli):
    ended = cli("generate", "--providers", "numpy", "--device", "cpu", "--shapes", "8x8x8")
    assert ended.status == 2
    assert "nothing was generated" in ended.stderr
    assert "hint: Add iree or triton with --providers" in ended.stderr
    ended = cli("generate", "--providers", "numpy", "--shapes", "8x8x8")
    assert "computes on the CPU, not on" in ended.stderr
    assert "hint: The warnings above list what was left out" in ended.stderr


def test_an_unwritable_folder_ends_with_3(cli):
    Path("file").write_text("")
    ended = cli("generate", "--generated-dir", "file", "--shapes", "64x64x64")
    assert ended.status == 3
    assert "--generated-dir" in ended.stderr
