"""Launches an executable for verification, with red zones and sentinels, and collects
evidence.

Data stay on the device as long as only equality has to be tested: inputs are uploaded once and
compared with copies on the device, and results are downloaded only for comparison with a reference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from traceback import walk_tb
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gemmetry.domain.contracts import Buffer, Device, Executable, RedZoneDevice
from gemmetry.domain.operation import Operation, TensorSpec
from gemmetry.numerics.inputs import Edit, fill_plausibly, prepared_edits
from gemmetry.numerics.storage import Array, as_bits, numpy_dtype, same_bytes
from gemmetry.verification.inputs.exact import ChangeStep

FLOAT_SENTINELS = (0xFF, 0x7F)
"""Bytes that form NaN (f64, f32, f16, bf16, e4m3, e5m2), then NaN or the largest numbers: any sum
with them stays implausible."""

INTEGER_SENTINELS = (0xA5, 0x5A)
"""Sentinels of integers; as s32 -1515870811 and 1515870810."""

PLAUSIBLE = (0xC1, 0x41)
"""Plausible contents of an output: -24.2 and 12.1 in f32 and bf16, -2.9 and 2.6 in f16. A kernel
may ignore NaN and the largest numbers and still use the output's contents. Both signs are needed,
as the maximum of a negative number and a result of relu is always the latter."""

SMALLEST_ZONE_BYTES = 4096
"""Minimum size of a red zone: a page, more than any vector store overruns an end."""

LARGEST_ZONE_BYTES = 2**20
"""Largest red zone: a tile of 128 rows of 4096 bf16 elements; larger overruns damage this much
anyway."""

ROOM = 1.25
"""Free memory required for keeping copies, relative to their size: allocators round up."""

_AS_IT_IS: AbstractContextManager[object] = nullcontext()


class Offset(NamedTuple):
    """Offset of buffers from a multiple of 256 bytes."""

    size_bytes: int = 0
    elements: int = 0
    """Offset in elements of each buffer's own format, added to these bytes."""

    def bytes_of(self, spec: TensorSpec) -> int:
        """Offset in bytes for a buffer of `spec`."""
        return self.size_bytes + self.elements * spec.dtype.itemsize


NO_OFFSET = Offset()


@dataclass
class Placed:
    """The inputs and the output of a launch, in separate buffers."""

    arrays: tuple[Array, ...]
    """Contents of the inputs, on the host."""
    buffers: tuple[Buffer, ...]
    output: Buffer | None = None
    """Allocated when first needed."""
    offset: Offset = NO_OFFSET
    copies: tuple[Buffer, ...] | None = None
    """Copies of the inputs on the device that are never passed to a launch; None where memory is
    short."""


@dataclass
class Launch:
    """The effects of one launch."""

    device: Device
    spec: TensorSpec
    """Specification of the result."""
    inputs: tuple[Array, ...]
    result: Buffer
    sentinel: int = 0
    """Byte that the output was filled with, for :func:`sentinel_mask`."""
    changed_inputs: tuple[str, ...] = ()
    """Roles of inputs whose bytes changed, including by launches queued with this one."""
    returned_input: str = ""
    """Role of the input whose buffer was returned as the result; "" if none."""
    returned_type: str = ""
    """Type of the result where it is not that of the device's buffers."""
    broken_zones: tuple[str, ...] | None = None
    """Roles of buffers with damaged red zones; None where the device has no red zones."""

    @cached_property
    def output(self) -> Array:
        """The result as a host array, in whatever shape and dtype it was returned.

        Raises:
            LaunchError: the device cannot read the result: wrong shape or dtype.
        """
        return np.asarray(self.device.download(self.result, self.spec))

    def shares_memory(self, other: Launch) -> bool:
        """Whether both results are the same buffer, as far as the device's buffers show."""
        return _same(self.result, other.result)

    def same_as(self, other: Launch) -> bool:
        """Whether both results hold the same bytes, compared on the device where both are kept;
        never where one is no buffer."""
        if self.returned_type or other.returned_type:
            return False
        if self.result is other.result:
            return same_bytes(self.output, other.output)
        return self.device.same_bytes(self.result, other.result)


