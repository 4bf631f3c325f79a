from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

from gemmetry.domain.contracts import OrderedDevice, RedZoneDevice, ThreadDevice
from gemmetry.domain.errors import LaunchError, OutOfMemoryError
from gemmetry.domain.operation import DTYPES, F32, Layout, TensorSpec
from gemmetry.hardware import host_device as host
from gemmetry.hardware import opening as late_work
from gemmetry.hardware.host_device import HostDevice, red_zones
from gemmetry.numerics.storage import numpy_dtype


@pytest.fixture
def device() -> HostDevice:
    return HostDevice()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_upload_download_round_trip_keeps_bytes_and_storage_shape(device, dtype):
    spec = TensorSpec("lhs", (3, 5), dtype, Layout.COLUMN)
    array = np.arange(15, dtype=np.float64).reshape(5, 3).astype(numpy_dtype(dtype))
    buffer = device.upload(array, spec)
    back = device.download(buffer, spec)
    assert back.shape == (5, 3)
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()
    assert back.flags.c_contiguous
    assert not np.shares_memory(back, buffer)


def test_buffers_are_aligned_and_clones_have_their_own_memory(device):
    for extent in range(1, 40):
        buffer = device.allocate(TensorSpec("result", (extent, 3), F32))
        assert buffer.ctypes.data % host.ALIGNMENT_BYTES == 0
        buffer[...] = 1
        copy = device.clone(buffer)
        assert copy.ctypes.data % host.ALIGNMENT_BYTES == 0
        copy[...] = 2
        assert (buffer == 1).all()


def test_fill_bytes_sets_the_buffer_and_leaves_the_red_zones(device):
    buffer = device.allocate(TensorSpec("result", (4, 4), F32))
    device.fill_bytes(buffer, 0)
    assert (buffer == 0).all()
    assert device.red_zones_intact(buffer)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("end", [0, -1])
def test_a_write_beyond_the_buffer_is_seen(device, side, end):
    buffer = device.allocate(TensorSpec("result", (4, 4), F32))
    zone = red_zones(buffer)[side]
    assert zone.size >= host.RED_ZONE_BYTES
    zone[end] ^= 1
    assert not device.red_zones_intact(buffer)


@pytest.mark.parametrize("offset", [0, 4, 16, 60])
@pytest.mark.parametrize("zone_bytes", [1, 4096])
def test_buffers_with_red_zones_begin_where_requested(device, offset, zone_bytes):
    assert isinstance(device, RedZoneDevice)
    spec = TensorSpec("lhs", (7, 3), F32)
    buffer = device.allocate_with_red_zones(spec, zone_bytes=zone_bytes, offset_bytes=offset)
    assert buffer.shape == (7, 3)
    assert buffer.ctypes.data % 256 == offset
    assert min(zone.size for zone in red_zones(buffer)) >= zone_bytes
    device.write(buffer, np.ones((7, 3), np.float32), spec)
    assert device.red_zones_intact(buffer)
    red_zones(buffer)[1][zone_bytes - 1] = 0
    assert not device.red_zones_intact(buffer)


def test_work_that_ends_later_is_reported(device, monkeypatch):
    monkeypatch.setattr(late_work, "LONGEST_WAIT_S", 60.0)
    assert isinstance(device, OrderedDevice)
    output = device.allocate(TensorSpec("result", (4, 4), F32))
    assert device.unordered_work(lambda: output.fill(1), output) == ""

    def later():
        worker = threading.Timer(0.5, lambda: output.fill(1))
        worker.start()

    assert "continued to write" in device.unordered_work(later, output)


def test_it_can_be_put_under_stress(device, stress_host):
    assert stress_host(device) == []


def test_red_zones_touch_the_buffer(device):
    buffer = device.allocate(TensorSpec("result", (4, 4), F32))
    before, after = red_zones(buffer)
    assert before.ctypes.data + before.nbytes == buffer.ctypes.data
    assert after.ctypes.data == buffer.ctypes.data + buffer.nbytes


def test_red_zones_of_a_foreign_array_are_refused():
    with pytest.raises(ValueError, match="not a buffer"):
        red_zones(np.zeros(4))


def test_upload_refuses_another_shape_or_dtype(device):
    spec = TensorSpec("lhs", (2, 3), F32)
    with pytest.raises(LaunchError, match=r"lhs must be float32 of shape \(2, 3\)"):
        device.upload(np.zeros((3, 2), np.float32), spec)
    with pytest.raises(LaunchError, match="not bfloat16"):
        device.upload(np.zeros((2, 3), ml_dtypes.bfloat16), spec)


def test_no_memory_is_an_out_of_memory_error(device):
    with pytest.raises(OutOfMemoryError, match="the host has no"):
        device.allocate(TensorSpec("lhs", (2**31, 2**31), F32))


def test_time_calls_runs_each_once_in_order(device):
    seen = []
    durations, method = device.time_calls([lambda i=i: seen.append(i) for i in range(5)])
    assert seen == [0, 1, 2, 3, 4]
    assert method == "wall_clock"
    assert len(durations) == 5
    assert all(duration >= 0 for duration in durations)


def test_the_real_machine_gives_plausible_numbers(device):
    assert device.last_level_cache_bytes >= 2**18
    assert 2**20 < device.free_memory_bytes() < 2**50
    assert device.float64_matmul() is None


def test_any_thread_and_any_address_can_be_used(device):
    assert isinstance(device, ThreadDevice)
    device.enter_thread()
    assert device.alignment_bytes == 1
