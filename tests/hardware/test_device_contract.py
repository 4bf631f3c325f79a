"""What every device does: host memory through numpy and through torch (GPUs: tests/gpu)."""

from __future__ import annotations

import itertools
import threading

import ml_dtypes
import numpy as np
import pytest

from gemmetry.domain.contracts import OrderedDevice, RedZoneDevice, ThreadDevice
from gemmetry.domain.errors import LaunchError, OutOfMemoryError
from gemmetry.domain.operation import DTYPES, E2M1, F32, Layout, TensorSpec
from gemmetry.hardware import host_device as host
from gemmetry.hardware import opening as late_work
from gemmetry.hardware.host import last_level_cache_bytes
from gemmetry.hardware.host_device import red_zones
from gemmetry.hardware.opening import host_device, torch_device
from gemmetry.numerics.storage import numpy_dtype


@pytest.fixture(params=["host", "torch"])
def device(request):
    if request.param == "host":
        return host_device()
    pytest.importorskip("torch")
    return torch_device("cpu")


@pytest.fixture
def numpy_device():
    return host_device()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_a_round_trip_copies_every_bit_in_the_storage_shape(device, dtype):
    spec = TensorSpec("lhs", (4, 5), dtype, Layout.COLUMN)
    largest = 15 if dtype is E2M1 else 255
    rng = np.random.default_rng(1)
    raw = rng.integers(0, largest + 1, size=(5, 4 * dtype.itemsize), dtype=np.uint8)
    array = raw.view(numpy_dtype(dtype)).copy()
    array.flags.writeable = False
    buffer = device.upload(array, spec)
    back = device.download(device.clone(buffer), spec)
    device.fill_bytes(buffer, 0)
    assert (back.shape, back.dtype) == ((5, 4), array.dtype)
    assert back.flags.c_contiguous
    assert back.tobytes() == array.tobytes()


def test_buffers_and_their_clones_are_aligned(numpy_device):
    for extent in range(1, 40):
        buffer = numpy_device.allocate(TensorSpec("result", (extent, 3), F32))
        assert buffer.ctypes.data % host.ALIGNMENT_BYTES == 0
        assert numpy_device.clone(buffer).ctypes.data % host.ALIGNMENT_BYTES == 0


def test_a_write_beyond_the_buffer_is_seen(numpy_device):
    for side, end in itertools.product((0, 1), (0, -1)):
        buffer = numpy_device.allocate(TensorSpec("result", (4, 4), F32))
        before, after = red_zones(buffer)
        assert before.ctypes.data + before.nbytes == buffer.ctypes.data
        assert after.ctypes.data == buffer.ctypes.data + buffer.nbytes
        numpy_device.fill_bytes(buffer, 0)
        assert numpy_device.red_zones_intact(buffer)
        zone = (before, after)[side]
        assert zone.size >= host.RED_ZONE_BYTES
        zone[end] ^= 1
        assert not numpy_device.red_zones_intact(buffer)
    with pytest.raises(ValueError, match="not a buffer"):
        red_zones(np.zeros(4))


@pytest.mark.parametrize(("offset", "zone_bytes"), [(0, 1), (4, 4096), (16, 1), (60, 4096)])
def test_buffers_with_red_zones_begin_where_requested(numpy_device, offset, zone_bytes):
    assert isinstance(numpy_device, RedZoneDevice)
    spec = TensorSpec("lhs", (7, 3), F32)
    buffer = numpy_device.allocate_with_red_zones(spec, zone_bytes=zone_bytes, offset_bytes=offset)
    assert buffer.shape == (7, 3)
    assert buffer.ctypes.data % 256 == offset
    assert min(zone.size for zone in red_zones(buffer)) >= zone_bytes
    numpy_device.write(buffer, np.ones((7, 3), np.float32), spec)
    assert numpy_device.red_zones_intact(buffer)
    red_zones(buffer)[1][zone_bytes - 1] = 0
    assert not numpy_device.red_zones_intact(buffer)


def test_work_that_ends_later_is_reported(device, monkeypatch):
    monkeypatch.setattr(late_work, "LONGEST_WAIT_S", 60.0)
    assert isinstance(device, OrderedDevice)
    output = device.allocate(TensorSpec("result", (4, 4), F32))
    assert device.unordered_work(lambda: device.fill_bytes(output, 1), output) == ""

    def later():
        threading.Timer(0.5, lambda: device.fill_bytes(output, 1)).start()

    assert "continued to write" in device.unordered_work(later, output)


def test_it_can_be_put_under_stress(device, stress_host):
    assert stress_host(device) == []


def test_another_shape_or_dtype_is_refused(numpy_device):
    spec = TensorSpec("lhs", (2, 3), F32)
    for array in (np.zeros((3, 2), np.float32), np.zeros((2, 3), ml_dtypes.bfloat16)):
        with pytest.raises(LaunchError, match="lhs"):
            numpy_device.upload(array, spec)


def test_no_memory_is_an_out_of_memory_error(device):
    with pytest.raises(OutOfMemoryError):
        device.allocate(TensorSpec("lhs", (2**24, 2**24), F32))


def test_calls_are_timed_in_order_once_each(device):
    seen = []
    durations, method = device.time_calls([lambda i=i: seen.append(i) for i in range(5)])
    assert (seen, method, len(durations)) == ([0, 1, 2, 3, 4], "wall_clock", 5)
    assert all(duration >= 0 for duration in durations)


def test_the_real_machine_gives_plausible_numbers(device):
    assert device.last_level_cache_bytes == last_level_cache_bytes() >= 2**18
    assert 2**20 < device.free_memory_bytes() < 2**50
    assert device.float64_matmul() is None
    assert device.alignment_bytes == 1, "any address can be used"
    assert isinstance(device, ThreadDevice)
    thread = threading.Thread(target=device.enter_thread)
    thread.start()
    thread.join()
    device.synchronize()
    device.release()
