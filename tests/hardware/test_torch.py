"""Tests of torch's memory and clock on the CPU (GPUs: tests/gpu/test_torch_cuda.py)."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from gemmetry.domain.contracts import RedZoneDevice
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import DeviceLostError, LaunchError, OutOfMemoryError
from gemmetry.domain.operation import BF16, DTYPES, E2M1, E8M0, F32, Layout, TensorSpec
from gemmetry.hardware.torch_device import TorchDevice, open_device, stored_shape, to_host
from gemmetry.numerics.storage import numpy_dtype, to_float64


@pytest.fixture
def device():
    return TorchDevice("cpu")


def test_e2m1_is_stored_in_pairs_with_the_first_in_the_lower_half(device):
    spec = TensorSpec("lhs", (2, 4), E2M1)
    array = np.array([[0.5, 1, 1.5, 2], [-6, 0, 0, 3]]).astype(numpy_dtype(E2M1))
    buffer = device.upload(array, spec)
    assert buffer.tolist() == [[0x21, 0x43], [0x0F, 0x50]]
    odd = TensorSpec("lhs", (2, 3), E2M1)
    with pytest.raises(LaunchError, match="3 contiguous numbers of e2m1"):
        device.allocate(odd)


def test_a_result_of_another_shape_or_type_is_refused(device):
    spec = TensorSpec("result", (2, 3), F32, Layout.COLUMN)
    with pytest.raises(LaunchError, match=r"shape \(2, 3\).*\(3, 2\)"):
        device.download(torch.zeros(2, 3), spec)
    with pytest.raises(LaunchError, match=r"float64.*float32"):
        to_host(torch.zeros(3, 2, dtype=torch.float64), F32)


WITH_CODE = RuntimeError("CUDA error")
WITH_CODE.error_code = 46  # type: ignore[attr-defined]


@pytest.mark.parametrize(("error", "expected"), [
    (RuntimeError("CUDA error: an illegal memory access was encountered"), LaunchError),
    (RuntimeError("CUDA error: uncorrectable ECC error encountered"), DeviceLostError),
    (WITH_CODE, DeviceLostError),
    (RuntimeError("DefaultCPUAllocator: can't allocate memory"), OutOfMemoryError),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), OutOfMemoryError),
    (MemoryError(), OutOfMemoryError),
])  # fmt: skip
def test_errors_are_sorted(device, error, expected):
    translated = device.translate(error, "running it")
    assert type(translated) is expected
    assert "running it" in str(translated)


def test_threads_are_set_on_request():
    before = torch.get_num_threads()
    try:
        device = open_device(Target(TargetKind.CPU), threads=1)
        assert torch.get_num_threads() == 1
        assert open_device(Target(TargetKind.CPU)) is device
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("offset", [0, 8, 16])
def test_buffers_with_red_zones_hold_what_is_written(device, dtype, offset):
    assert isinstance(device, RedZoneDevice)
    spec = TensorSpec("lhs", (3, 6), dtype)
    buffer = device.allocate_with_red_zones(spec, zone_bytes=4096, offset_bytes=offset)
    assert buffer.data_ptr() % 256 == offset
    assert buffer.is_contiguous() and tuple(buffer.shape) == stored_shape(spec)
    assert buffer.nbytes == spec.bytes
    array = np.arange(18, dtype=np.float64).reshape(3, 6).astype(numpy_dtype(dtype))
    array.flags.writeable = False
    device.write(buffer, array, spec)
    assert device.download(buffer, spec).tobytes() == array.tobytes()
    assert device.red_zones_intact(buffer)


@pytest.mark.parametrize("place", [-4096, -1, 60, 60 + 4095])
def test_writes_around_a_buffer_with_red_zones_are_seen_and_reads_are_nan(device, place):
    spec = TensorSpec("result", (3, 5), F32)
    buffer = device.allocate_with_red_zones(spec, zone_bytes=4096)
    beyond = torch.as_strided(buffer, (16,), (1,), buffer.storage_offset() + 15)
    assert torch.isnan(beyond).all()
    memory = torch.empty(0, dtype=torch.uint8).set_(buffer.untyped_storage())
    memory[buffer.storage_offset() * 4 + place] = 0
    assert not device.red_zones_intact(buffer)


def test_same_bytes(device):
    spec = TensorSpec("lhs", (3, 5), F32)
    left = device.upload(np.full((3, 5), np.nan, np.float32), spec)
    assert device.same_bytes(left, device.clone(left))
    assert not device.same_bytes(left, device.allocate(TensorSpec("lhs", (5, 3), F32)))
    assert not device.same_bytes(left, device.allocate(TensorSpec("lhs", (3, 5), BF16)))


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
@pytest.mark.parametrize("room", [10**9, 3 * 8 * 60])
def test_float64_product_of_any_format_and_order(dtype, room, monkeypatch):
    """As a GPU computes references: widened on the device, in tiles where memory is short."""
    device = TorchDevice("cpu")
    monkeypatch.setattr(device, "free_memory_bytes", lambda: room)
    rng = np.random.default_rng(1)
    numbers = [1, 2, 4] if dtype is E8M0 else [-4, -3, -2, -1, 0, 1, 2, 3, 4]
    lhs = rng.choice(numbers, (2, 37, 23)).astype(numpy_dtype(dtype))
    rhs = rng.choice(numbers, (2, 11, 23)).astype(numpy_dtype(dtype)).swapaxes(-1, -2)
    lhs.flags.writeable = False
    expected = to_float64(lhs) @ to_float64(rhs)
    assert (device._float64_product(lhs, rhs) == expected).all()
    assert (device._float64_product(lhs[1], rhs[1]) == expected[1]).all()
