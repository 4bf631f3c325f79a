"""Tests of tensor maps, launches and plans, with a driver that only remembers."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.domain.errors import LaunchError
from gemmetry.hardware import cuda_driver
from gemmetry.hardware.cuda_compiler import Cubin
from gemmetry.hardware.cuda_driver import (
    TENSOR_MAP_BYTES,
    CudaError,
    LaunchConfig,
    LoadedPlan,
    PreparedLaunch,
    TensorMap,
    checked,
    launch_attributes,
    launch_config,
)
from gemmetry.hardware.cuda_plans import (
    Boxes,
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Pointer,
    Tiles,
)

BOXES = Boxes(element="bf16", extents=(64, 64), box=(8, 8))
GRID = Grid(blocks=(2, 3, 1), threads=(32, 1, 1))
WIDE, INT = ctypes.c_uint64, ctypes.c_int
KERNEL: Any = SimpleNamespace(name="gemm", address=77)


class FakeKernel:
    """A kernel, whose address is the length of its name, with what was requested for it."""

    def __init__(self, cubin, name):
        self.name, self.address, self.requests = name, len(name), []

    def allow_shared_memory(self, dynamic_bytes):
        self.requests.append(dynamic_bytes)

    def allow_large_clusters(self):
        self.requests.append("large clusters")


class FakeDriver:
    """The driver's library. It keeps the first bytes of each launch's arguments, of the types
    `sizes`, and what each map was made of. A map is filled with its address, then with 0xAB."""

    def __init__(self):
        self.launches: list[tuple[int, list[int]]] = []
        self.configs: list[tuple[list[int], int]] = []
        self.maps: list[tuple[Any, ...]] = []
        self.sizes: tuple[type[Any], ...] = ()
        self.status = 0

    def cuLaunchKernelEx(self, config, function, table, extra):  # noqa: N802  (the driver's name)
        addresses = (ctypes.c_void_p * len(self.sizes)).from_address(table)
        values = [kind.from_address(address).value
                  for kind, address in zip(self.sizes, addresses, strict=True)]  # fmt: skip
        found = LaunchConfig.from_address(config)
        self.configs.append((list(found.blocks), function))
        self.launches.append((found.stream or 0, values))
        return self.status

    def cuTensorMapEncodeTiled(self, target, *arguments):  # noqa: N802
        self.maps.append(arguments)
        # What byref() makes has no value of its own; the address is what a call would pass on.
        place = ctypes.cast(target, ctypes.POINTER(ctypes.c_uint64))
        ctypes.memset(place, 0xAB, TENSOR_MAP_BYTES)
        place[0] = arguments[2].value
        return self.status


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    monkeypatch.setattr(cuda_driver, "driver_library", lambda: fake)
    monkeypatch.setattr(cuda_driver, "Kernel", FakeKernel)
    cuda_driver._loaded.cache_clear()
    return fake


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
    config, names = driver.CUlaunchConfig(), driver.CUlaunchAttributeID
    config.gridDimX, config.gridDimY, config.gridDimZ = grid.blocks
    config.blockDimX, config.blockDimY, config.blockDimZ = grid.threads
    config.sharedMemBytes = grid.dynamic_bytes
    cluster, early = driver.CUlaunchAttribute(), driver.CUlaunchAttribute()
    cluster.id = names.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    early.id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    size, allowed = driver.CUlaunchAttributeValue(), driver.CUlaunchAttributeValue()
    size.clusterDim.x, size.clusterDim.y, size.clusterDim.z = grid.cluster
    allowed.programmaticStreamSerializationAllowed = 1
    cluster.value, early.value = size, allowed
    config.attrs, config.numAttrs = [cluster, early], 2
    return config


def test_the_structures_are_those_of_the_driver():
    grid = Grid(
        blocks=(6, 5, 4), threads=(96, 2, 1), cluster=(3, 1, 2), dynamic_bytes=5000,
        starts_early=True,
    )  # fmt: skip
    attributes = launch_attributes(grid)
    mine, config = launch_config(grid, attributes), theirs(grid)
    other = LaunchConfig.from_address(config.getPtr())
    for field in ("dynamic_bytes", "attribute_count"):
        assert getattr(mine, field) == getattr(other, field)
    assert list(mine.blocks) == list(other.blocks) == [6, 5, 4]
    assert list(mine.threads) == list(other.threads) == [96, 2, 1]
    there = type(attributes).from_address(other.attributes)
    for index, count in ((0, 3), (1, 1)):
        assert attributes[index].id == there[index].id
        assert attributes[index].values[:count] == there[index].values[:count]


def test_only_addresses_change_from_launch_to_launch(driver):
    driver.sizes = (WIDE, WIDE)
    launch = PreparedLaunch(KERNEL, GRID, [ctypes.c_void_p(1000), ctypes.c_uint64(5)])
    launch(40)
    launch.arguments[0].value = 2000
    launch.replace(1, ctypes.c_uint64(6))
    launch(41)
    assert driver.launches == [(40, [1000, 5]), (41, [2000, 6])]
    assert driver.configs == [([2, 3, 1], 77)] * 2
    driver.status = 1
    with pytest.raises(CudaError, match="INVALID_VALUE while launching gemm"):
        launch(42)


def test_a_map_is_aligned_and_describes_its_matrix(driver):
    boxes = Boxes(element="bf16", extents=(40, 96), box=(32, 64), swizzle_bytes=64)
    assert boxes.bytes == 64 * 32 * 2
    maps = [TensorMap(4096, boxes) for _ in range(8)]
    for one in maps:
        assert ctypes.addressof(one.argument) % 64 == 0
        assert bytes(one.argument)[8:] == b"\xab" * (TENSOR_MAP_BYTES - 8)
    kind, rank, address, extents, strides, box, steps, *how = driver.maps[0]
    assert (kind.value, rank.value, address.value) == (9, 2, 4096)
    assert (list(extents), list(strides)) == ([40, 96], [80])
    assert (list(box), list(steps)) == ([32, 64], [1, 1])
    assert [one.value for one in how] == [0, 2, 0, 0]
    driver.status = 1
    with pytest.raises(CudaError, match="INVALID_VALUE while describing a 96x40 tensor"):
        TensorMap(4096, boxes)


def test_a_map_has_any_strides_and_up_to_five_axes(driver):
    TensorMap(4096, Boxes(element="u8", extents=(64, 5), box=(32, 2), strides=(80,)))
    boxes = Boxes(
        element="f32", extents=(8, 6, 4), box=(4, 3, 2), swizzle_bytes=128, promotion_bytes=256,
        nan_outside=True,
    )  # fmt: skip
    TensorMap(4096, boxes)
    (kind, _, _, _, strides, *_), (wide, rank, _, extents, packed, box, _, *how) = driver.maps
    assert (kind.value, list(strides)) == (0, [80])
    assert (wide.value, rank.value, list(extents)) == (7, 3, [8, 6, 4])
    assert (list(packed), list(box)) == ([32, 192], [4, 3, 2])
    assert [one.value for one in how] == [0, 3, 3, 1]


def load(*arguments, grid=GRID, entries=("gemm",), **workspaces):
    """A plan that launches each entry with these arguments."""
    codes = [Compilation(source="gemm/x", entry=entry) for entry in entries]
    launches = tuple(
        KernelLaunch(compilation=code, grid=grid, arguments=arguments) for code in codes
    )
    return LoadedPlan(
        LaunchPlan(launches=launches, workspaces=workspaces), ["lhs", "rhs", "result"],
        lambda _compilation: Cubin(b"code", "log"), lambda size_bytes: 2**20 + size_bytes,
    )  # fmt: skip


def test_addresses_and_stream_of_each_call_reach_the_kernel(driver):
    driver.sizes = (WIDE, WIDE, INT, ctypes.c_float, INT, WIDE, WIDE)
    plan = load(
        Pointer("result"), Pointer("rhs", 32), 5, 0.5, (11, 12), None, Pointer("partial"),
        partial=64,
    )  # fmt: skip
    plan([1000, 2000, 3000], 40)
    plan([1000, 2000, 3000], 41)
    plan([1000, 2048, 3072], 40)
    rest = [5, 0.5, 11, 0, 2**20 + 64]
    assert driver.launches == [
        (40, [3000, 2032, *rest]), (41, [3000, 2032, *rest]), (40, [3072, 2080, *rest]),
    ]  # fmt: skip


def test_a_tensor_map_is_made_once_for_each_address(driver):
    driver.sizes = (WIDE,)
    plan = load(Tiles("lhs", BOXES))
    addresses = [0, 0, 0]  # of every call
    for addresses[0] in (4096, 8192, 4096, 8192):
        plan(addresses, 0)
    assert [address.value for _, _, address, *_ in driver.maps] == [4096, 8192]
    assert [values for _, values in driver.launches] == [[4096], [8192], [4096], [8192]]


@pytest.mark.parametrize("argument", [Tiles("lhs", BOXES), Pointer("lhs", alignment=16)])
def test_unaligned_buffers_are_refused_and_others_still_work(driver, argument):
    driver.sizes = (WIDE,)
    plan = load(argument)
    plan([4096, 0, 0], 0)
    for _ in range(2):
        with pytest.raises(LaunchError, match="aligned to 16 bytes, not one at 0x1008"):
            plan([4104, 0, 0], 0)
    plan([4096, 0, 0], 0)
    assert [values for _, values in driver.launches] == [[4096], [4096]]


def test_what_a_launch_needs_beyond_the_defaults_is_requested(driver):
    def requests(**grid):
        cuda_driver._loaded.cache_clear()
        given = Grid(blocks=(16, 1, 1), threads=(32, 1, 1), **grid)
        return load(grid=given).kernels[0].requests

    assert requests(dynamic_bytes=48 * 1024, cluster=(8, 1, 1)) == []
    assert requests(dynamic_bytes=48 * 1024 + 1) == [48 * 1024 + 1]
    assert requests(cluster=(8, 2, 1)) == ["large clusters"]


def test_several_launches_run_in_order(driver):
    plan = load(entries=("first", "second"))
    plan([0, 0, 0], 3)
    assert driver.launches == [(3, [])] * 2
    assert [address for _, address in driver.configs] == [len("first"), len("second")]
    assert [kernel.name for kernel in plan.kernels] == ["first", "second"]
