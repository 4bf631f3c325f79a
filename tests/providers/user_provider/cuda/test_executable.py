"""Launching without a GPU: the driver is replaced, the memory is the host's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import Target, TargetKind
from gemmetry.providers.user_provider.cuda.manifest import load_manifest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
pytest.importorskip("torch", reason="torch is not installed")

import torch

from gemmetry.devices.cuda_driver import CudaError
from gemmetry.devices.torch import open_device
from gemmetry.providers.user_provider.cuda import executable

EXAMPLE = Path(__file__).parents[4] / "examples" / "my_gemm.cu"
NAME = "matmul_100x70x33_bf16t_bf16n_bf16t"


class FakeKernel:
    """Stands for a kernel in the driver; remembers what it was allowed."""

    allowed: int = 0

    def __init__(self, cubin, name) -> None:
        assert cubin.code
        self.name = name

    def attribute(self, name: str) -> int:
        return {"NUM_REGS": 40}[name]

    def allow_shared_memory(self, size: int) -> None:
        FakeKernel.allowed = size


class FakeLaunch:
    """Stands for a prepared launch; remembers the values of each launch's arguments."""

    launches: list = []  # noqa: RUF012
    fails = False

    def __init__(self, kernel, grid, arguments) -> None:
        self.grid, self.arguments = grid, list(arguments)

    def __call__(self, stream: int) -> None:
        if FakeLaunch.fails:
            raise CudaError(f"launching {NAME}", 1, "CUDA_ERROR_INVALID_VALUE")
        FakeLaunch.launches.append((self.grid, stream, [a.value for a in self.arguments]))


@pytest.fixture
def built(monkeypatch, tmp_path):
    monkeypatch.setattr(executable, "Kernel", FakeKernel)
    monkeypatch.setattr(executable, "PreparedLaunch", FakeLaunch)
    monkeypatch.setattr(executable, "open_device", lambda _: open_device(Target(TargetKind.CPU)))
    stream = SimpleNamespace(cuda_stream=77)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
    FakeLaunch.launches, FakeLaunch.fails, FakeKernel.allowed = [], False, 0
    kernel = load_manifest(f"{EXAMPLE}:tiled")
    target = Target(TargetKind.CUDA, "sm_90", 0)
    dispatch = Dispatch(parse_operation(NAME), Configuration("TILE16"), "user", target)
    workspace = Workspace(generated=tmp_path)
    return executable.build_executable(kernel, dispatch, {"TILE": 16}, workspace)


def test_addresses_follow_the_buffers_of_each_launch(built) -> None:
    operation = parse_operation(NAME)
    for _ in range(2):
        inputs = [built.device.allocate(spec) for spec in operation.inputs]
        output = built.device.allocate(operation.output)
        assert built.run(inputs, output) is output
        grid, stream, values = FakeLaunch.launches[-1]
        assert values == [*(t.data_ptr() for t in (*inputs, output)), 100, 70, 33]
        assert (grid.blocks, grid.threads, stream) == ((5, 7, 1), (16, 16, 1), 77)
    assert FakeKernel.allowed == 0
    assert (built.facts.registers, built.facts.compiled_for) == (40, "sm_90a")
    built.close()


def test_a_rejected_launch_is_the_dispatchs_failure(built) -> None:
    operation = parse_operation(NAME)
    inputs = [built.device.allocate(spec) for spec in operation.inputs]
    FakeLaunch.fails = True
    with pytest.raises(LaunchError, match="INVALID_VALUE"):
        built.run(inputs, built.device.allocate(operation.output))
