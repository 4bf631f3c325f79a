"""Seeded inputs for operations.

Each tensor has its own random stream, seeded by (seed, role, shape) alone, so an operation gets the
same bits in every process, regardless of what was drawn before. The streams are numpy's PCG64 with
SeedSequence (whose outputs numpy's NEP 19 keeps stable); a test pins their first values.

==================  ==========================================  ============================
distribution        floating-point                              integers (s8; s32 addends)
==================  ==========================================  ============================
``offset_uniform``  [0.1, 1.1)                                  ±[1, q]
``uniform``         [0, 1)                                      [0, q]
``uniform_signed``  (-1, 1), no zeros                           ±[1, q]
``normal``          mean 0, standard deviation 1                normal of deviation q/4, ±q
``integers``        ±[1, r], every partial sum exact            ±[1, r]
``zeros``           0                                           0
==================  ==========================================  ============================

q is 127, or less where K products would overflow s32; r is :func:`exact_integer_limit`. The
default, ``offset_uniform``, is the one that the grid tracing document requires. Values are drawn in
float32 (float64 for f64) and rounded to the format, so bf16's largest of [0.1, 1.1) is 1.1015625.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, cast

import numpy as np

from gemmetry.domain.dtypes import E2M1, F64, DType
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.operation import Operation, TensorSpec
from gemmetry.domain.settings import DISTRIBUTIONS
from gemmetry.numerics.storage import (
    Array,
    Floats,
    count_zeros,
    numpy_dtype,
    quantize,
    smallest_normal,
    smallest_subnormal,
)
from gemmetry.numerics.threads import in_order

GENERATOR_VERSION = 1
"""Incremented whenever the same arguments give other bits; part of a cached reference's key."""

_ROLES = ("lhs", "rhs", "addend", "scale_a", "scale_b", "bias", "residual")
_SCALE_RANGE = (-2, 1)
"""Smallest and largest power of two of a scale factor."""

_CHUNK = 1 << 22
"""Elements drawn at a time: bounds the float32 intermediate of a thread at 16 MiB."""

_FEWEST_FOR_THREADS = 1 << 18
"""Fewer elements are drawn by the calling thread: they take about a millisecond, and starting
threads takes a tenth of that."""

_EVEN_DISTRIBUTIONS = frozenset({"offset_uniform", "uniform", "uniform_signed"})
"""Distributions of floats whose numbers all take the same part of the stream: 64 bits for two in
float32, or for one in float64. Normal numbers and integers may reject what they draw."""


def make_inputs(operation: Operation, *, distribution: str, seed: int) -> tuple[Array, ...]:
    """Host arrays of ``operation.inputs``, in that order, each C-contiguous in storage shape.

    The same (operation, distribution, seed) gives bit-identical arrays everywhere. Scale factors
    are powers of two between 1/4 and 2, whatever the distribution.

    Raises:
        UnknownNameError: there is no such distribution.
    """
    if distribution not in DISTRIBUTIONS:
        raise UnknownNameError("distribution", distribution, DISTRIBUTIONS)
    limit = integer_limit(operation, distribution)
    made = [_DrawnTensor(operation, spec, distribution, limit, seed) for spec in operation.inputs]
    parts = [part for tensor in made for part in tensor.parts()]
    is_large = sum(part.flat.size for part in parts) > _FEWEST_FOR_THREADS
    deque((in_order if is_large else map)(_DrawnPart.draw, parts), maxlen=0)
    return tuple(tensor.array for tensor in made)


def zero_share(arrays: Iterable[Array]) -> float:
    """The share of zeros among all elements of the quantised `arrays`; 0 if there are no
    elements."""
    zeros = total = 0
    for array in arrays:
        zeros += count_zeros(array)
        total += array.size
    return zeros / total if total else 0.0


def integer_limit(operation: Operation, distribution: str) -> int:
    """The largest magnitude of integer-valued operands under `distribution` (q or r above)."""
    if distribution == "integers":
        return max(1, exact_integer_limit(operation))
    # Headroom of 3·127 leaves room for addend, bias and residual.
    products = (2**31 - 1 - 3 * 127) // operation.matmul_shape.k
    return max(1, min(127, math.isqrt(products)))


