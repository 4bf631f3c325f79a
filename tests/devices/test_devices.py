from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.operation import F32, TensorSpec
from gemmetry.hardware.opening import host_device, torch_device

SPEC = TensorSpec("lhs", (2, 3), F32)


def _round_trip(device):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    return device.download(device.clone(device.upload(array, SPEC)), SPEC)


def test_the_host_device_keeps_what_it_is_given():
    assert _round_trip(host_device()).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_torch_device_keeps_what_it_is_given():
    pytest.importorskip("torch")
    assert _round_trip(torch_device("cpu")).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_function_is_not_hidden_by_a_folder_of_that_name():
    pytest.importorskip("torch")
    import gemmetry.hardware.torch_device

    assert callable(gemmetry.hardware.opening.torch_device)
