"""Tests of what mutants in CUDA C++ require of the driver, without one."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.devices.cuda_driver import CudaError
from gemmetry.providers.mutant_provider.cuda import driver as cuda_driver
from gemmetry.providers.mutant_provider.cuda.driver import TENSOR_MAP_BYTES, TensorMap


class FakeEncoder:
    """Replaces cuTensorMapEncodeTiled: stores its arguments and fills the map."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, target: Any, *arguments: Any) -> int:
        self.calls.append(arguments)
        # What byref() makes has no value of its own; the address is what a call would pass on.
        pointer = ctypes.cast(target, ctypes.c_void_p)
        ctypes.memset(pointer, 0xAB, TENSOR_MAP_BYTES)
        return self.status


@pytest.fixture
def encode(monkeypatch: pytest.MonkeyPatch) -> Any:
    """encode(status) -> the encoder that maps use from then on."""

    def use(status: int = 0) -> FakeEncoder:
        encoder = FakeEncoder(status)
        library = SimpleNamespace(cuTensorMapEncodeTiled=encoder)
        monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda name: library)
        return encoder

    return use


def test_a_map_is_aligned_and_describes_its_matrix(encode: Any) -> None:
    encoder = encode()
    maps = [
        TensorMap(
            4096, rows=96, columns=40, bf16=True, box_rows=64, box_columns=32, swizzle_bytes=64
        )
        for _ in range(8)
    ]
    for one in maps:
        assert ctypes.addressof(one.argument) % 64 == 0
        assert bytes(one.argument) == b"\xab" * TENSOR_MAP_BYTES
    kind, rank, address, extents, strides, box, steps, *how = encoder.calls[0]
    assert (kind.value, rank.value, address.value) == (9, 2, 4096)
    assert (list(extents), list(strides)) == ([40, 96], [80])
    assert (list(box), list(steps)) == ([32, 64], [1, 1])
    assert [one.value for one in how] == [0, 2, 0, 0]


def test_a_map_that_is_refused_raises(encode: Any) -> None:
    encode(1)
    with pytest.raises(CudaError, match="INVALID_VALUE while describing a 96x40 matrix"):
        TensorMap(4096, rows=96, columns=40, bf16=False, box_rows=64, box_columns=32)