def exact_integer_limit(operation: Operation) -> int:
    """The largest r such that operands drawn from ±[1, r] have exact sums in any order; 0 if even r
    = 1 does not.

    With p bits in the accumulator every partial sum is at most K·r² ≤ 2ᵖ. Where that does not even
    allow r = 1, random signs help: partial sums of K independent ±1 are a random walk and stay
    below 8√K except with probability 2·exp(-32) each (Hoeffding's inequality), so r = 1 is used
    while 8√K ≤ 2ᵖ. r also stays within the integers that the input format represents exactly (2ᵖ of
    the format), and so small that results six standard deviations large, |alpha|·6√K·(r + 1)(2r +
    1)/6 (the fraction is the mean square of ±[1, r]), stay finite in the result format. fp8
    products are limited to 2¹³, because Hopper's fp8 accumulator keeps 14 bits (PyTorch blog, "Some
    Matrix Multiplication Engines Are Not As Accurate As We Thought").

    Products in blocks differ by up to 2⁶ in their factors, the sums of one block do not: kernels
    promote fp8 sums at the end of each block, so that the limit of 2¹³ applies to one block of K.
    """
    s = operation.signature
    k = operation.matmul_shape.k
    if s.lhs.is_integer:
        return integer_limit(operation, "offset_uniform")
    bits = s.accumulator.significand_bits
    if s.lhs.is_fp8 or s.rhs.is_fp8:
        bits = min(bits, 13)
    if s.blocks is not None:
        span = 2 * (_SCALE_RANGE[1] - _SCALE_RANGE[0])
        wide = s.accumulator.significand_bits - span
        limit = math.isqrt(min(2**wide // k, 2**bits // min(k, s.blocks.depth)))
    else:
        limit = math.isqrt(2**bits // k)
    if limit == 0 and s.blocks is None and 8 * math.sqrt(k) <= 2**bits:
        limit = 1
    limit = min(limit, 2**s.lhs.significand_bits, 2**s.rhs.significand_bits)
    room = s.result.maximum / math.sqrt(k) / max(1.0, abs(s.alpha))
    if limit > 1 and (limit + 1) * (2 * limit + 1) > room:
        # The positive root of 2r² + 3r + 1 = room.
        limit = max(1, int((math.sqrt(1 + 8 * room) - 3) / 4))
    return limit


class _DrawnTensor:
    """One tensor, drawn in parts."""

    def __init__(
        self, operation: Operation, spec: TensorSpec, distribution: str, limit: int, seed: int
    ) -> None:
        self._spec, self._distribution, self._limit = spec, distribution, limit
        self._entropy = [seed % 2**64, _ROLES.index(spec.role), *spec.shape]
        if spec.role in ("scale_a", "scale_b"):
            self.array = _scales(self._rng(0), operation, spec)
        else:
            self.array = np.empty(spec.storage_shape, dtype=numpy_dtype(spec.dtype))

    def parts(self) -> list[_DrawnPart]:
        """Parts that may be drawn at the same time: pieces where each number takes the same part of
        the stream, otherwise the whole tensor."""
        if self._spec.role in ("scale_a", "scale_b"):
            return []
        flat = self.array.reshape(-1)
        if self._spec.dtype.is_integer or self._distribution not in _EVEN_DISTRIBUTIONS:
            return [self._part(flat, 0)]
        per_draw = 1 if self._spec.dtype is F64 else 2
        return [
            self._part(flat[start : start + _CHUNK], start // per_draw)
            for start in range(0, flat.size, _CHUNK)
        ]

    def _part(self, flat: Array, skipped: int) -> _DrawnPart:
        return _DrawnPart(
            self._rng(skipped), flat, self._spec.dtype, self._distribution, self._limit
        )

    def _rng(self, skipped: int) -> np.random.Generator:
        """The tensor's stream after `skipped` numbers of 64 bits."""
        bits = np.random.PCG64(np.random.SeedSequence(self._entropy))
        return np.random.Generator(bits.advance(skipped) if skipped else bits)


class _DrawnPart(NamedTuple):
    """Part of a tensor, and the place in its stream where the part begins."""

    rng: np.random.Generator
    flat: Array
    dtype: DType
    distribution: str
    limit: int

    def draw(self) -> None:
        """Fill the part."""
        draw = _draw_integers if self.dtype.is_integer else _draw_floats
        for start in range(0, self.flat.size, _CHUNK):
            piece = self.flat[start : start + _CHUNK]
            piece[...] = draw(self.rng, piece.size, self.dtype, self.distribution, self.limit)


def _draw_floats(
    rng: np.random.Generator, count: int, dtype: DType, distribution: str, limit: int
) -> Array:
    if distribution == "zeros":
        return np.zeros(count, dtype=numpy_dtype(dtype))
    drawn = np.float64 if dtype is F64 else np.float32
    if distribution == "integers":
        return quantize(_signed_integers(rng, count, limit).astype(drawn), dtype)
    if distribution == "normal":
        values = rng.standard_normal(count, dtype=drawn)
        return quantize(_without_zeros(values, dtype), dtype)
    values = rng.random(count, dtype=drawn)
    if distribution == "offset_uniform":
        values += drawn(0.1)
    elif distribution == "uniform_signed":
        # Odd multiples of the generator's step: symmetric, inside (-1, 1) and never zero.
        values *= drawn(2)
        values -= drawn(1 - 2.0 ** (-53 if dtype is F64 else -24))
        values = _without_zeros(values, dtype)
    return quantize(values, dtype)


def _without_zeros(values: Floats, dtype: DType) -> Floats:
    """Raise magnitudes below the format's smallest normal number to that number, so that none
    rounds to zero; e2m1, whose smallest normal number is 1, keeps its 0.5."""
    least = smallest_subnormal(dtype) if dtype is E2M1 else smallest_normal(dtype)
    return cast(Floats, np.copysign(np.maximum(np.abs(values), least), values))


def _draw_integers(
    rng: np.random.Generator, count: int, dtype: DType, distribution: str, limit: int
) -> Array:
    storage = numpy_dtype(dtype)
    if distribution == "zeros":
        return np.zeros(count, dtype=storage)
    if distribution == "uniform":
        return rng.integers(0, limit, count, dtype=np.int8, endpoint=True).astype(storage)
    if distribution == "normal":
        values = np.rint(rng.standard_normal(count, dtype=np.float32) * (limit / 4))
        return cast(Array, np.clip(values, -limit, limit).astype(storage))
    return _signed_integers(rng, count, limit).astype(storage)


def _signed_integers(rng: np.random.Generator, count: int, limit: int) -> Array:
    """int32 in ±[1, limit], uniform, no zeros."""
    values = rng.integers(-limit, limit, count, dtype=np.int32)
    values += values >= 0
    return cast(Array, values)


def _scales(rng: np.random.Generator, operation: Operation, spec: TensorSpec) -> Array:
    exponents = rng.integers(*_SCALE_RANGE, spec.storage_shape, dtype=np.int32, endpoint=True)
    if spec.role == "scale_b" and operation.signature.result.is_fp8:
        # Sums of K products of size one must fit into a format whose maximum is 240 or 448.
        exponents -= max(0, math.ceil(math.log2(operation.matmul_shape.k)) - 7)
    return quantize(np.ldexp(np.float32(1), exponents).astype(np.float32), spec.dtype)
