"""The CPU device: memory that is ours, red zones, errors by kind. The GPU's is in tests/gpu."""

from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.contracts import RedZoneDevice
from gemmetry.domain.dispatch import Target, TargetKind, parse_target
from gemmetry.domain.errors import DeviceLostError, LaunchError, OutOfMemoryError
from gemmetry.domain.operation import DTYPES, Layout, TensorSpec
from gemmetry.hardware.host import last_level_cache_bytes
from gemmetry.hardware.host_device import red_zones
from gemmetry.numerics.storage import numpy_dtype
from gemmetry.providers.iree_provider.device import (
    IreeDevice,
    LoadedModule,
    open_device,
    translate,
)
from gemmetry.providers.iree_provider.linalg import MLIR_TYPES


@pytest.fixture(scope="module")
def device() -> IreeDevice:
    return open_device(Target(TargetKind.CPU), threads=2)


@pytest.mark.parametrize("name", MLIR_TYPES)
def test_every_format_goes_up_and_comes_down_unchanged(device: IreeDevice, name: str):
    dtype = DTYPES[name]
    spec = TensorSpec("lhs", (3, 5), dtype, Layout.COLUMN)
    array = np.arange(15).reshape(5, 3).astype(numpy_dtype(dtype))
    buffer = device.upload(array, spec)
    clone = device.clone(buffer)
    device.fill_bytes(buffer, 0)
    assert not device.download(buffer, spec).tobytes().strip(b"\0")
    down = device.download(clone, spec)
    assert down.dtype == array.dtype
    assert down.tobytes() == array.tobytes()
    assert list(clone.view.shape) == [5, 3]


@pytest.mark.parametrize(("offset", "rounded"), [(0, 0), (16, 64)])
def test_buffers_with_red_zones_keep_the_promised_alignment(device, offset, rounded):
    assert isinstance(device, RedZoneDevice) and device.alignment_bytes == 64
    spec = TensorSpec("lhs", (3, 5), DTYPES["f32"])
    buffer = device.allocate_with_red_zones(spec, zone_bytes=4096, offset_bytes=offset)
    assert buffer.memory.ctypes.data % 256 == rounded
    ones = np.ones((3, 5), np.float32)
    device.write(buffer, ones, spec)
    assert (device.download(buffer, spec) == ones).all()
    for own, zone, place in ((buffer, 0, -4096), (device.allocate(spec), 1, 0)):
        assert device.red_zones_intact(own)
        red_zones(own.memory)[zone][place] ^= 0xFF
        assert not device.red_zones_intact(own)


def test_it_can_be_put_under_stress(device: IreeDevice, stress_host):
    assert stress_host(device) == []


def test_calls_are_timed_one_by_one_and_its_memory_is_known(device: IreeDevice):
    calls: list[int] = []
    durations, method = device.time_calls([lambda: calls.append(1)] * 3)
    assert (method, len(durations), len(calls)) == ("wall_clock", 3, 3)
    assert all(duration > 0 for duration in durations)
    assert device.free_memory_bytes() > 0
    assert device.last_level_cache_bytes == last_level_cache_bytes() > 0
    assert device.float64_matmul() is None
    device.release()


def test_a_device_that_cannot_be_opened_is_reported():
    with pytest.raises(DeviceLostError, match="IREE cannot open cuda://97"):
        IreeDevice(parse_target("cuda:97"))


def test_a_damaged_binary_is_a_launch_error(device: IreeDevice, tmp_path):
    path = tmp_path / "damaged.vmfb"
    path.write_bytes(b"\0" * 256)
    with pytest.raises(LaunchError, match=r"loading damaged\.vmfb"):
        LoadedModule(device, path)


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("c/x.c:12: RESOURCE_EXHAUSTED; no memory", OutOfMemoryError, "no memory"),
        ("c/x.c:12: UNAVAILABLE; device gone", DeviceLostError, "device gone"),
        ("c/x.c:12: INVALID_ARGUMENT; shape", LaunchError, "shape"),
        ("plain words\nmore", LaunchError, "plain words"),
        ("", LaunchError, "RuntimeError"),
    ],
)
def test_errors_of_the_runtime_are_sorted(text, kind, line):
    error = translate(RuntimeError(*([text] if text else [])), "a launch")
    assert type(error) is kind
    assert line in str(error)
    assert ".c:" not in str(error) and "more" not in str(error)
