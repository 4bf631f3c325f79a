"""Loads machine code and launches it through the CUDA driver.

This requires only ``cuda.bindings``, which CUDA builds of torch include. Launches call the driver's
library directly, with structures that are filled once: only the stream and the addresses differ
from launch to launch.

Tensor maps: descriptions of tensors for Hopper's copy engine, which moves boxes of them.

Loads a plan onto the current device and runs it: per call only the stream and the addresses that
changed are passed on.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from cuda.bindings import driver

from gemmetry.domain.errors import LaunchError
from gemmetry.hardware.cuda_compiler import Cubin
from gemmetry.hardware.cuda_plans import (
    Argument,
    Boxes,
    Compilation,
    Grid,
    KernelLaunch,
    LaunchPlan,
    Pointer,
    Tiles,
)

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
            CudaError: the driver rejected the kernel.
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
            CudaError: the driver rejected the launch.
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
            CudaError: the driver rejected the launch.
        """
        self._config.stream = stream
        code = self._call(self._config_address, self._function, self._table_address, None)
        if code:
            checked((driver.CUresult(code),), f"launching {self._name}")


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h: an identifier, and a union of 64 bytes."""

    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("values", ctypes.c_uint32 * 16)]


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
    """Argument of cuLaunchKernelEx; `attributes` must live as long as it is in use."""
    return LaunchConfig(
        grid.blocks,
        grid.threads,
        grid.dynamic_bytes,
        None,
        ctypes.addressof(attributes) if len(attributes) else None,
        len(attributes),
    )


TENSOR_MAP_BYTES = 128
_TENSOR_MAP_ALIGNMENT = 64
"""Size and alignment of CUtensorMap: CUDA Driver API, cuTensorMapEncodeTiled."""

_ELEMENTS = {"u8": 0, "f16": 6, "f32": 7, "bf16": 9}
"""Name -> value of the enumeration CUtensorMapDataType."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Bytes -> value of the enumeration CUtensorMapSwizzle."""
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
"""Bytes -> value of the enumeration CUtensorMapL2promotion."""


class TensorMap:
    """A :class:`Boxes` of a tensor at an address."""

    def __init__(self, address: int, boxes: Boxes) -> None:
        """
        Args:
            address: of the first element, a multiple of 16.

        Raises:
            CudaError: the driver rejected it: a stride that is no multiple of 16 bytes, a row of
                the box that is wider than the swizzle, …
        """
        # The binding of this one function returns memory without the alignment that the function
        # requires.
        encode = driver_library().cuTensorMapEncodeTiled
        memory = ctypes.create_string_buffer(TENSOR_MAP_BYTES + _TENSOR_MAP_ALIGNMENT)
        offset = -ctypes.addressof(memory) % _TENSOR_MAP_ALIGNMENT
        self.argument: Any = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(memory, offset)
        """The argument for a launch; it keeps its memory alive."""
        rank = len(boxes.extents)
        strides = boxes.all_strides
        status = encode(
            ctypes.byref(self.argument),
            ctypes.c_int(_ELEMENTS[boxes.element]),
            ctypes.c_uint32(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*boxes.extents),
            (ctypes.c_uint64 * max(rank - 1, 1))(*strides),
            (ctypes.c_uint32 * rank)(*boxes.box),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            ctypes.c_int(0),  # not interleaved
            ctypes.c_int(_SWIZZLES[boxes.swizzle_bytes]),
            ctypes.c_int(_PROMOTIONS[boxes.promotion_bytes]),
            ctypes.c_int(int(boxes.nan_outside)),
        )
        sizes = "x".join(map(str, reversed(boxes.extents)))
        checked((driver.CUresult(status),), f"describing a {sizes} tensor in boxes {boxes.box}")


