from __future__ import annotations

import numpy as np
import pytest
from tests.verification.conftest import PlainDevice

from gemmetry.domain.contracts import EditableDevice
from gemmetry.domain.operation import DTYPES, F32, TensorSpec
from gemmetry.hardware.host_device import HostDevice
from gemmetry.numerics.inputs import PERIOD, Edit, fill_plausibly, prepared_edits
from gemmetry.numerics.storage import to_float64

SPEC = TensorSpec("lhs", (6, 4), F32)


def _torch():
    pytest.importorskip("torch")
    from gemmetry.hardware.torch_device import TorchDevice

    return TorchDevice("cpu")


def _iree():
    pytest.importorskip("iree.runtime")
    from gemmetry.providers.iree_provider.device import IreeHostDevice

    return IreeHostDevice(threads=1)


DEVICES = {"host": HostDevice, "plain": PlainDevice, "torch": _torch, "iree": _iree}


@pytest.fixture(params=DEVICES)
def device(request):
    return DEVICES[request.param]()


def test_only_the_plain_one_cannot_edit(device):
    assert isinstance(device, EditableDevice) is not isinstance(device, PlainDevice)


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_an_edit_writes_its_part_when_it_is_called(device, dtype):
    spec = TensorSpec("lhs", (6, 4), dtype)
    if type(device).__name__ == "IreeHostDevice" and dtype.name in ("tf32", "e2m1", "e8m0"):
        pytest.skip(f"IREE has no {dtype}")
    buffer = device.allocate(spec)
    device.fill_bytes(buffer, 0x11)
    before = device.download(buffer, spec)
    part = np.frombuffer(bytes(range(6 * dtype.itemsize)), before.dtype).reshape(6, 1)
    (edit,) = prepared_edits(
        device, (SPEC, spec), (None, buffer), [Edit(1, (slice(None), slice(2, 3)), part)]
    )
    assert device.download(buffer, spec).tobytes() == before.tobytes()
    edit()
    wanted = np.array(before)
    wanted[:, 2:3] = part
    assert device.download(buffer, spec).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("shape", [(1, 3), (40, 50), (130, 129)])
def test_fills_differ_from_element_to_element_and_time_to_time(device, shape):
    spec = TensorSpec("result", shape, F32)
    buffer = device.allocate(spec)
    fills = []
    for number in range(3):
        fill_plausibly(device, buffer, spec, number)
        fills.append(device.download(buffer, spec))
        assert np.unique(fills[-1]).size >= 0.9 * min(fills[-1].size, PERIOD)
    assert (np.diff(fills, axis=0) != 0).mean(axis=(1, 2)).min() > 0.9
    assert np.diff(fills, axis=1).all(), "each row differs from the next"


@pytest.mark.parametrize("dtype", [d for d in DTYPES.values() if d.name != "e8m0"], ids=str)
def test_fills_are_finite_in_every_format(dtype):
    device, spec = HostDevice(), TensorSpec("result", (64, 64), dtype)
    buffer = device.allocate(spec)
    fill_plausibly(device, buffer, spec, 5)
    wide = to_float64(device.download(buffer, spec))
    assert np.isfinite(wide).all()
    assert wide.std() > 1
    assert (wide < 0).any()
