"""Memory, timing and launches through ``iree.runtime``, in this process.

A compiled dispatch that runs on prepared buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from gemmetry.domain.contracts import Device, HostArray
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import DeviceLostError, GemmetryError, LaunchError, OutOfMemoryError
from gemmetry.domain.operation import TensorSpec
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.host import usable_cores
from gemmetry.hardware.host_device import ALIGNMENT_BYTES, HostDevice
from gemmetry.numerics.storage import numpy_dtype, same_bytes
from gemmetry.providers.iree_provider.support import cuda_free_bytes, cuda_l2_bytes, device_uri

FALLBACK_L2_BYTES = 256 << 20
"""Cache size assumed where the driver does not report it: the largest last-level cache of current
GPUs (the 256 MiB Infinity Cache of CDNA 3), so that rotated inputs are cold on all of them."""

_ELEMENT_TYPES = {
    "f64": "FLOAT_64", "f32": "FLOAT_32", "f16": "FLOAT_16", "bf16": "BFLOAT_16",
    "e4m3": "FLOAT_8_E4M3_FN", "e5m2": "FLOAT_8_E5M2",
    "e4m3fnuz": "FLOAT_8_E4M3_FNUZ", "e5m2fnuz": "FLOAT_8_E5M2_FNUZ",
    "s8": "SINT_8", "s32": "SINT_32",
}  # fmt: skip


@dataclass(slots=True)
class IreeBuffer:
    """A HAL buffer view; on the CPU with the underlying host memory."""

    view: Any
    memory: HostArray | None = None


class IreeDevice:
    """One device of IREE's runtime as a :class:`gemmetry.domain.contracts.Device`.

    On the CPU (``local-task``) buffers are host arrays with red zones, imported without a copy.
    Launches on a GPU are chained by fences; durations are wall-clock times including a wait at the
    end, as the runtime's Python interface has no events.

    Args:
        target: an attached device.
        threads: worker threads of ``local-task``; 0: one per usable processor. The first device
            of a process decides.

    Raises:
        DeviceLostError: the device cannot be opened.
    """

    def __init__(self, target: Target, threads: int = 0) -> None:
        import iree.runtime

        self._runtime = iree.runtime
        self._target = target
        self._host = HostDevice() if target.kind is TargetKind.CPU else None
        if self._host is not None:
            count = threads or usable_cores()
            iree.runtime.flags.parse_flags(f"--task_topology_group_count={count}")
        try:
            self.hal = iree.runtime.get_device(device_uri(target))
        except (RuntimeError, ValueError) as error:
            raise DeviceLostError(
                f"IREE cannot open {device_uri(target)}: {first_line(error)}",
                hint="`gemmetry doctor` lists the devices that IREE finds on this machine.",
            ) from error
        self.instance = iree.runtime.VmInstance()
        self.hal_module = iree.runtime.create_hal_module(self.instance, self.hal)
        self._semaphore = self.hal.create_semaphore(0)
        self._submitted = 0
        if self._host is not None:
            self.last_level_cache_bytes = self._host.last_level_cache_bytes
        else:
            known = cuda_l2_bytes(target.index or 0) if target.kind is TargetKind.CUDA else None
            self.last_level_cache_bytes = known or FALLBACK_L2_BYTES

    def next_fences(self) -> tuple[Any, Any]:
        """The fence that a launch waits for (all launches before it) and the one it signals."""
        create = self._runtime.HalFence.create_at
        wait = create(self._semaphore, self._submitted)
        self._submitted += 1
        return wait, create(self._semaphore, self._submitted)

    def abandon_launch(self) -> None:
        """Discard the last fences: their launch was never submitted, so nothing will signal
        them."""
        self._submitted -= 1

    def allocate(self, spec: TensorSpec) -> IreeBuffer:
        """Uninitialised memory of ``spec.storage_shape``."""
        if self._host is not None:
            return self._import(self._host.allocate(spec), self._element(spec))
        rt = self._runtime
        try:
            buffer = self.hal.allocator.allocate_buffer(
                rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT, spec.bytes
            )
        except (RuntimeError, ValueError, MemoryError) as error:
            raise translate(error, f"{spec.bytes} bytes for {spec.role}") from error
        return IreeBuffer(rt.HalBufferView(buffer, spec.storage_shape, self._element(spec)))

    def upload(self, array: HostArray, spec: TensorSpec) -> IreeBuffer:
        """A new buffer holding `array`."""
        if self._host is not None:
            return self._import(self._host.upload(array, spec), self._element(spec))
        rt = self._runtime
        try:
            view = self.hal.allocator.allocate_buffer_copy(
                rt.MemoryType.DEVICE_LOCAL,
                rt.BufferUsage.DEFAULT,
                self.hal,
                np.ascontiguousarray(array).view(f"u{spec.dtype.itemsize}"),
                self._element(spec),
            )
        except (RuntimeError, ValueError, MemoryError) as error:
            raise translate(error, f"{spec.bytes} bytes for {spec.role}") from error
        return IreeBuffer(view)

    def write(self, buffer: IreeBuffer, array: HostArray, spec: TensorSpec) -> None:
        """Overwrite the buffer with `array`."""
        self.synchronize()
        if self._host is not None and buffer.memory is not None:
            self._host.write(buffer.memory, array, spec)
            return
        self._copy(self.upload(array, spec).view.get_buffer(), buffer.view.get_buffer())

    def same_bytes(self, left: IreeBuffer, right: IreeBuffer) -> bool:
        """Whether two buffers of one spec hold the same bytes."""
        self.synchronize()
        if left.memory is not None and right.memory is not None:
            return same_bytes(left.memory, right.memory)
        return bool(np.array_equal(self._bytes(left), self._bytes(right)))

    def download(self, buffer: IreeBuffer, spec: TensorSpec) -> HostArray:
        """A copy of the buffer's content; waits for the device."""
        self.synchronize()
        if self._host is not None and buffer.memory is not None:
            return self._host.download(buffer.memory, spec)
        return self._bytes(buffer).view(numpy_dtype(spec.dtype)).reshape(spec.storage_shape)

    def fill_bytes(self, buffer: IreeBuffer, pattern: int) -> None:
        """Set every byte of the buffer to `pattern` (0–255)."""
        self.synchronize()
        if self._host is not None and buffer.memory is not None:
            self._host.fill_bytes(buffer.memory, pattern)
            return
        commands = self._runtime.HalCommandBuffer(self.hal)
        commands.fill(buffer.view.get_buffer(), np.array([pattern], np.uint8), end=True)
        wait, signal = self.next_fences()
        self.hal.queue_execute(commands, wait, signal)
        self.synchronize()

    def clone(self, buffer: IreeBuffer) -> IreeBuffer:
        """A copy at another address."""
        self.synchronize()
        if self._host is not None and buffer.memory is not None:
            return self._import(self._host.clone(buffer.memory), buffer.view.element_type)
        rt = self._runtime
        source = buffer.view.get_buffer()
        copy = self.hal.allocator.allocate_buffer(
            rt.MemoryType.DEVICE_LOCAL, rt.BufferUsage.DEFAULT, source.byte_length()
        )
        self._copy(source, copy)
        return IreeBuffer(rt.HalBufferView(copy, buffer.view.shape, buffer.view.element_type))

    def synchronize(self) -> None:
        """Wait for everything submitted.

        Raises:
            LaunchError: a launch has failed. DeviceLostError: the device is gone.
        """
        if self._submitted == 0:
            return
        try:
            self._runtime.HalFence.create_at(self._semaphore, self._submitted).wait()
        except RuntimeError as error:
            # A failed semaphore stays failed; later launches get a new timeline.
            self._semaphore, self._submitted = self.hal.create_semaphore(0), 0
            raise translate(error, "a launch") from error

    def time_calls(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], str]:
        """Duration of each call in ns by the host's monotonic clock, waiting after each."""
        durations: list[float] = []
        for call in calls:
            start = perf_counter_ns()
            call()
            self.synchronize()
            durations.append(float(perf_counter_ns() - start))
        return durations, "wall_clock"

    def free_memory_bytes(self) -> int:
        """Bytes of memory available for new buffers."""
        if self._host is not None:
            return self._host.free_memory_bytes()
        free = None
        if self._target.kind is TargetKind.CUDA:
            free = cuda_free_bytes(self._target.index or 0)
        # ROCm's runtime does not report it; 1 GiB is safe on every data-centre GPU.
        return free if free is not None else 1 << 30

    def release(self) -> None:
        """Release cached memory."""
        self.hal.allocator.trim()

    def float64_matmul(self) -> Callable[[HostArray, HostArray], HostArray] | None:
        """None: references are computed on the host or by torch."""
        return None

    def _bytes(self, buffer: IreeBuffer) -> HostArray:
        """The buffer's content as bytes on the host."""
        rt = self._runtime
        source = buffer.view.get_buffer()
        size = source.byte_length()
        staging = self.hal.allocator.allocate_buffer(
            int(rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE),
            int(rt.BufferUsage.TRANSFER_TARGET | rt.BufferUsage.MAPPING_SCOPED),
            size,
        )
        self._copy(source, staging)
        return np.array(staging.map().asarray((size,), np.dtype(np.uint8)))

    def _element(self, spec: TensorSpec) -> Any:
        return getattr(self._runtime.HalElementType, _ELEMENT_TYPES[spec.dtype.name])

    def _import(self, memory: HostArray, element_type: Any) -> IreeBuffer:
        rt = self._runtime
        buffer = self.hal.allocator.import_host_allocation(
            memory.reshape(-1).view(np.uint8),
            int(rt.MemoryType.DEVICE_LOCAL | rt.MemoryType.HOST_VISIBLE),
            int(rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING),
        )
        return IreeBuffer(rt.HalBufferView(buffer, memory.shape, element_type), memory)

    def _copy(self, source: Any, target: Any) -> None:
        wait, signal = self.next_fences()
        self.hal.queue_copy(source, target, wait, signal)
        self.synchronize()


