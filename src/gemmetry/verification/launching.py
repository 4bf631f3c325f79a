"""Launches an executable for verification: sentinel in the output, evidence gathered after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from gemmetry.domain.contracts import Buffer, Executable
from gemmetry.domain.operation import Operation
from gemmetry.numerics.storage import Array, as_bits, numpy_dtype, same_bytes

FLOAT_SENTINELS = (0xFF, 0x7F)
"""Bytes that make NaN (f64, f32, f16, bf16, e4m3, e5m2), then NaN or the largest numbers there
are: whatever is added to them stays absurd."""

INTEGER_SENTINELS = (0xA5, 0x5A)
"""As s32: -1515870811 and 1515870810."""


@runtime_checkable
class GuardedDevice(Protocol):
    """A device that lays red zones around its buffers."""

    def red_zones_intact(self, buffer: Buffer) -> bool:
        """Whether nothing was written just before or just after `buffer`."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What one launch left behind."""

    output: Array
    """Host array, whatever shape and dtype it came in."""
    sentinel: int
    changed_inputs: tuple[str, ...]
    """Roles of inputs whose bytes differ afterwards."""
    returned_input: str
    """Role of the input whose buffer was returned as the result; "" if none."""
    broken_zones: tuple[str, ...] | None
    """Roles of buffers with damaged red zones; None where the device has none."""


class Launcher:
    """Uploads inputs and launches, each time on new buffers."""

    def __init__(self, executable: Executable, operation: Operation) -> None:
        self.executable = executable
        self.operation = operation
        is_integer = operation.signature.result.is_integer
        self.sentinels = INTEGER_SENTINELS if is_integer else FLOAT_SENTINELS

    def launch(self, inputs: Sequence[Array], *, sentinel: int) -> Launch:
        """One launch on `inputs` (host arrays), the output filled with the byte `sentinel`.

        Raises:
            LaunchError, OutOfMemoryError, DeviceLostError: as the device says.
        """
        device, operation = self.executable.device, self.operation
        specs, output_spec = operation.inputs, operation.output
        buffers = [device.upload(array, spec) for array, spec in zip(inputs, specs, strict=True)]
        output = device.allocate(output_spec)
        device.fill_bytes(output, sentinel)
        result = self.executable.run(buffers, output)
        device.synchronize()
        array = np.asarray(device.download(result, output_spec))
        returned = [
            spec.role for spec, buffer in zip(specs, buffers, strict=True) if _same(buffer, result)
        ]
        changed = [
            spec.role
            for spec, buffer, before in zip(specs, buffers, inputs, strict=True)
            if not same_bytes(device.download(buffer, spec), before)
        ]
        broken: tuple[str, ...] | None = None
        if isinstance(device, GuardedDevice):
            guarded = [*zip(specs, buffers, strict=True), (output_spec, output)]
            broken = tuple(
                spec.role for spec, buffer in guarded if not device.red_zones_intact(buffer)
            )
        return Launch(array, sentinel, tuple(changed), "".join(returned[:1]), broken)

    def form_problem(self, output: Array) -> str:
        """What is wrong with the shape or dtype of a result; "" if nothing."""
        spec = self.operation.output
        wanted = numpy_dtype(spec.dtype)
        if output.dtype != wanted:
            return f"the result is {output.dtype}, not {wanted}"
        if output.shape != spec.storage_shape:
            return f"the result has shape {output.shape}, not {spec.storage_shape}"
        return ""


def _same(left: Buffer, right: Buffer) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return np.may_share_memory(left, right)
    return left is right


def sentinel_mask(array: Array, sentinel: int) -> npt.NDArray[np.bool_]:
    """Which elements of `array` still consist of the sentinel's byte; in its shape."""
    bits = as_bits(array)
    pattern = np.frombuffer(bytes([sentinel]) * bits.dtype.itemsize, dtype=bits.dtype)
    return np.asarray(bits == pattern[0]).reshape(array.shape)
