"""Tests of loading and running plans, with a driver that only remembers."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.domain.errors import LaunchError
from gemmetry.hardware import cuda_driver
from gemmetry.hardware import cuda_driver as cuda_runner
from gemmetry.hardware import cuda_driver as tensor_maps
from gemmetry.hardware.cuda_compiler import Cubin
from gemmetry.hardware.cuda_driver import LaunchConfig, LoadedPlan
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
CUBIN = Cubin(b"code", "log")


class FakeKernel:
    """A kernel that remembers what was requested for it."""

    def __init__(self, cubin, name):
        self.name, self.address, self.requests = name, 7, []

    def allow_shared_memory(self, dynamic_bytes):
        self.requests.append(dynamic_bytes)

    def allow_large_clusters(self):
        self.requests.append("large clusters")


class FakeDriver:
    """Replaces the driver's library: keeps the first bytes of each argument of each launch."""

    def __init__(self):
        self.launches: list[tuple[int, list[int]]] = []
        self.maps: list[int] = []
        self.sizes: tuple[type[Any], ...] = ()

    def cuLaunchKernelEx(  # noqa: N802  (the driver's name)
        self, config, function, table, extra
    ):
        addresses = (ctypes.c_void_p * len(self.sizes)).from_address(table)
        values = [
            kind.from_address(address).value
            for kind, address in zip(self.sizes, addresses, strict=True)
        ]
        self.launches.append((LaunchConfig.from_address(config).stream or 0, values))
        return 0

    def cuTensorMapEncodeTiled(  # noqa: N802
        self, target, kind, rank, address, *rest
    ):
        self.maps.append(address.value)
        where = ctypes.cast(target, ctypes.POINTER(ctypes.c_uint64))
        where[0] = address.value
        return 0


@pytest.fixture
def driver(monkeypatch):
    fake = FakeDriver()
    for module in (cuda_driver, tensor_maps):
        monkeypatch.setattr(module, "driver_library", lambda: fake)
    monkeypatch.setattr(cuda_runner, "Kernel", FakeKernel)
    cuda_runner._loaded.cache_clear()
    return fake


def load(*arguments, grid=None, **workspaces):
    grid = grid or Grid(blocks=(1, 1, 1), threads=(32, 1, 1))
    launch = KernelLaunch(compilation=Compilation(source="gemm/x"), grid=grid, arguments=arguments)
    return LoadedPlan(
        LaunchPlan(launches=(launch,), workspaces=workspaces),
        ["lhs", "rhs", "result"],
        {launch.compilation: CUBIN}.__getitem__,
        lambda size_bytes: 2**20 + size_bytes,
    )


WIDE, INT = ctypes.c_uint64, ctypes.c_int


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
        (40, [3000, 2032, *rest]),
        (41, [3000, 2032, *rest]),
        (40, [3072, 2080, *rest]),
    ]


def test_a_tensor_map_is_made_once_for_each_address(driver):
    driver.sizes = (WIDE,)
    plan = load(Tiles("lhs", BOXES))
    addresses = [0, 0, 0]  # of every call
    for addresses[0] in (4096, 8192, 4096, 8192):
        plan(addresses, 0)
    assert driver.maps == [4096, 8192]
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
        cuda_runner._loaded.cache_clear()
        given = Grid(blocks=(16, 1, 1), threads=(32, 1, 1), **grid)
        return load(grid=given).kernels[0].requests

    assert requests(dynamic_bytes=48 * 1024, cluster=(8, 1, 1)) == []
    assert requests(dynamic_bytes=48 * 1024 + 1) == [48 * 1024 + 1]
    assert requests(cluster=(8, 2, 1)) == ["large clusters"]


def test_several_launches_run_in_order(driver):
    driver.sizes = (INT,)
    grid = Grid(blocks=(1, 1, 1), threads=(32, 1, 1))
    launches = tuple(
        KernelLaunch(compilation=Compilation(source="x", entry=entry), grid=grid, arguments=(i,))
        for i, entry in enumerate(("first", "second"))
    )
    plan = LoadedPlan(LaunchPlan(launches=launches), [], lambda _: CUBIN, int)
    plan([], 3)
    assert driver.launches == [(3, [0]), (3, [1])]
    assert [kernel.name for kernel in plan.kernels] == ["first", "second"]