class IreeHostDevice(IreeDevice):
    """The CPU: its buffers are host memory, so that red zones can be placed around them."""

    alignment_bytes = ALIGNMENT_BYTES

    def __init__(self, threads: int = 0) -> None:
        super().__init__(Target(TargetKind.CPU), threads)
        memory = self._memory = HostDevice()
        # See :class:`gemmetry.domain.contracts.StressDevice`; IREE uses malloc too.
        self.spoiled_scratch, self.load = memory.spoiled_scratch, memory.load
        self.stress_limits = memory.stress_limits

    def allocate_with_red_zones(
        self, spec: TensorSpec, *, zone_bytes: int, offset_bytes: int = 0
    ) -> IreeBuffer:
        """See :class:`gemmetry.domain.contracts.RedZoneDevice`. IREE guarantees its code an
        alignment of 64 bytes, so `offset_bytes` is rounded up to a multiple of that."""
        offset = -(-offset_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        memory = self._memory.allocate_with_red_zones(
            spec, zone_bytes=zone_bytes, offset_bytes=offset
        )
        return self._import(memory, self._element(spec))

    def red_zones_intact(self, buffer: IreeBuffer) -> bool:
        """Whether the zones before and after a buffer of this device are unchanged."""
        self.synchronize()
        return buffer.memory is None or self._memory.red_zones_intact(buffer.memory)

    def prepared_edit(
        self, buffer: IreeBuffer, index: tuple[slice, ...], array: HostArray
    ) -> Callable[[], None]:
        """See :class:`gemmetry.domain.contracts.EditableDevice`; waits for the launches before."""
        assert buffer.memory is not None
        write = self._memory.prepared_edit(buffer.memory, index, array)

        def edit() -> None:
            self.synchronize()
            write()

        return edit

    def fill_repeating(self, buffer: IreeBuffer, values: HostArray) -> None:
        """See :class:`gemmetry.domain.contracts.EditableDevice`."""
        self.synchronize()
        assert buffer.memory is not None
        self._memory.fill_repeating(buffer.memory, values)


@cache
def open_device(target: Target, threads: int = 0) -> IreeDevice:
    """The device of `target`, opened once; the CPU's has red zones.

    Raises:
        DeviceLostError: the device cannot be opened.
    """
    if target.kind is TargetKind.CPU:
        return IreeHostDevice(threads)
    return IreeDevice(target, threads)


class LoadedModule:
    """A ``.vmfb`` loaded into a device: one VM context, its functions by name."""

    def __init__(self, device: IreeDevice, path: Path) -> None:
        import iree.runtime

        try:
            self.module = iree.runtime.VmModule.mmap(device.instance, str(path))
            self.context = iree.runtime.VmContext(device.instance, [device.hal_module, self.module])
        except (RuntimeError, ValueError) as error:
            raise translate(error, f"loading {path.name}") from error


def first_line(error: BaseException) -> str:
    """The first line of an IREE runtime error, without its C source location."""
    text = str(error).strip().splitlines()
    line = text[0] if text else type(error).__name__
    return line.partition(".c:")[2].partition(": ")[2] or line


def translate(error: BaseException, what: str) -> GemmetryError:
    """An IREE runtime error as a gemmetry error."""
    text = str(error)
    if "RESOURCE_EXHAUSTED" in text or "OUT_OF_MEMORY" in text or isinstance(error, MemoryError):
        return OutOfMemoryError(
            f"IREE ran out of memory: {what}: {first_line(error)}",
            hint="Choose a smaller shape, or lower the number of executables kept warm.",
        )
    if "UNAVAILABLE" in text or "DEVICE_LOST" in text:
        return DeviceLostError(
            f"IREE lost its device: {what}: {first_line(error)}",
            hint="`gemmetry doctor` shows which devices work.",
        )
    return LaunchError(f"IREE's runtime rejected {what}: {first_line(error)}")


class IreeExecutable:
    """One function of a loaded module; it writes into the output buffer passed to it.

    Args:
        device: the device on which the module is loaded.
        module: kept alive by this executable.
        function_name: the dispatch's name.
        facts: facts from compiling.

    Raises:
        LaunchError: the module has no such function.
    """

    writes_output = True

    def __init__(
        self, device: IreeDevice, module: LoadedModule, function_name: str, facts: BuildFacts
    ) -> None:
        import iree.runtime

        self.device: Device = device
        self._iree_device = device
        self.facts = facts
        self._list: Any = iree.runtime.VmVariantList
        self._function_name = function_name
        self._module: LoadedModule | None = module
        self._function = module.module.lookup_function(function_name)
        if self._function is None:
            raise LaunchError(f"the compiled module has no function {function_name}")
        self._is_async = self._function.reflection.get("iree.abi.model") == "coarse-fences"

    def run(self, inputs: Sequence[IreeBuffer], output: IreeBuffer) -> IreeBuffer:
        """Submit one launch; on the CPU it is complete when this returns.

        Raises:
            LaunchError: the runtime rejected the launch, or the executable is closed.
            OutOfMemoryError: not enough memory for the function's own allocations.
        """
        module = self._module
        if module is None:
            raise LaunchError(f"{self._function_name} is closed")
        arguments = self._list(len(inputs) + 3)
        for buffer in inputs:
            arguments.push_ref(buffer.view)
        arguments.push_ref(output.view)
        if self._is_async:
            wait, signal = self._iree_device.next_fences()
            arguments.push_ref(wait)
            arguments.push_ref(signal)
        try:
            module.context.invoke(self._function, arguments, self._list(1))
        except (RuntimeError, ValueError) as error:
            if self._is_async:
                self._iree_device.abandon_launch()
            raise translate(error, f"launching {self._function_name}") from error
        return output

    def close(self) -> None:
        """Release the module, which is unloaded with its last executable."""
        self.device.synchronize()
        self._module = None
        self._function = None
