"""The dispatch profiler document's three commands on one folder, on a real CUDA device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmetry.cli.main import run
from gemmetry.domain.dispatch import Target, TargetKind

pytestmark = pytest.mark.gpu

NAME = "matmul_256x256x256_f16t_f16t_f32t"


def test_what_was_generated_is_compiled_and_that_is_profiled(
    gpu: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("iree.compiler", reason="the iree extra is not installed")
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip("the dispatch profiler's configurations are CUDA's")
    monkeypatch.chdir(tmp_path)
    shape = "--problem-m=256 --problem-n=256 --problem-k=256 --dtypes=f16:f16:f32"
    assert run(["generate", *shape.split(), "--generated-dir", "b"]) == 0
    assert run(["compile", "--generated-dir", "b", "--format", "none"]) == 0
    binaries = {path: path.stat().st_mtime_ns for path in Path("b").rglob("compiled/*.vmfb")}
    assert binaries
    capsys.readouterr()
    assert (
        run(["profile", "--generated-dir", "b", "--dispatches", f"{NAME}_*_mmasync", "--json"]) == 0
    )
    records = json.loads(capsys.readouterr().out)["records"]
    assert records
    for record in records:
        assert (record["outcome"], record["verification"]) == ("ok", "passed"), record["reason"]
        assert record["target"] == gpu.name
        assert record["median_ns"] > 0
    after = {path: path.stat().st_mtime_ns for path in Path("b").rglob("compiled/*.vmfb")}
    assert after == binaries
