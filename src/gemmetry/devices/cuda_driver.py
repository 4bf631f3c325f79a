"""Loads machine code and launches it through the CUDA driver.

This requires only ``cuda.bindings``, which CUDA builds of torch include. Launches call the driver's
library directly, with structures that are filled once: only the stream and the addresses differ
from launch to launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from cuda.bindings import driver

from gemmetry.devices.cuda_compiler import Cubin
from gemmetry.devices.cuda_plans import Grid

_CLUSTER_DIMENSION = int(driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
_STREAM_SERIALIZATION = int(
    driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
)


class CudaError(RuntimeError):
    """A call of the driver failed; ``error_code`` is its CUresult."""

    def __init__(self, doing: str, code: int, name: str) -> None:
        super().__init__(f"CUDA error: {name} while {doing}")
        self.error_code = code


def checked(result: Sequence[Any], doing: str) -> Any:
    """The return value of a driver call without its status.

    Raises:
        CudaError: the status is not success.
    """
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(doing, int(status), status.name)
    return values[0] if values else None


@cache
def driver_library() -> Any:
    """The driver's library, for calls whose arguments are prepared by the caller.

    Raises:
        OSError: no driver is installed.
    """
    library = ctypes.CDLL("libcuda.so.1")
    library.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
    return library


def device_attribute(name: str) -> int:
    """An attribute of the device whose context is current: ``MULTIPROCESSOR_COUNT`` …, without the
    prefix of names in CUdevice_attribute.

    Raises:
        CudaError: there is no current context.
    """
    doing = f"querying the device for {name}"
    key = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    device = checked(driver.cuCtxGetDevice(), doing)
    return int(checked(driver.cuDeviceGetAttribute(key, device), doing))


class Kernel:
    """A kernel loaded into the current context."""

    def __init__(self, cubin: Cubin, name: str) -> None:
        """
        Raises:
            CudaError: the driver rejected it.
        """
        self.name = name
        self._module = checked(driver.cuModuleLoadData(cubin.code), f"loading {name}")
        self._function = checked(
            driver.cuModuleGetFunction(self._module, name.encode()), f"finding {name}"
        )

    @property
    def address(self) -> int:
        """The kernel's CUfunction."""
        return int(self._function)

    def attribute(self, attribute: str) -> int:
        """An attribute of the kernel: ``NUM_REGS``, ``SHARED_SIZE_BYTES`` …, without the prefix of
        names in CUfunction_attribute."""
        key = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{attribute}")
        return int(checked(driver.cuFuncGetAttribute(key, self._function), f"querying {self.name}"))

    def allow_shared_memory(self, dynamic_bytes: int) -> None:
        """Allow launches to use this much dynamic shared memory; the default limit is 48 KiB."""
        key = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(
            driver.cuFuncSetAttribute(self._function, key, dynamic_bytes),
            f"requesting {dynamic_bytes} bytes of shared memory for {self.name}",
        )

    def allow_large_clusters(self) -> None:
        """Allow clusters of more than the eight blocks that every GPU with clusters supports."""
        key = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        checked(
            driver.cuFuncSetAttribute(self._function, key, 1),
            f"requesting large clusters for {self.name}",
        )

    def launch(
        self,
        blocks: int,
        threads: int,
        dynamic_bytes: int,
        stream: int,
        arguments: Sequence[Any],
        *,
        check: bool = True,
    ) -> None:
        """Launch once on `stream` (a CUstream's address), along one axis.

        Args:
            arguments: ctypes objects.
            check: False only for the kernel whose deliberate bug is an unchecked launch.

        Raises:
            CudaError: the driver rejected it.
        """
        grid = Grid(blocks=(blocks, 1, 1), threads=(threads, 1, 1), dynamic_bytes=dynamic_bytes)
        try:
            PreparedLaunch(self, grid, arguments)(stream)
        except CudaError:
            if check:
                raise


class PreparedLaunch:
    """A kernel with its grid and arguments, ready to be launched many times.

    Addresses are changed before a launch: ``launch.arguments[0].value = address`` for a pointer,
    :meth:`replace` for a tensor map. The driver copies arguments during the call. One instance is
    for one thread at a time.
    """

    def __init__(self, kernel: Kernel, grid: Grid, arguments: Sequence[Any]) -> None:
        """
        Args:
            arguments: ctypes objects, one for each of the kernel's parameters.

        Raises:
            OSError: no driver is installed.
        """
        self._name = kernel.name
        self._function = kernel.address
        self._call = driver_library().cuLaunchKernelEx
        self.arguments = list(arguments)
        addresses = [ctypes.addressof(item) for item in self.arguments]
        self._table = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
        self._attributes = launch_attributes(grid)
        self._config = launch_config(grid, self._attributes)
        self._config_address = ctypes.addressof(self._config)
        self._table_address = ctypes.addressof(self._table)

    def replace(self, index: int, argument: Any) -> None:
        """Pass another ctypes object from now on."""
        self.arguments[index] = argument
        self._table[index] = ctypes.addressof(argument)

    def __call__(self, stream: int) -> None:
        """Launch on `stream` (a CUstream's address).

        Raises:
            CudaError: the driver rejected it.
        """
        self._config.stream = stream
        code = self._call(self._config_address, self._function, self._table_address, None)
        if code:
            checked((driver.CUresult(code),), f"launching {self._name}")


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h: an identifier, and a union of 64 bytes."""

    _fields_ = [
        ("id", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("values", ctypes.c_uint32 * 16),
    ]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = [
        ("blocks", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("dynamic_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


def launch_attributes(grid: Grid) -> Any:
    """The attributes of a launch as an array of :class:`LaunchAttribute`."""
    found = []
    if grid.cluster != (1, 1, 1):
        found.append(LaunchAttribute(_CLUSTER_DIMENSION, 0, grid.cluster))
    if grid.starts_early:
        found.append(LaunchAttribute(_STREAM_SERIALIZATION, 0, (1,)))
    return (LaunchAttribute * len(found))(*found)


def launch_config(grid: Grid, attributes: Any) -> LaunchConfig:
    """What cuLaunchKernelEx takes; `attributes` has to be kept as long as it is in use."""
    return LaunchConfig(
        grid.blocks,
        grid.threads,
        grid.dynamic_bytes,
        None,
        ctypes.addressof(attributes) if len(attributes) else None,
        len(attributes),
    )
