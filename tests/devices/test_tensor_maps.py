"""Tests of tensor maps without a driver."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.hardware import cuda_driver as tensor_maps
from gemmetry.hardware.cuda_driver import TENSOR_MAP_BYTES, CudaError, TensorMap
from gemmetry.hardware.cuda_plans import Boxes


class FakeEncoder:
    """Replaces cuTensorMapEncodeTiled: stores its arguments and fills the map."""

    def __init__(self, status):
        self.status = status
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, target, *arguments):
        self.calls.append(arguments)
        # What byref() makes has no value of its own; the address is what a call would pass on.
        pointer = ctypes.cast(target, ctypes.c_void_p)
        ctypes.memset(pointer, 0xAB, TENSOR_MAP_BYTES)
        return self.status


@pytest.fixture
def encode(monkeypatch):
    """encode(status) -> the encoder that maps use from then on."""

    def use(status=0):
        encoder = FakeEncoder(status)
        library = SimpleNamespace(cuTensorMapEncodeTiled=encoder)
        monkeypatch.setattr(tensor_maps, "driver_library", lambda: library)
        return encoder

    return use


def test_a_map_is_aligned_and_describes_its_matrix(encode):
    encoder = encode()
    boxes = Boxes(element="bf16", extents=(40, 96), box=(32, 64), swizzle_bytes=64)
    assert boxes.bytes == 64 * 32 * 2
    maps = [TensorMap(4096, boxes) for _ in range(8)]
    for one in maps:
        assert ctypes.addressof(one.argument) % 64 == 0
        assert bytes(one.argument) == b"\xab" * TENSOR_MAP_BYTES
    kind, rank, address, extents, strides, box, steps, *how = encoder.calls[0]
    assert (kind.value, rank.value, address.value) == (9, 2, 4096)
    assert (list(extents), list(strides)) == ([40, 96], [80])
    assert (list(box), list(steps)) == ([32, 64], [1, 1])
    assert [one.value for one in how] == [0, 2, 0, 0]


def test_a_map_has_any_strides_and_up_to_five_axes(encode):
    encoder = encode()
    TensorMap(4096, Boxes(element="u8", extents=(64, 5), box=(32, 2), strides=(80,)))
    boxes = Boxes(
        element="f32", extents=(8, 6, 4), box=(4, 3, 2), swizzle_bytes=128, promotion_bytes=256,
        nan_outside=True,
    )  # fmt: skip
    TensorMap(4096, boxes)
    (kind, _, _, _, strides, *_), (wide, rank, _, extents, packed, box, _, *how) = encoder.calls
    assert (kind.value, list(strides)) == (0, [80])
    assert (wide.value, rank.value, list(extents)) == (7, 3, [8, 6, 4])
    assert (list(packed), list(box)) == ([32, 192], [4, 3, 2])
    assert [one.value for one in how] == [0, 3, 3, 1]


def test_a_map_that_is_refused_raises(encode):
    encode(1)
    boxes = Boxes(element="f32", extents=(40, 96), box=(32, 64))
    with pytest.raises(CudaError, match="INVALID_VALUE while describing a 96x40 tensor"):
        TensorMap(4096, boxes)