_STATIC_BYTES = 48 * 1024
"""Dynamic shared memory that a launch may have without a request (CUDA C++ Programming Guide)."""
_PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters supports (the same guide)."""
_MAPS_KEPT = 512
"""Tensor maps that one argument keeps; a run rotates through fewer buffers than that."""


class _Update(NamedTuple):
    """An argument that depends on the address of a buffer."""

    launch: PreparedLaunch
    position: int
    buffer: int
    """Index among the addresses of a call."""
    offset_bytes: int
    alignment: int
    boxes: Boxes | None
    """Boxes; None: the argument is the address itself."""
    maps: dict[int, TensorMap]
    """Tensor maps by address."""


class LoadedPlan:
    """A plan with its kernels in the current context; it may be used by several threads."""

    def __init__(
        self,
        plan: LaunchPlan,
        buffers: Sequence[str],
        compiled: Callable[[Compilation], Cubin],
        allocate: Callable[[int], int],
        device_index: int = 0,
    ) -> None:
        """
        Args:
            buffers: the names of the buffers whose addresses a call is given, in that order.
            compiled: gives the machine code of a compilation.
            allocate: gives the address of so many bytes of zeros on the device. The caller keeps
                them; calls that overlap on the device must not share them.
            device_index: which device is current.

        Raises:
            CompileError: a source was rejected. CudaError: the driver rejected a kernel.
        """
        self.kernels: list[Kernel] = []
        self._launches: list[PreparedLaunch] = []
        self._updates: list[_Update] = []
        self._last: Sequence[int] = ()
        self._lock = threading.Lock()
        places = {name: index for index, name in enumerate(buffers)}
        workspaces = {name: allocate(size) for name, size in plan.workspaces.items()}
        for launch in plan.launches:
            compilation = launch.compilation
            kernel = _loaded(compiled(compilation), compilation.entry, device_index)
            _permit(kernel, launch)
            prepared = PreparedLaunch(
                kernel, launch.grid, [_initial(one) for one in launch.arguments]
            )
            self.kernels.append(kernel)
            self._launches.append(prepared)
            for position, argument in enumerate(launch.arguments):
                if not isinstance(argument, Pointer | Tiles):
                    continue
                boxes = argument.boxes if isinstance(argument, Tiles) else None
                update = _Update(
                    prepared, position, places.get(argument.buffer, -1), argument.offset_bytes,
                    argument.alignment, boxes, {},
                )  # fmt: skip
                if argument.buffer in places:
                    self._updates.append(update)
                else:
                    _set(update, workspaces[argument.buffer])

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Submit the launches to `stream` (a CUstream's address).

        Args:
            addresses: of the buffers, in the order of their names.

        Raises:
            LaunchError: an address is not aligned as a kernel requires.
            CudaError: the driver rejected a launch or a tensor map.
        """
        with self._lock:
            if addresses != self._last:
                self._last = ()  # In case one of them is refused.
                for update in self._updates:
                    _set(update, addresses[update.buffer])
                self._last = list(addresses)  # a copy: the caller may use its list again
            for launch in self._launches:
                launch(stream)


def _set(update: _Update, buffer_address: int) -> None:
    address = buffer_address + update.offset_bytes
    if address % update.alignment:
        raise LaunchError(
            f"a kernel needs buffers aligned to {update.alignment} bytes, not one at {address:#x}",
            hint="Pass whole allocations, not slices that begin in the middle of one.",
        )
    if update.boxes is None:
        update.launch.arguments[update.position].value = address
        return
    found = update.maps.get(address)
    if found is None:
        if len(update.maps) >= _MAPS_KEPT:
            update.maps.clear()
        found = update.maps[address] = TensorMap(address, update.boxes)
    update.launch.replace(update.position, found.argument)


def _initial(argument: Argument) -> Any:
    """The ctypes object of an argument; those of buffers are set later."""
    if isinstance(argument, tuple):
        return (ctypes.c_int * len(argument))(*argument)
    if isinstance(argument, bytes):
        return ctypes.create_string_buffer(argument, len(argument))
    if isinstance(argument, int):
        return ctypes.c_int(argument)
    return ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_void_p()


def _permit(kernel: Kernel, launch: KernelLaunch) -> None:
    """Request what a launch needs beyond the defaults."""
    x, y, z = launch.grid.cluster
    if launch.grid.dynamic_bytes > _STATIC_BYTES:
        kernel.allow_shared_memory(launch.grid.dynamic_bytes)
    if x * y * z > _PORTABLE_CLUSTER:
        kernel.allow_large_clusters()


@cache
def _loaded(code: Cubin, entry: str, device_index: int) -> Kernel:
    return Kernel(code, entry)
