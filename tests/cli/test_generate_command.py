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
