"""Machine code that was compiled elsewhere, on the architecture that it is for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemmetry.cli.main import run
from gemmetry.domain.dispatch import Target
from gemmetry.providers.user_provider.provider import UserProvider

pytestmark = pytest.mark.gpu

CUBINS = Path(__file__).parents[2] / "examples" / "cubins"


@pytest.fixture(autouse=True)
def _hopper(gpu: Target) -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    if gpu.architecture != "sm_90":
        pytest.skip(f"the examples are machine code for sm_90a, and this is {gpu}")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("nvcc", "1x1x8"),
        ("nvcc", "129x257x72"),
        ("nvcc", "512x768x1024"),
        ("cute", "64x64x16"),
        ("cute", "320x192x208"),
    ],
)
def test_the_examples_are_right(check: Callable[..., Any], name: str, shape: str) -> None:
    provider = UserProvider({"kernel": f"{CUBINS / name}_gemm.cubin:{name}"})
    executable = check(provider, f"matmul_{shape}_bf16t_bf16n_bf16t")
    assert executable.facts.registers == {"nvcc": 168, "cute": 64}[name]


def test_a_folder_is_verified_and_timed_next_to_torch(
    gpu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = (
        f"profile --kernel {CUBINS} --providers torch,user --device {gpu.device} "
        "--shapes 2048x2048x2048 --dtypes bf16 --layouts tn --time-budget 200ms --json"
    )
    assert run(arguments.split()) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    own = {r["configuration"]: r for r in records if r["provider"] == "user"}
    assert set(own) == {"cute_default", "nvcc_default"}
    for record in own.values():
        assert (record["outcome"], record["verification"]) == ("ok", "passed"), record["reason"]
        assert record["median_ns"] > 0
    assert own["nvcc_default"]["median_ns"] < own["cute_default"]["median_ns"]