class Launcher:
    """Launches one executable.

    Args:
        tile: the configuration's tile, where it is known: red zones are at least one tile high.
    """

    def __init__(
        self, executable: Executable, operation: Operation, tile: tuple[int, int, int] | None = None
    ) -> None:
        self.executable = executable
        self.operation = operation
        self.device = executable.device
        # Tested once: isinstance with a protocol tests every attribute.
        self._zoned_device = self.device if isinstance(self.device, RedZoneDevice) else None
        self._inputs, self._output = operation.inputs, operation.output
        self.shared_by: int = getattr(executable, "shared_by", 1)
        """Processes that use the device at the same time. Time limits of checks count a second that
        so many share as that part of it."""
        self.fastest_s = math.inf
        """Duration of the fastest launch so far, in seconds: the others may have compiled, or
        waited for a processor."""
        self._tile_rows = max(tile) if tile else 0
        self._watching: Callable[[int], AbstractContextManager[None]] = getattr(
            executable, "watching", lambda _launches: nullcontext()
        )
        is_integer = operation.signature.result.is_integer
        self.sentinels = INTEGER_SENTINELS if is_integer else FLOAT_SENTINELS

    def place(
        self, inputs: Sequence[Array], *, offset: Offset = NO_OFFSET, keep_copies: bool = True
    ) -> Placed:
        """Upload `inputs` (host arrays of ``operation.inputs``) to new buffers.

        Args:
            offset: offset of the buffers, where the device supports it.
            keep_copies: see :meth:`keep_copies`.
        """
        buffers = []
        for spec, array in zip(self._inputs, inputs, strict=True):
            if self._zoned_device is not None:
                buffers.append(self._allocate(spec, offset))
                self.device.write(buffers[-1], array, spec)
            else:
                buffers.append(self.device.upload(array, spec))
        placed = Placed(tuple(inputs), tuple(buffers), offset=offset)
        if keep_copies:
            self.keep_copies(placed)
        return placed

    def keep_copies(self, placed: Placed) -> None:
        """Copy the current inputs, so that :meth:`changed_inputs` needs no download; skipped where
        memory is short."""
        if placed.copies is None and self.has_room(sum(spec.bytes for spec in self._inputs)):
            placed.copies = tuple(self.device.clone(buffer) for buffer in placed.buffers)

    def rewrite(self, placed: Placed, inputs: Sequence[Array]) -> None:
        """Write other contents to the same buffers."""
        for spec, buffer, array in zip(self._inputs, placed.buffers, inputs, strict=True):
            self.device.write(buffer, array, spec)
        placed.arrays, placed.copies = tuple(inputs), None

    def has_room(self, size_bytes: int) -> bool:
        """Whether the device has memory for copies of `size_bytes`, and the same amount for
        workspace."""
        return self.device.free_memory_bytes() > 2 * ROOM * size_bytes

    def output_of(self, placed: Placed) -> Buffer:
        """The output buffer that belongs to `placed`."""
        if placed.output is None:
            placed.output = self.new_output(placed.offset)
        return placed.output

    def new_output(self, offset: Offset = NO_OFFSET) -> Buffer:
        """A separate output buffer."""
        return self._allocate(self._output, offset)

    def launch(
        self,
        placed: Placed,
        *,
        sentinel: int | None = None,
        output: Buffer | None = None,
        check_inputs: bool = False,
        within: AbstractContextManager[object] = _AS_IT_IS,
    ) -> Launch:
        """One launch, with the output filled with the byte `sentinel` first.

        Args:
            sentinel: None: the first of :attr:`sentinels`.
            output: the output buffer; None: that of `placed`, which the next launch on `placed`
                overwrites.
            check_inputs: whether to check that the inputs are unchanged.
            within: context manager entered right before the launch and exited when it has ended.

        Raises:
            LaunchError, OutOfMemoryError, DeviceLostError: as reported by the device.
        """
        output = self.output_of(placed) if output is None else output
        sentinel = self.sentinels[0] if sentinel is None else sentinel
        self.device.fill_bytes(output, sentinel)
        self.device.synchronize()
        result = self._timed(placed, output, within)
        launch = self._launch(placed, output, result, sentinel)
        if check_inputs:
            launch.changed_inputs = self.changed_inputs(placed)
        return launch

    def launch_again(self, placed: Placed, output: Buffer) -> Launch:
        """One launch over the current contents of `output`, without checking inputs and zones.

        Raises:
            LaunchError, OutOfMemoryError, DeviceLostError: as reported by the device.
        """
        result = self._timed(placed, output)
        launch = self._returned(placed, output, result)
        launch.returned_input = self._shared(placed, result)
        return launch

    def burst(self, placed: Placed, outputs: Sequence[Buffer]) -> list[Launch]:
        """One launch into each of `outputs` without waiting, over plausible contents, and without
        checking inputs and zones.

        Raises:
            LaunchError, OutOfMemoryError, DeviceLostError: as reported by the device.
        """
        for output in outputs:
            self.device.fill_bytes(output, PLAUSIBLE[0])
        with self._watching(len(outputs)):
            results = [self._run(placed, output) for output in outputs]
            self.device.synchronize()
        pairs = zip(outputs, results, strict=True)
        return [self._returned(placed, output, result) for output, result in pairs]

    def queue(
        self,
        placed: Placed,
        count: int,
        *,
        sentinel: int | None = None,
        within: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> Iterator[Launch]:
        """`count` launches queued without waiting, each with its own output, in as many rounds as
        memory requires. The results are not kept: examine each in turn. All launches of a round
        have run by then, so the zones of inputs are checked only with its first and last.

        Args:
            sentinel: byte that outputs are filled with; None: plausible numbers, different for each
                output.
            within: creates the context manager that is entered right before the launches of a round
                and exited after submitting them, while they may still run.
        """
        at_once = self._fitting(count)
        for start in range(0, count, at_once):
            outputs = [self.new_output() for _ in range(min(at_once, count - start))]
            for number, output in enumerate(outputs, start=start + 1):
                if sentinel is None:
                    fill_plausibly(self.device, output, self._output, number)
                else:
                    self.device.fill_bytes(output, sentinel)
            self.device.synchronize()
            with self._watching(len(outputs)):
                with within():
                    results = [self._run(placed, output) for output in outputs]
                self.device.synchronize()
            pairs = list(zip(outputs, results, strict=True))
            del outputs, results
            ends = (1, len(pairs))
            while pairs:
                input_zones = len(pairs) in ends
                yield self._launch(placed, *pairs.pop(0), input_zones=input_zones)

    def queue_changes(
        self, placed: Placed, changes: Sequence[ChangeStep]
    ) -> Generator[tuple[Launch, Buffer | None], None, None]:
        """One launch for each of `changes`, which is applied in place before it, on top of the
        earlier ones, without waiting in between, as far as memory allows. All launches write one
        output, which holds the previous result; a copy follows each in stream order. At the end, or
        when the caller closes the generator, the inputs are restored.

        Yields:
            The launch with that copy as its result (its `inputs` are without the changes), and the
            buffer that it returned, with its contents after all launches; None where the output was
            passed in.
        """
        at_once = self._fitting(len(changes))
        output = self.output_of(placed)

        def prepared(edits: Sequence[Edit]) -> list[Callable[[], None]]:
            return prepared_edits(self.device, self._inputs, placed.buffers, edits)

        undo = [prepared(change.undoing) for change in changes]
        plan = [prepared(change.edits) for change in changes]
        fill_plausibly(self.device, output, self._output, 0)
        try:
            for start in range(0, len(changes), at_once):
                yield from self._queue_changes(placed, output, plan[start : start + at_once])
        finally:
            for calls in undo:
                _call_all(calls)

    def _queue_changes(
        self, placed: Placed, output: Buffer, plan: Sequence[Sequence[Callable[[], None]]]
    ) -> Iterator[tuple[Launch, Buffer | None]]:
        device = self.device
        # An allocator that has cached enough memory returns it without waiting.
        room = [device.clone(output) for _ in plan]
        del room
        device.synchronize()
        results = []
        with self._watching(len(plan)):
            for make in plan:
                _call_all(make)
                result = self._run(placed, output)
                is_buffer = type(result) is type(output)
                results.append((result, device.clone(result) if is_buffer else result))
            device.synchronize()
        for result, copy in results:
            returned = None if self.executable.writes_output else result
            yield self._returned(placed, output, copy), returned

    def _fitting(self, count: int) -> int:
        """Number of the `count` launches that have room for their results."""
        size = self._output.bytes * (1 if self.executable.writes_output else 2)
        fitting = int(self.device.free_memory_bytes() / (ROOM * max(1, size))) - 1
        return max(1, min(count, fitting))

    def _timed(
        self, placed: Placed, output: Buffer, within: AbstractContextManager[object] = _AS_IT_IS
    ) -> Buffer:
        with within, self._watching(1):
            began = time.perf_counter()
            result = self._run(placed, output)
            self.device.synchronize()
            seconds = time.perf_counter() - began
            self.fastest_s = min(self.fastest_s, seconds / self.shared_by)
        return result

    def affordable(self, most: int, limit_s: float, fewest: int = 1) -> int:
        """Number of launches, at most `most` and at least `fewest`, that take `limit_s` seconds in
        all if each is as fast as the fastest so far."""
        return max(fewest, min(most, int(limit_s / max(self.fastest_s, 1e-9))))

    def changed_inputs(self, placed: Placed) -> tuple[str, ...]:
        """Roles of inputs whose contents differ from the uploaded data."""
        device, changed = self.device, []
        for i, (spec, buffer) in enumerate(zip(self._inputs, placed.buffers, strict=True)):
            if placed.copies is not None:
                is_same = device.same_bytes(buffer, placed.copies[i])
            else:
                is_same = same_bytes(device.download(buffer, spec), placed.arrays[i])
            if not is_same:
                changed.append(spec.role)
        return tuple(changed)

    def form_problem(self, launch: Launch) -> str:
        """Fault of the type, dtype, shape or memory of a result; "" if none."""
        if launch.returned_type:
            return f"the result is a {launch.returned_type}, not a buffer of the device"
        spec, output = self._output, launch.output
        wanted = numpy_dtype(spec.dtype)
        if output.dtype != wanted:
            return f"the result is {output.dtype}, not {wanted}"
        if output.shape != spec.storage_shape:
            return f"the result has shape {output.shape}, not {spec.storage_shape}"
        if launch.returned_input:
            return f"the result is the buffer of {launch.returned_input}, not a new one"
        return ""

    @staticmethod
    def raised_by_run(error: BaseException) -> bool:
        """Whether `error` came out of the executable, and not from verification itself."""
        code = Launcher._run.__code__
        return any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))

    def _run(self, placed: Placed, output: Buffer) -> Buffer:
        # Inputs hold NaN and infinity on purpose; numpy need not warn about the consequences.
        with np.errstate(all="ignore"):
            return self.executable.run(placed.buffers, output)

    def _returned(
        self, placed: Placed, output: Buffer, result: Buffer, sentinel: int = 0
    ) -> Launch:
        launch = Launch(self.device, self._output, placed.arrays, result, sentinel)
        # A subclass may compute when it is read, i.e. after the timing.
        launch.returned_type = "" if type(result) is type(output) else type(result).__name__
        return launch

    def _launch(
        self,
        placed: Placed,
        output: Buffer,
        result: Buffer,
        sentinel: int = 0,
        *,
        input_zones: bool = True,
    ) -> Launch:
        launch = self._returned(placed, output, result, sentinel)
        launch.returned_input = self._shared(placed, result)
        if self._zoned_device is not None:
            inputs = zip(self._inputs, placed.buffers, strict=True)
            zoned = [*(inputs if input_zones else ()), (self._output, output)]
            intact = self._zoned_device.red_zones_intact
            launch.broken_zones = tuple(spec.role for spec, buffer in zoned if not intact(buffer))
        return launch

    def _allocate(self, spec: TensorSpec, offset: Offset = NO_OFFSET) -> Buffer:
        if self._zoned_device is None:
            return self.device.allocate(spec)
        pitch = spec.storage_shape[-1] * spec.dtype.itemsize
        zone = min(max(SMALLEST_ZONE_BYTES, self._tile_rows * pitch), LARGEST_ZONE_BYTES)
        begin = offset.bytes_of(spec)
        return self._zoned_device.allocate_with_red_zones(spec, zone_bytes=zone, offset_bytes=begin)

    def _shared(self, placed: Placed, result: Buffer) -> str:
        """Role of the input in whose memory the result is; "" if in none."""
        pairs = zip(self._inputs, placed.buffers, strict=True)
        return next((spec.role for spec, buffer in pairs if _same(buffer, result)), "")


def _call_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _same(left: Buffer, right: Buffer) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.may_share_memory(left, right)
    if hasattr(left, "untyped_storage") and hasattr(right, "untyped_storage"):
        places = (one.untyped_storage().data_ptr() for one in (left, right))
        return left.device == right.device and len(set(places)) == 1
    return left is right


def sentinel_mask(array: Array, sentinel: int) -> npt.NDArray[np.bool_]:
    """Mask of elements of `array` that still consist of the sentinel's byte, in the same shape."""
    bits = as_bits(array)
    pattern = np.frombuffer(bytes([sentinel]) * bits.dtype.itemsize, dtype=bits.dtype)
    return np.asarray(bits == pattern[0]).reshape(array.shape)
