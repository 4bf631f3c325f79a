"""Tests of launches through the driver's library, without a driver."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.hardware import cuda_driver
from gemmetry.hardware.cuda_driver import (
    CudaError,
    LaunchConfig,
    PreparedLaunch,
    checked,
    launch_attributes,
    launch_config,
)
from gemmetry.hardware.cuda_plans import Grid


def test_a_failed_call_raises_with_its_code():
    status = cuda_driver.driver.CUresult
    assert checked((status.CUDA_SUCCESS, 7), "asking") == 7
    assert checked((status.CUDA_SUCCESS,), "asking") is None
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_VALUE while asking") as caught:
        checked((status.CUDA_ERROR_INVALID_VALUE,), "asking")
    assert caught.value.error_code == 1


def theirs(grid):
    """The same launch in the structures of cuda-bindings."""
    driver = cuda_driver.driver
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid.blocks
    config.blockDimX, config.blockDimY, config.blockDimZ = grid.threads
    config.sharedMemBytes = grid.dynamic_bytes
    names = driver.CUlaunchAttributeID
    cluster, early = driver.CUlaunchAttribute(), driver.CUlaunchAttribute()
    cluster.id = names.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    early.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    size, allowed = driver.CUlaunchAttributeValue(), driver.CUlaunchAttributeValue()
    size.clusterDim.x, size.clusterDim.y, size.clusterDim.z = grid.cluster
    allowed.programmaticStreamSerializationAllowed = 1
    cluster.value, early.value = size, allowed
    config.attrs = [cluster, early]
    config.numAttrs = 2
    return config


def test_the_structures_are_those_of_the_driver():
    grid = Grid(
        blocks=(6, 5, 4), threads=(96, 2, 1), cluster=(3, 1, 2), dynamic_bytes=5000,
        starts_early=True,
    )  # fmt: skip
    attributes = launch_attributes(grid)
    mine = launch_config(grid, attributes)
    config = theirs(grid)
    other = LaunchConfig.from_address(config.getPtr())
    for field in ("dynamic_bytes", "attribute_count"):
        assert getattr(mine, field) == getattr(other, field)
    assert list(mine.blocks) == list(other.blocks) == [6, 5, 4]
    assert list(mine.threads) == list(other.threads) == [96, 2, 1]
    there = type(attributes).from_address(other.attributes)
    for index, count in ((0, 3), (1, 1)):
        assert attributes[index].id == there[index].id
        assert attributes[index].values[:count] == there[index].values[:count]


class Library:
    """Replaces the driver's library: stores what each launch passes, as the driver copies it."""

    def __init__(self, monkeypatch):
        self.launches: list[tuple[Any, ...]] = []
        self.status = 0
        library = SimpleNamespace(cuLaunchKernelEx=self._launch)
        monkeypatch.setattr(cuda_driver, "driver_library", lambda: library)

    def _launch(self, config, function, table, extra):
        found = LaunchConfig.from_address(config)
        pointers = (ctypes.c_void_p * 2).from_address(table)
        values = [ctypes.c_uint64.from_address(one).value for one in pointers]
        self.launches.append((list(found.blocks), found.stream, function, values))
        return self.status


KERNEL: Any = SimpleNamespace(name="gemm", address=77)


def test_only_addresses_change_from_launch_to_launch(monkeypatch):
    library = Library(monkeypatch)
    grid = Grid(blocks=(2, 3, 1), threads=(32, 1, 1))
    launch = PreparedLaunch(KERNEL, grid, [ctypes.c_void_p(1000), ctypes.c_uint64(5)])
    launch(40)
    launch.arguments[0].value = 2000
    launch.replace(1, ctypes.c_uint64(6))
    launch(41)
    assert library.launches == [([2, 3, 1], 40, 77, [1000, 5]), ([2, 3, 1], 41, 77, [2000, 6])]
    library.status = 1
    with pytest.raises(CudaError, match="INVALID_VALUE while launching gemm"):
        launch(42)
