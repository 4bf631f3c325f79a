"""Storage of the formats in torch, and conversion between tensors and host arrays.

Compares results with float64 references on a torch device, by the same bounds as the host.

A digest of a buffer's bytes, computed on its device.

Memory and timing of a CPU or GPU through torch; shared by the torch, triton and user providers.

torch calls both CUDA and ROCm devices "cuda"; the kind of a :class:`TorchDevice` is only used in
its messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as functional

from gemmetry.domain.contracts import Buffer, HostArray
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import (
    DeviceLostError,
    GemmetryError,
    LaunchError,
    OutOfMemoryError,
    WrongResultError,
)
from gemmetry.domain.operation import (
    BF16,
    E2M1,
    E4M3,
    E4M3FNUZ,
    E5M2,
    E5M2FNUZ,
    E8M0,
    F16,
    F32,
    F64,
    S8,
    S32,
    TF32,
    DType,
    Layout,
    TensorSpec,
)
from gemmetry.hardware.host import free_memory_bytes_lately, last_level_cache_bytes
from gemmetry.hardware.host_device import (
    RED_ZONE_ALIGNMENT_BYTES,
    RED_ZONE_PATTERN,
    busy_processors,
    first_line,
    spoiled_heap,
    time_on_host,
)
from gemmetry.hardware.torch_timing import (
    Call,
    GpuStress,
    StreamTimer,
    same_bits,
    small_kernel,
    unordered_on_host,
    unordered_on_stream,
)
from gemmetry.numerics.bounds import AccumulationError, BoundRule, ErrorSums
from gemmetry.numerics.references import Reference
from gemmetry.numerics.storage import Float64Array, pack_pairs, to_float32, unpack_pairs

_FORMATS: dict[DType, tuple[torch.dtype, type[Any], torch.dtype, type[Any]]] = {
    # dtype -> torch's type, numpy's type, and the integer type of the same size for exchanging
    # bytes
    F64: (torch.float64, np.float64, torch.int64, np.int64),
    F32: (torch.float32, np.float32, torch.int32, np.int32),
    TF32: (torch.float32, np.float32, torch.int32, np.int32),
    F16: (torch.float16, np.float16, torch.int16, np.int16),
    BF16: (torch.bfloat16, ml_dtypes.bfloat16, torch.int16, np.int16),
    E4M3: (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn, torch.uint8, np.uint8),
    E5M2: (torch.float8_e5m2, ml_dtypes.float8_e5m2, torch.uint8, np.uint8),
    E4M3FNUZ: (torch.float8_e4m3fnuz, ml_dtypes.float8_e4m3fnuz, torch.uint8, np.uint8),
    E5M2FNUZ: (torch.float8_e5m2fnuz, ml_dtypes.float8_e5m2fnuz, torch.uint8, np.uint8),
    # Two numbers in each byte: see `_stored`.
    E2M1: (torch.uint8, ml_dtypes.float4_e2m1fn, torch.uint8, np.uint8),
    E8M0: (torch.float8_e8m0fnu, ml_dtypes.float8_e8m0fnu, torch.uint8, np.uint8),
    S8: (torch.int8, np.int8, torch.int8, np.int8),
    S32: (torch.int32, np.int32, torch.int32, np.int32),
}

BY_STORAGE = {np.dtype(numpy_type): dtype for dtype, (_, numpy_type, _, _) in _FORMATS.items()}
"""A format stored as the numpy type (tf32 is stored as float32, whose values include it)."""

WIDENED_ON_HOST = frozenset(np.dtype(_FORMATS[dtype][1]) for dtype in (E2M1, E8M0))
"""Formats that torch stores, and does not convert."""


def torch_dtype(dtype: DType) -> torch.dtype:
    """The name in torch of `dtype` (tf32 is stored as float32)."""
    return _FORMATS[dtype][0]


def bits_dtype(dtype: DType) -> torch.dtype:
    """The integers of the same size, as which torch and numpy exchange bytes."""
    return _FORMATS[dtype][2]


def stored_shape(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of the tensor that holds `spec`: its storage shape, but half of the last axis for
    e2m1, as two numbers share a byte.

    Raises:
        LaunchError: an odd number of e2m1 is contiguous.
    """
    *lead, last = spec.storage_shape
    if spec.dtype is not E2M1:
        return (*lead, last)
    if last % 2:
        raise LaunchError(f"{spec.role} has {last} contiguous numbers of e2m1, which is odd")
    return (*lead, last // 2)


def _stored(array: HostArray, dtype: DType) -> HostArray:
    """The host array as it is stored: e2m1 in pairs."""
    return pack_pairs(np.ascontiguousarray(array)) if dtype is E2M1 else array


def to_tensor(array: HostArray, dtype: DType) -> torch.Tensor:
    """A CPU tensor that holds a copy of the host array `array` of `dtype`, with the same shape (for
    e2m1 half of the last axis)."""
    torch_type, _, torch_int, numpy_int = _FORMATS[dtype]
    array = _stored(array, dtype)
    tensor = torch.empty(array.shape, dtype=torch_type)
    if tensor.numel():
        np.copyto(tensor.view(torch_int).numpy(), np.ascontiguousarray(array).view(numpy_int))
    return tensor


def host_bits(array: HostArray, dtype: DType) -> torch.Tensor:
    """The bytes of a host array as a CPU tensor of integers, without a copy where possible."""
    _, _, torch_int, numpy_int = _FORMATS[dtype]
    bits = np.ascontiguousarray(_stored(array, dtype)).view(numpy_int)
    if bits.flags.writeable:
        return torch.from_numpy(bits)
    # torch has no read-only tensors, and warns about read-only arrays.
    return to_tensor(array, dtype).view(torch_int)


def to_host(tensor: torch.Tensor, dtype: DType) -> HostArray:
    """A host array of `dtype` with a copy of the tensor's content; waits for its device.

    Raises:
        LaunchError: the tensor is not of `dtype`.
    """
    torch_type, numpy_type, torch_int, _ = _FORMATS[dtype]
    if tensor.dtype != torch_type:
        raise LaunchError(
            f"the result is {tensor.dtype}, the operation requires {torch_type}",
            hint="Return a tensor of the result's dtype.",
        )
    on_host = tensor.detach().contiguous().view(torch_int).to("cpu", copy=True)
    if dtype is E2M1:
        return unpack_pairs(on_host.numpy(), np.dtype(numpy_type))
    return on_host.numpy().view(numpy_type)


def bytes_of_pairs(
    index: tuple[slice, ...], array: HostArray, row_bytes: int
) -> tuple[tuple[slice, ...], HostArray, HostArray]:
    """The index of the bytes that hold the e2m1 numbers at `index`, what is written to them, and
    the bits of them that stay, both as s8."""
    *lead, last = [*index, *[slice(None)] * (array.ndim - len(index))]
    start, stop, _ = last.indices(2 * row_bytes)
    first, end = start // 2, -(-stop // 2)
    codes = np.zeros((*array.shape[:-1], 2 * (end - first)), np.uint8)
    keeps = np.full_like(codes, 15)
    at = (..., slice(start - 2 * first, stop - 2 * first))
    codes[at], keeps[at] = array.view(np.uint8) & 15, 0
    packed, kept = (pack_pairs(bits).view(np.int8) for bits in (codes, keeps))
    return (*lead, slice(first, end)), packed, kept


_PIECE = 1 << 24
"""Elements compared at a time: ten float64 temporaries of this size take 1.3 GB."""

_TEMPORARIES = 10

_EXPONENT_BITS = 0x7FF0_0000_0000_0000


def needed_bytes(reference: Reference) -> int:
    """Device memory that comparing with `reference` takes, without the result."""
    return reference.nbytes + _TEMPORARIES * 8 * min(_PIECE, reference.value.size)


class TorchComparer:
    """The reference on a device, with which results there are compared."""

    def __init__(self, reference: Reference, device: torch.device) -> None:
        """Upload `reference`, which is of floats."""
        width = reference.value.shape[-1]

        def uploaded(array: Float64Array) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device).view(-1, width)

        self._value = uploaded(cast(Float64Array, reference.value))
        self._is_positive = reference.magnitude is reference.value
        self._magnitude = self._value if self._is_positive else uploaded(reference.magnitude)
        extra = reference.extra_rounding
        self._extra = None if extra is None else uploaded(extra)

    def error_sums(
        self, result: torch.Tensor, spec: TensorSpec, rule: BoundRule
    ) -> ErrorSums | None:
        """Errors of `result`, a tensor on the device; None unless it has the form of `spec` and all
        of its elements are numbers within their warn bounds."""
        if result.dtype != torch_dtype(spec.dtype) or tuple(result.shape) != stored_shape(spec):
            return None
        if result.numel() != self._value.numel() or result.device != self._value.device:
            return None  # two numbers share a byte, or the result was left elsewhere
        logical = result.detach()
        if spec.layout is Layout.COLUMN:
            logical = logical.view(bits_dtype(spec.dtype)).transpose(-1, -2)
        rows = logical.reshape(self._value.shape).view(torch_dtype(spec.dtype))
        rule = _for_tensors(rule)
        step = max(1, _PIECE // max(1, rows.shape[1]))
        pieces = [
            self._sums_of_rows(rows[start : start + step], slice(start, start + step), spec, rule)
            for start in range(0, rows.shape[0], step)
        ]
        return _merged(torch.stack(pieces).cpu().tolist())

    def _sums_of_rows(
        self, got: torch.Tensor, rows: slice, spec: TensorSpec, rule: BoundRule
    ) -> torch.Tensor:
        """The fields of ErrorSums of some rows; the second is not at most 1 if the host has to
        look."""
        if got.element_size() == 1:
            got = got.to(torch.float32)  # fp8 converts to float32 everywhere
        values, expected, magnitude = got.double(), self._value[rows], self._magnitude[rows]
        extra = None if self._extra is None else self._extra[rows]
        # The rule is the host's: it only adds and multiplies what it is given.
        piece = cast(
            Reference,
            SimpleNamespace(value=expected, magnitude=magnitude, extra_rounding=extra),
        )
        size = cast(Float64Array, expected if self._is_positive else expected.abs())
        warn = cast(torch.Tensor, rule.warn(piece, size))
        error = values - expected
        ratio = error / warn
        magnitudes = error.abs()
        to_fail = magnitudes / cast(torch.Tensor, rule.fail(piece, size))
        bias = ratio.sum() if self._is_positive else (ratio * expected.sign()).sum()
        excess = magnitudes - _scaled_exponent(values, spec.dtype.unit_roundoff)
        excess = torch.where(magnitude > 0, excess / magnitude, excess)
        return torch.stack(
            [
                to_fail.max(), ratio.abs().max(), excess.max().clamp(min=0.0),
                error.square().sum(), expected.square().sum(), bias,
            ]
        )  # fmt: skip


def _for_tensors(rule: BoundRule) -> BoundRule:
    """`rule` with plain numbers: numpy's own try to convert the tensors that they multiply."""
    return replace(
        rule,
        relative=AccumulationError(*map(float, (rule.relative.warn, rule.relative.fail))),
        absolute=AccumulationError(*map(float, (rule.absolute.warn, rule.absolute.fail))),
        rounding=float(rule.rounding),
        extra=float(rule.extra),
        scaled_exponent=_scaled_exponent,
    )


def _merged(pieces: list[list[float]]) -> ErrorSums | None:
    to_fail, ratios, excesses, errors, references, biases = zip(*pieces, strict=True)
    # NaN compares false.
    if not all(ratio <= 1 for ratio in ratios):
        return None
    return ErrorSums(
        max(to_fail), max(ratios), max(excesses),
        math.fsum(errors), math.fsum(references), math.fsum(biases),
    )  # fmt: skip


def _scaled_exponent(values: torch.Tensor, factor: float) -> torch.Tensor:
    """:func:`gemmetry.numerics.bounds.scaled_exponent` for tensors."""
    exponents = values.contiguous().view(torch.int64) & _EXPONENT_BITS
    return exponents.view(torch.float64) * factor


_DIGEST_PIECE = 1 << 22
"""Words of 64 bits taken at a time: a few temporaries of 32 MiB."""

_KEYS = (0x2545_F491_4F6C_DD1D, 0x1F83_D9AB_FB41_BD6B)
_STEP = -0x61C8_8646_80B5_83EB
_FACTORS = (-0x40A7_B892_E31B_1A47, -0x6B2F_B644_ECCE_EE15)
"""The increment and the factors of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014), as signed numbers."""

_WITHOUT_SIGN_BIT = frozenset({E2M1, E8M0, E4M3FNUZ, E5M2FNUZ})


def digest(buffer: torch.Tensor, negated: Sequence[tuple[slice, ...]] = ()) -> str | None:
    """128 bits that identify the bytes of a contiguous `buffer`, of which the parts `negated` count
    with the opposite sign; None where the format has no sign bit to flip.

    Two sums, modulo 2⁶⁴, of every word of eight bytes after SplitMix64's mixing of the word with a
    key and its position: kernels whose results differ have the same digest with a probability of
    2⁻¹²⁸, unless someone searches for such results.
    """
    bits = buffer.detach().contiguous()
    if negated:
        dtype = _format(buffer.dtype)
        if dtype is None:
            return None
        bits = bits.view(bits_dtype(dtype)).clone()
        for part in negated:
            bits[part] ^= -1 << (dtype.storage_bits - 1) if bits.dtype is not torch.uint8 else 0x80
    flat = bits.view(-1).view(torch.uint8)
    flat = functional.pad(flat, (0, -flat.numel() % 8)) if flat.numel() % 8 else flat
    if flat.data_ptr() % 8:
        flat = flat.clone()
    words = flat.view(torch.int64)
    sums = [
        torch.stack(
            [_mixed(words[start : start + _DIGEST_PIECE], start, key).sum() for key in _KEYS]
        )
        for start in range(0, words.numel(), _DIGEST_PIECE)
    ]
    first, second = torch.stack(sums).sum(0).tolist() if sums else (0, 0)
    return f"words:{buffer.nbytes}:{first & (2**64 - 1):016x}{second & (2**64 - 1):016x}"


def _mixed(words: torch.Tensor, start: int, key: int) -> torch.Tensor:
    places = torch.arange(start, start + words.numel(), device=words.device)
    mixed = words ^ (places * _STEP + key)
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        mixed = (mixed ^ (mixed >> shift)) * factor
    return mixed ^ (mixed >> 31)


def _format(dtype: torch.dtype) -> DType | None:
    """The format of floats with a sign bit that torch calls `dtype`."""
    found = next((one for one in BY_STORAGE.values() if torch_dtype(one) is dtype), None)
    if found is None or found.is_integer or found in _WITHOUT_SIGN_BIT:
        return None
    return found


TORCH_ERRORS = (RuntimeError, ValueError, MemoryError)
"""Exceptions that torch raises for failed launches, invalid arguments and exhausted memory."""

_LOST_CODES = frozenset({46, 100, 214, 220, 802, 999})
"""cudaErrorDevicesUnavailable, NoDevice, ECCUncorrectable, NvlinkUncorrectable, SystemNotReady and
Unknown, from the enumeration cudaError of the CUDA Runtime API."""
_LOST_TEXTS = ("uncorrectable ECC", "no CUDA-capable device", "no ROCm-capable device",
               "busy or unavailable", "NVLink error", "system not yet initialized")  # fmt: skip

_AMD_INFINITY_CACHE_BYTES = {"gfx942": 256 * 2**20, "gfx950": 256 * 2**20}
"""The cache level beyond the L2 that torch reports; AMD CDNA 3 and CDNA 4 architecture white
papers."""


class TorchDevice:
    """:class:`gemmetry.domain.contracts.Device` on torch; buffers are contiguous tensors."""

    def __init__(self, kind: str, index: int = 0) -> None:
        """
        Args:
            kind: ``cpu``, ``cuda`` or ``hip`` (or a TargetKind).
            index: which GPU.
        """
        self.kind = str(kind)
        self.is_gpu = self.kind != "cpu"
        self.index = index
        self.torch_device = torch.device("cuda", index) if self.is_gpu else torch.device("cpu")
        self._stream_timer = StreamTimer(index)
        self._stress = GpuStress(self.torch_device)
        if self.is_gpu:
            with self.errors("opening the device"):
                torch.cuda.set_device(index)
                properties = torch.cuda.get_device_properties(index)
            self.multiprocessors = int(properties.multi_processor_count)
            beyond_l2 = _AMD_INFINITY_CACHE_BYTES.get(_architecture(properties), 0)
            self.last_level_cache_bytes = max(int(properties.L2_cache_size), beyond_l2)
        else:
            self.last_level_cache_bytes = last_level_cache_bytes()

    @property
    def alignment_bytes(self) -> int:
        """On a GPU the alignment that the widest vector load and a tensor map require (PTX ISA,
        ld.v4 and tensormap); on a CPU 1, as BLAS accepts any address of an element."""
        return 16 if self.is_gpu else 1

    def enter_thread(self) -> None:
        """See :class:`gemmetry.domain.contracts.ThreadDevice`."""
        if self.is_gpu:
            with self.errors("entering a thread"):
                torch.cuda.set_device(self.index)

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.is_gpu else self.kind

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn torch's exceptions within the context into LaunchError, OutOfMemoryError or
        DeviceLostError."""
        try:
            yield
        except TORCH_ERRORS as error:
            raise self.translate(error, doing) from error

    def translate(self, error: BaseException, doing: str) -> GemmetryError:
        """The gemmetry error for an exception that torch or the driver raised while `doing`
        something.

        After a LaunchError whose text is a CUDA or HIP error, the process can no longer use the
        device (such errors are sticky); its owner starts a new process.
        """
        text = str(error).strip()
        line = first_line(error)
        code = getattr(error, "error_code", None)
        if code in _LOST_CODES or any(part in text for part in _LOST_TEXTS):
            return DeviceLostError(
                f"{self} was lost while {doing}: {line}",
                hint="Check the driver's log (nvidia-smi, dmesg), then run the same command again.",
            )
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in text:
            return OutOfMemoryError(
                f"{self} ran out of memory while {doing}: {line}",
                hint="Use a smaller shape, or free memory that other processes hold.",
            )
        if not self.is_gpu:
            return LaunchError(f"{doing} raised {type(error).__name__}: {line}")
        return LaunchError(f"{self} failed while {doing}: {line}")

    def allocate(self, spec: TensorSpec) -> Buffer:
        with self.errors(f"allocating {spec.bytes} bytes for {spec.role}"):
            return torch.empty(
                stored_shape(spec), dtype=torch_dtype(spec.dtype), device=self.torch_device
            )

    def allocate_with_red_zones(
        self, spec: TensorSpec, *, zone_bytes: int, offset_bytes: int = 0
    ) -> Buffer:
        """See :class:`gemmetry.domain.contracts.RedZoneDevice`; the buffer begins `offset_bytes`
        after a multiple of 256 bytes."""
        size = spec.bytes + 2 * zone_bytes + RED_ZONE_ALIGNMENT_BYTES + offset_bytes
        with self.errors(f"allocating {size} bytes for {spec.role} and its red zones"):
            memory = torch.empty(size, dtype=torch.uint8, device=self.torch_device)
            start = zone_bytes + offset_bytes
            start += -(memory.data_ptr() + zone_bytes) % RED_ZONE_ALIGNMENT_BYTES
            memory[:start].fill_(RED_ZONE_PATTERN)
            memory[start + spec.bytes :].fill_(RED_ZONE_PATTERN)
            inner = memory[start : start + spec.bytes]
            return inner.view(torch_dtype(spec.dtype)).view(stored_shape(spec))

    def red_zones_intact(self, buffer: Buffer) -> bool:
        """Whether the zones around the buffer still hold what :meth:`allocate_with_red_zones` wrote
        there."""
        with self.errors("checking red zones"):
            memory = torch.empty(0, dtype=torch.uint8, device=buffer.device)
            memory.set_(buffer.untyped_storage())
            start = buffer.storage_offset() * buffer.element_size()
            zones = memory[:start], memory[start + buffer.nbytes :]
            return all(bool((zone == RED_ZONE_PATTERN).all()) for zone in zones)

    def unordered_work(self, launch: Call, output: Buffer) -> str:
        """See :class:`gemmetry.domain.contracts.OrderedDevice`; the order is that of the current
        stream, or on a CPU that of the calling thread."""
        with self.errors("looking for work outside the timed order"):
            look = unordered_on_stream if self.is_gpu else unordered_on_host
            return look(launch, output)

    @contextmanager
    def spoiled_scratch(self, size_bytes: int) -> Iterator[None]:
        """See :class:`gemmetry.domain.contracts.StressDevice`."""
        if not self.is_gpu:
            with spoiled_heap(size_bytes, lambda size: torch.empty(size, dtype=torch.uint8)):
                yield
            return
        with self.errors("spoiling scratch memory"):
            self._stress.spoil(size_bytes, self.free_memory_bytes())
        yield
        with self.errors("cleaning scratch memory"):
            self._stress.clean()

    @contextmanager
    def load(self) -> Iterator[None]:
        """See :class:`gemmetry.domain.contracts.StressDevice`."""
        if not self.is_gpu:
            with busy_processors(self.last_level_cache_bytes):
                yield
            return
        copy_bytes = min(2 * self.last_level_cache_bytes, self.free_memory_bytes() // 8)
        with self.errors("keeping the device busy"), self._stress.load(copy_bytes):
            yield

    def stress_limits(self) -> str:
        """See :class:`gemmetry.domain.contracts.StressDevice`."""
        return self._stress.limits if self.is_gpu else ""

    def upload(self, array: HostArray, spec: TensorSpec) -> Buffer:
        with self.errors(f"uploading {spec.role}"):
            if self.is_gpu:
                bits = host_bits(array, spec.dtype).to(self.torch_device)
                return bits.view(torch_dtype(spec.dtype))
            return to_tensor(array, spec.dtype)

    def write(self, buffer: Buffer, array: HostArray, spec: TensorSpec) -> None:
        with self.errors(f"overwriting {spec.role}"):
            buffer.view(bits_dtype(spec.dtype)).copy_(host_bits(array, spec.dtype))

    def prepared_edit(
        self, buffer: Buffer, index: tuple[slice, ...], array: HostArray
    ) -> Callable[[], None]:
        """See :class:`gemmetry.domain.contracts.EditableDevice`; it writes through a second tensor
        on the same memory, whose version counter is separate (``Tensor.data``). Preparing does not
        wait either, as rounds are queued one after the other."""
        dtype = BY_STORAGE[array.dtype]
        with self.errors("preparing a change in place"):
            kept = None
            if dtype is E2M1:
                index, array, keeps = bytes_of_pairs(index, array, buffer.shape[-1])
                kept = self._sent(torch.from_numpy(keeps))
                dtype = S8
            part = buffer.data.view(bits_dtype(dtype))[index]
            contents = self._sent(host_bits(np.array(array), dtype))

        def edit() -> None:
            with self.errors("changing a buffer in place"):
                part.copy_(contents if kept is None else part & kept | contents)

        return edit

    def _sent(self, contents: torch.Tensor) -> torch.Tensor:
        """A CPU tensor on the device, without waiting: a copy from pageable memory would wait for
        all queued work."""
        if not self.is_gpu:
            return contents
        return contents.pin_memory().to(self.torch_device, non_blocking=True)

    def fill_repeating(self, buffer: Buffer, values: HostArray) -> None:
        """See :class:`gemmetry.domain.contracts.EditableDevice`."""
        dtype = BY_STORAGE[values.dtype]
        with self.errors("filling a buffer"):
            bits = host_bits(values, dtype).to(self.torch_device)
            flat = buffer.view(bits_dtype(dtype)).view(-1)
            whole = flat.numel() - flat.numel() % bits.numel()
            flat[:whole].view(-1, bits.numel()).copy_(bits)
            flat[whole:].copy_(bits[: flat.numel() - whole])

    def same_bytes(self, left: Buffer, right: Buffer) -> bool:
        if left.shape != right.shape or left.dtype != right.dtype:
            return False
        with self.errors("comparing two buffers"):
            return same_bits(left, right)

    def all_same_bytes(self, buffers: Sequence[Buffer], other: Buffer) -> bool:
        """Whether each of `buffers` holds the bytes of `other`; one copy and one comparison."""
        kind = other.shape, other.dtype
        if any((buffer.shape, buffer.dtype) != kind for buffer in buffers):
            return False
        with self.errors("comparing buffers"):
            return same_bits(torch.stack(tuple(buffers)), other.expand(len(buffers), *other.shape))

    def download(self, buffer: Buffer, spec: TensorSpec) -> HostArray:
        if tuple(buffer.shape) != stored_shape(spec):
            raise WrongResultError(
                f"the {spec.role} has the shape {tuple(buffer.shape)}, "
                f"the operation requires {stored_shape(spec)}",
                hint="Return the result as it is stored: a column-major C is an (N, M) array.",
            )
        with self.errors(f"downloading {spec.role}"):
            return to_host(buffer, spec.dtype)

    def fill_bytes(self, buffer: Buffer, pattern: int) -> None:
        with self.errors("filling a buffer"):
            buffer.view(torch.uint8).fill_(pattern)

    def clone(self, buffer: Buffer) -> Buffer:
        with self.errors("copying a buffer"):
            return buffer.clone()

    def synchronize(self) -> None:
        if self.is_gpu:
            with self.errors("running what was submitted before"):
                torch.cuda.synchronize(self.index)

    def free_memory_bytes(self) -> int:
        if not self.is_gpu:
            return free_memory_bytes_lately()
        with self.errors("querying free memory"):
            free, _ = torch.cuda.mem_get_info(self.index)
            reserved = torch.cuda.memory_reserved(self.index)
            return int(free + reserved - torch.cuda.memory_allocated(self.index))

    def release(self) -> None:
        if self.is_gpu:
            torch.cuda.empty_cache()

    def time_calls(self, calls: Sequence[Call]) -> tuple[list[float], str]:
        """Durations in ns and the method, ``wall_clock`` on a CPU, ``events`` on a GPU; see
        :mod:`gemmetry.hardware.torch_timing`."""
        if not self.is_gpu:
            return time_on_host(calls), "wall_clock"
        with self.errors("timing"):
            return self._stream_timer.time_calls(calls), "events"

    def time_in_load(
        self, lead: Sequence[Call], calls: Sequence[Call], tail: Sequence[Call], lead_ns: float
    ) -> list[float]:
        """See :class:`gemmetry.domain.contracts.StreamDevice`; on a CPU nothing is left running."""
        if not self.is_gpu:
            durations = time_on_host([*lead, *calls, *tail])
            return durations[len(lead) : len(lead) + len(calls)]
        with self.errors("timing"):
            return self._stream_timer.time_in_load(lead, calls, tail, lead_ns)

    def neighbour(self) -> Call | None:
        """See :class:`gemmetry.domain.contracts.StreamDevice`; None on a CPU."""
        if not self.is_gpu:
            return None
        with self.errors("preparing a neighbour of launches"):
            return small_kernel(self.torch_device)

    def captured(self, call: Call, *, keeps_result: bool = False) -> Call:
        """See :class:`gemmetry.domain.contracts.StreamDevice`."""
        if not self.is_gpu:
            raise LaunchError("a CPU has no graphs to capture launches in")
        with self.errors("capturing a launch"):
            return self._stream_timer.captured(call, keeps_result=keeps_result)

    def stream_and_wall_ns(self, calls: Sequence[Call]) -> tuple[float, float]:
        """See :class:`gemmetry.domain.contracts.StreamDevice`; on a CPU both are the host's."""
        if not self.is_gpu:
            wall_ns = sum(time_on_host(calls))
            return wall_ns, wall_ns
        with self.errors("checking the clock"):
            return self._stream_timer.stream_and_wall_ns(calls)

    def digest(self, buffer: Buffer, negated: Sequence[tuple[slice, ...]] = ()) -> str | None:
        """See :class:`gemmetry.domain.contracts.DigestingDevice`; None on a CPU, where a digest of
        the host is just as good."""
        if not self.is_gpu:
            return None
        with self.errors("computing a digest"):
            return digest(buffer, negated)

    def upload_reference(self, reference: Reference) -> TorchComparer | None:
        """See :class:`gemmetry.verification.after_timing.ComparingDevice`; None on a CPU, where
        numpy is just as good."""
        if not self.is_gpu or reference.value.dtype != np.float64:
            return None
        if self.free_memory_bytes() < 2 * needed_bytes(reference):
            return None
        with self.errors("uploading a reference"):
            return TorchComparer(reference, self.torch_device)

    def error_sums(
        self, result: Buffer, spec: TensorSpec, reference: TorchComparer, rule: BoundRule
    ) -> ErrorSums | None:
        """See :class:`gemmetry.verification.after_timing.ComparingDevice`."""
        with self.errors("comparing a result"):
            return reference.error_sums(result, spec, rule)

    def float64_matmul(self) -> Callable[[HostArray, HostArray], HostArray] | None:
        """``f(A, B)`` for (…, M, K) and (…, K, N) arrays, split into tiles that fit the device;
        None on a CPU, where numpy is just as good."""
        return self._float64_product if self.is_gpu else None

    def _float64_product(self, lhs: HostArray, rhs: HostArray) -> HostArray:
        if lhs.ndim > 2:
            return np.stack([self._float64_product(a, b) for a, b in zip(lhs, rhs, strict=True)])
        (m, k), n = lhs.shape, rhs.shape[1]
        # A third of the free memory for B, one for A and C together, one for the library's
        # workspace.
        budget = max(self.free_memory_bytes() // 3, 8 * (2 * k + 1))
        columns = min(n, max(1, budget // (8 * k)))
        rows = min(m, max(1, budget // (8 * (k + columns))))
        with self.errors(f"computing the float64 reference of {m}x{n}x{k}"):
            if (rows, columns) == (m, n):
                return (self._as_float64(lhs) @ self._as_float64(rhs)).cpu().numpy()
            result = np.empty((m, n), np.float64)
            for j in range(0, n, columns):
                b = self._as_float64(rhs[:, j : j + columns])
                for i in range(0, m, rows):
                    product = self._as_float64(lhs[i : i + rows]) @ b
                    result[i : i + rows, j : j + columns] = product.cpu().numpy()
        return result

    def _as_float64(self, array: HostArray) -> torch.Tensor:
        """The matrix in float64 on the device, which widens it; the narrow values are uploaded in
        memory order."""
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            return self._as_float64(array.T).T
        if array.dtype in WIDENED_ON_HOST:
            array = to_float32(array)
        narrow = to_tensor(array, BY_STORAGE[array.dtype]).to(self.torch_device)
        if narrow.dtype.itemsize == 1 and narrow.dtype.is_floating_point:
            narrow = narrow.to(torch.float32)  # fp8 converts to float32 everywhere.
        return narrow.to(torch.float64)


def gpu_targets() -> list[Target]:
    """The GPUs of this machine that are visible to torch."""
    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        if torch.version.hip:
            kind, architecture = TargetKind.HIP, _architecture(properties)
        else:
            kind, architecture = TargetKind.CUDA, f"sm_{properties.major}{properties.minor}"
        found.append(Target(kind, architecture, index, product=properties.name))
    return found


def open_device(target: Target, *, threads: int = 0) -> TorchDevice:
    """The device of `target`, with the number of torch's CPU threads set (0: unchanged).

    Raises:
        LaunchError: the device is not visible to torch.
    """
    if threads > 0 and threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    return _opened_device(target.kind, target.index or 0)


_opened_device = cache(TorchDevice)


def _architecture(properties: Any) -> str:
    return str(getattr(properties, "gcnArchName", "")).partition(":")[0]
