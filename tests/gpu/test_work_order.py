"""What verification requires of a GPU: red zones, and work that stays on the timed stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, parse_operation
from gemmetry.domain.errors import Verification
from gemmetry.domain.operation import DTYPES, E2M1, F32, TensorSpec
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import numpy_dtype
from gemmetry.providers.torch_provider.provider import PROVIDER
from gemmetry.verification.protocol import verify

pytestmark = pytest.mark.gpu

SPEC = TensorSpec("result", (512, 512), F32)


@pytest.fixture
def operands(device: Any) -> Any:
    """A and B of a product that takes long enough to be raced with."""
    array = np.ones((512, 512), np.float32)
    return device.upload(array, SPEC), device.upload(array, SPEC)


@pytest.mark.parametrize("offset", [0, 16])
def test_red_zones(device: Any, offset: int) -> None:
    import torch

    for dtype in DTYPES.values():
        columns = 18 if dtype is E2M1 else 17  # Two numbers of e2m1 share a byte.
        spec = TensorSpec("lhs", (33, columns), dtype)
        buffer = device.allocate_with_red_zones(spec, zone_bytes=8192, offset_bytes=offset)
        assert buffer.data_ptr() % 256 == offset
        numbers = np.arange(33 * columns).reshape(33, columns).astype(np.float64)
        array = numbers.astype(numpy_dtype(dtype))
        device.write(buffer, array, spec)
        assert device.download(buffer, spec).tobytes() == array.tobytes()
        assert device.red_zones_intact(buffer)
    memory = torch.empty(0, dtype=torch.uint8, device="cuda").set_(buffer.untyped_storage())
    memory[buffer.storage_offset() * buffer.element_size() - 1] = 0
    assert not device.red_zones_intact(buffer)


def test_the_current_stream_is_in_order(device: Any, operands: Any) -> None:
    import torch

    output = device.allocate(SPEC)
    assert device.unordered_work(lambda: torch.mm(*operands, out=output), output) == ""


def test_a_fork_that_is_joined_is_in_order(device: Any, operands: Any) -> None:
    import torch

    output, side = device.allocate(SPEC), torch.cuda.Stream()

    def launch() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.mm(*operands, out=output)
        torch.cuda.current_stream().wait_stream(side)

    assert device.unordered_work(launch, output) == ""


def test_work_that_runs_ahead_is_reported(device: Any, operands: Any) -> None:
    import torch

    output, side = device.allocate(SPEC), torch.cuda.Stream()

    def launch() -> None:
        with torch.cuda.stream(side):
            torch.mm(*operands, out=output)

    # Another process's time slice can hide the first of the two findings.
    assert "another stream" in device.unordered_work(launch, output)


def test_work_that_nobody_waits_for_is_reported(device: Any, operands: Any) -> None:
    import torch

    output, side = device.allocate(SPEC), torch.cuda.Stream()

    def launch() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                torch.mm(*operands, out=output)

    assert "after the timed stream had finished" in device.unordered_work(launch, output)


@pytest.mark.parametrize(
    "name",
    [
        "matmul_513x257x1031_bf16t_bf16n_bf16t",
        "matmul_2048x2048x2048_bf16t_bf16n_bf16t",
        "matmul_64x64x16384_f16t_f16n_f16t",
        "matmul_300x200x500_f32t_f32n_f32t",
        "matmul_512x512x2048_e4m3t_e4m3n_bf16t",
    ],
)
@pytest.mark.parametrize("level", ["standard", "paranoid"])
def test_no_false_alarm_for_the_vendors_library(
    gpu: Any, generated: Any, name: str, level: str
) -> None:
    provider, operation = PROVIDER(), parse_operation(name)
    if reason := provider.supports(operation, gpu):
        pytest.skip(reason)
    configuration = next(iter(provider.configurations(operation, gpu)))
    dispatch = Dispatch(operation, configuration, provider.name, gpu)
    executable = provider.build(dispatch, Workspace(generated=generated))
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    verdict = verify(
        executable, operation, inputs, compute_reference(operation, inputs), level=level
    )
    assert verdict.reason == ""
    assert verdict.status is Verification.PASSED
    assert verdict.checks["unordered_work"] == verdict.checks["red_zones"] == "passed"
