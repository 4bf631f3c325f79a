"""The failed attempts on a GPU: each is caught, and the kind of mistake is named."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmetry.cli.main import run
from gemmetry.domain.contracts import Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.numerics.storage import quantize, to_float64
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.provider import CudaProvider
from gemmetry.providers.user_provider.provider import UserProvider

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed"
    ),
]

LESSONS = Path(str(resources.files("gemmetry.providers.kernels"))) / "lessons"
SMOKE = "matmul_1x4x3_f32t_f32n_f32t"
VECTOR = np.array([[1.0, 2.0, 3.0]])
ROWS = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
"""The document's smoke test: B as (N, K)."""


@pytest.fixture(autouse=True)
def only_on_nvidia(gpu: Target) -> None:
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip("CUDA C++ runs on NVIDIA GPUs")


def _lesson(name: str, gpu: Target, folder: Path) -> list[float]:
    """What a lesson returns for the smoke test."""
    provider = UserProvider({"kernel": f"{LESSONS / name}.cu:matvec"})
    dispatch = Dispatch(parse_operation(SMOKE), Configuration("default"), "user", gpu)
    return _smoke_test(provider.build(dispatch, Workspace(generated=folder)), dispatch.operation)


def _smoke_test(executable: Executable, operation: Operation) -> list[float]:
    """What a kernel returns for the smoke test, whose answer is 1, 2, 3, 6."""
    device = executable.device
    pairs = zip((VECTOR, ROWS), operation.inputs, strict=True)
    buffers = [device.upload(quantize(array, spec.dtype), spec) for array, spec in pairs]
    output = device.allocate(operation.output)
    device.fill_bytes(output, 0xFF)
    executable.run(buffers, output)
    found = to_float64(device.download(output, operation.output)).ravel().tolist()
    executable.close()
    return found


@pytest.mark.parametrize("name", ["attempt_1", "attempt_3"])
def test_the_smoke_test_returns_zeros(gpu: Target, tmp_path: Path, name: str) -> None:
    assert _lesson(name, gpu, tmp_path) == [0.0, 0.0, 0.0, 0.0]


def test_the_smoke_test_does_not_see_the_hang(gpu: Target, tmp_path: Path) -> None:
    assert _lesson("attempt_2_hang", gpu, tmp_path) == [1.0, 2.0, 3.0, 6.0]


def _own_kernels() -> Iterator[Any]:
    operation = parse_operation(SMOKE.replace("f32", "bf16"))
    for kernel in catalogue.kernels():
        for configuration in kernel.legal(operation):
            yield pytest.param(configuration, id=configuration.name)


@pytest.mark.parametrize("configuration", [*_own_kernels()])
def test_our_own_kernels_pass_the_smoke_test(
    gpu: Target, tmp_path: Path, configuration: Configuration
) -> None:
    if not catalogue.is_hopper(gpu):
        pytest.skip(f"the kernels are for Hopper, this is {gpu}")
    operation = parse_operation(SMOKE.replace("f32", "bf16"))
    dispatch = Dispatch(operation, configuration, "cuda", gpu)
    executable = CudaProvider().build(dispatch, Workspace(generated=tmp_path))
    assert _smoke_test(executable, operation) == [1.0, 2.0, 3.0, 6.0]


@pytest.mark.parametrize(
    ("name", "shape", "outcome", "reason"),
    [
        ("attempt_1", "1x4x3", "wrong", "zeros: every wrong element is 0"),
        ("attempt_1", "1x192x100", "wrong", "part of K missing"),
        ("attempt_1", "1x256x96", "wrong", "64 of 256 elements were never written"),
        ("attempt_3", "1x4x3", "wrong", "zeros: every wrong element is 0"),
        ("attempt_3", "1x256x100", "wrong", "part of K missing"),
        ("attempt_2_tiles", "1x4x3", "compile_error", "attempt_2_tiles.cu(32): error"),
        ("attempt_2_hang", "1x96x64", "timeout", "deadlines.verify"),
    ],
)
def test_it_is_caught_with_the_kind_of_mistake(
    gpu: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    shape: str,
    outcome: str,
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = (
        f"verify run --kernel {LESSONS / name}.cu:matvec --providers user --device {gpu.device} "
        f"--shapes {shape} --dtypes f32 --layouts tn --set deadlines.verify=15 --json"
    )
    assert run(arguments.split()) == 1
    [record] = json.loads(capsys.readouterr().out)["records"]
    assert record["outcome"] == outcome, record["reason"]
    assert reason in record["reason"]


@pytest.mark.alone  # Others would make torch's verification exceed the deadline of the hang.
def test_the_device_is_usable_after_the_hang(
    gpu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel that ran after the one that the watchdog ended, in the same run."""
    monkeypatch.chdir(tmp_path)
    arguments = (
        f"verify run --kernel {LESSONS / 'attempt_2_hang'}.cu:matvec --providers user,torch "
        f"--device {gpu.device} --shapes 1x96x64 --dtypes f32 --layouts tn "
        "--set deadlines.verify=15 --json"
    )
    assert run(arguments.split()) == 1
    records = json.loads(capsys.readouterr().out)["records"]
    outcomes = {record["provider"]: record["outcome"] for record in records}
    assert outcomes == {"user": "timeout", "torch": "ok"}
