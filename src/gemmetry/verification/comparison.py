"""Statistics of comparing a result with its reference, computed in parts that can be merged.

Distributes work over as many threads as this process may keep busy, and calls functions in
threads of their own.

Compares a result with its reference, element by element, in pieces that stay in cache.

Pieces are distributed to threads in blocks whose boundaries depend only on the shape, and merged in
order, so the figures are the same for any number of threads. A bf16 result of 8192² elements takes
0.6 s of processor time, one of 4096² elements 0.25 s (2 shared cores of an x86 server).

Evidence of a failed verification: the inputs, the output and the expected output.

:func:`save` writes them as ``arrays.npz`` (numpy's format, no pickle), :func:`load` reads them
back. Formats that numpy does not support (bf16, fp8) are stored as bits, with their names.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TypeVar, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.files import completed
from gemmetry.domain.operation import Operation, operation_name
from gemmetry.domain.record import Trait
from gemmetry.hardware.host import usable_cores, usable_cpus
from gemmetry.numerics import references as threads
from gemmetry.numerics.bounds import LAMBDA, BoundRule, bound_rule, half_ulp
from gemmetry.numerics.references import Reference, to_logical
from gemmetry.numerics.storage import (
    FORMATS_WITHOUT_INFINITY,
    Array,
    Float64Array,
    as_bits,
    overflow_threshold,
    same_bytes,
    to_float64,
)

Mask = npt.NDArray[np.bool_]


_SUMS = (
    "bad_count", "warned_count", "nan_count", "infinite_count", "squared_error",
    "squared_reference", "bias_sum",
)  # fmt: skip
_LARGEST = ("max_ratio", "max_warn_ratio", "largest_error")


@dataclass
class ErrorStatistics:
    """Errors of a result against its reference. ``bad`` marks elements outside the fail bound."""

    elements: int
    bad: Mask | None = None
    """Two-dimensional, (-1, last axis); None when every element is within its bound."""
    bad_count: int = 0
    warned_count: int = 0
    """Number of elements outside the warn bound."""
    nan_count: int = 0
    infinite_count: int = 0
    max_ratio: float = 0.0
    """Largest error / fail bound over the finite elements."""
    max_warn_ratio: float = 0.0
    largest_error: float = 0.0
    """Largest error / magnitude, less the part explained by rounding to the result format."""
    squared_error: float = 0.0
    squared_reference: float = 0.0
    bias_sum: float = 0.0
    first_bad: str = ""
    """Index, value and expectation of the first element outside its bound."""
    rounding: RoundingBias | None = None
    """Set only where stochastic rounding is declared."""

    @property
    def has_finite_errors(self) -> bool:
        """False where the result has no finite element, so that error magnitudes are
        meaningless."""
        return self.nan_count + self.infinite_count < self.elements

    @property
    def relative_frobenius(self) -> float | None:
        """‖got - reference‖ / ‖reference‖ over the finite elements."""
        if self.squared_reference > 0:
            return math.sqrt(self.squared_error / self.squared_reference)
        return 0.0 if self.squared_error == 0 else None

    @property
    def signed_bias(self) -> float:
        """Mean error over the warn bound, counted away from zero: negative where magnitudes are
        too small, as truncation makes them."""
        return self.bias_sum / self.elements if self.elements else 0.0

    @property
    def bias_problem(self) -> str:
        """Why the errors are inconsistent with the declared stochastic rounding; "" if they are
        consistent, or if none was declared."""
        return self.rounding.problem if self.rounding is not None else ""

    def add(self, part: ErrorStatistics) -> None:
        """Merge the statistics of a later part of the same result; its ``elements`` are already
        counted here, and its mask is not merged."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for name in _LARGEST:
            setattr(self, name, max(getattr(self, name), getattr(part, name)))
        self.first_bad = self.first_bad or part.first_bad
        if part.rounding is not None:
            self.rounding = self.rounding or RoundingBias()
            self.rounding.add(part.rounding)


@dataclass
class RoundingBias:
    """Sums for the test that stochastic rounding has no bias, in ulps of the result.

    Rounding up with the probability of the fraction above gives errors of mean 0 and a variance of
    at most 1/4 ulp² each, independent of each other; so their sum over n elements exceeds λ·√n/2
    with a probability of 2·exp(-λ²/2), 3e-8 for λ = 6 (Hoeffding's inequality). The accumulation's
    own error is allowed in addition: its drift, relative to the result, and its scatter.
    """

    count: int = 0
    upward: float = 0.0
    """Sum of the errors."""
    outward: float = 0.0
    """Sum of the errors, counted away from zero."""
    drift: float = 0.0
    squared_scatter: float = 0.0

    def add(self, other: RoundingBias) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    @property
    def problem(self) -> str:
        """Description of the bias, or ""."""
        granted = self.drift + math.sqrt(self.squared_scatter) + LAMBDA * math.sqrt(self.count) / 2
        for total, way in ((self.outward, "away from zero"), (self.upward, "upward")):
            if abs(total) > granted:
                mean = f"errors average {total / self.count:+.2g} ulp {way}"
                limit = f"without bias it is within ±{granted / self.count:.2g}"
                return f"stochastic rounding is declared, but {mean}; {limit}"
        return ""


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """`function` of each item, in order, computed by as many threads as there are items and
    processors."""
    # Counting processors reads files; most results are a single block and do not need the count.
    return threads.in_order(function, items, usable_cores() if len(items) > 1 else 1)


class StandingThreads(ExitStack):
    """Threads that live until the end of the ``with`` block, and run what they are given."""

    def __init__(self, enter: Callable[[], None] = lambda: None) -> None:
        """`enter` is called first in each thread."""
        super().__init__()
        self._enter = enter
        self._pools: list[ThreadPoolExecutor] = []

    def run(self, number: int, call: Callable[[], Result]) -> Result:
        """Run `call` in the thread with this number, wait for it, and return its result or raise
        its exception. A thread starts when it is first used."""
        while len(self._pools) <= number:
            pool = ThreadPoolExecutor(1, thread_name_prefix="gemmetry-launch")
            self._pools.append(self.enter_context(pool))
            pool.submit(self._enter).result()
        return self._pools[number].submit(call).result()


def on_one_processor(call: Callable[[], Result], enter: Callable[[], None]) -> Result:
    """Run `call` in a new thread that is allowed on one processor only, where the system can
    restrict a thread; see :class:`StandingThreads` for `enter`."""

    def restricted() -> Result:
        # Linux restricts only the calling thread, which ends with this call, and what it starts.
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {usable_cpus()[0]})
        return call()

    with StandingThreads(enter) as threads:
        return threads.run(0, restricted)


Scalar = TypeVar("Scalar", bound=np.generic)

_PIECE = 1 << 13
"""Elements compared at a time: ten float64 temporaries of this size fit a second-level cache
(0.6 MiB)."""

_BLOCK = 1 << 18
"""Elements that a thread takes at a time."""


@dataclass
class _Block:
    """A thread's findings in the rows from `start` on."""

    operation: Operation
    rule: BoundRule | None
    """Rule; None for integers."""
    start: int = 0
    statistics: ErrorStatistics = field(default_factory=lambda: ErrorStatistics(elements=0))
    bad: list[tuple[slice, Mask]] = field(default_factory=list)
    """Rows of the whole result, and which of their elements are bad."""

    def compare(self, got: Array, piece: Reference) -> Mask | None:
        """Mask of elements of a piece outside the fail bound; None: none is."""
        rule, statistics = self.rule, self.statistics
        if rule is None:
            return self._compare_integers(got, piece)
        values = to_float64(got)
        expected = to_float64(piece.value)
        is_positive = piece.magnitude is piece.value
        warn = rule.warn(piece, expected if is_positive else None)
        with np.errstate(invalid="ignore"):
            error = values - expected
            ratio = error / warn
        highest, lowest = float(ratio.max()), float(ratio.min())
        bad: Mask | None = None
        is_unusual = not (highest <= 1 and lowest >= -1)
        if is_unusual:
            fail = rule.fail(piece)
            found: Mask = ~(np.abs(error) <= fail)
            # Also within the fail bound: the largest number may stand for one just beyond it.
            accepted = _overflows_rightly(self.operation, values, expected, fail)
            if found.any() or accepted.any():
                found &= ~accepted
                bad = found if found.any() else None
                # Magnitudes of errors are reported for finite numbers only.
                left_out = accepted | ~np.isfinite(values)
                values = np.where(left_out, expected, values)
                error[left_out] = ratio[left_out] = 0.0
            statistics.warned_count += int((np.abs(ratio) > 1).sum())
            highest, lowest = float(ratio.max()), float(ratio.min())
        top = max(highest, -lowest)
        statistics.max_warn_ratio = max(statistics.max_warn_ratio, top)
        if top > statistics.max_ratio:
            # The ratio of an error to its fail bound is at most its ratio to the warn bound: only
            # elements that can raise the largest one are computed.
            candidates = np.abs(ratio) > statistics.max_ratio
            some, errors = piece, error
            if np.count_nonzero(candidates) < ratio.size // 4:
                some, errors = piece.of(lambda array: array[candidates]), error[candidates]
            largest = float((np.abs(errors) / rule.fail(some)).max())
            statistics.max_ratio = max(statistics.max_ratio, largest)
        statistics.squared_error += float(np.vdot(error, error))
        statistics.squared_reference += float(np.vdot(expected, expected))
        if is_positive:
            statistics.bias_sum += float(ratio.sum())
        else:
            statistics.bias_sum += float(np.vdot(ratio, np.sign(expected)))
        # A result in one binade came from a value in the same or a lower one, so what is beyond
        # half an ulp of the result cannot come from the final rounding.
        excess = np.abs(error)
        excess -= half_ulp(values, self.operation.signature.result)
        if float(excess.max()) > 0:
            np.divide(excess, piece.magnitude, out=excess, where=piece.magnitude > 0)
            statistics.largest_error = max(statistics.largest_error, float(excess.max()))
        return bad

    def _compare_integers(self, got: Array, piece: Reference) -> Mask | None:
        statistics = self.statistics
        statistics.squared_reference += float(np.square(piece.magnitude).sum())
        if np.array_equal(got, piece.value):
            return None
        error = np.abs(to_float64(got) - to_float64(piece.value))
        largest = float(error.max())
        # Integers have no values in between, so an error below one half is no error.
        statistics.max_ratio = max(statistics.max_ratio, 2.0 * largest)
        statistics.largest_error = max(statistics.largest_error, largest)
        statistics.squared_error += float(np.square(error).sum())
        return error > 0

    def add_rounding(self, got: Array, piece: Reference, bad: Mask | None) -> None:
        """Add a piece to the sums of the test for bias; wrong and overflowed elements are left
        out."""
        assert self.rule is not None
        values, expected = to_float64(got), to_float64(piece.value)
        usable = np.isfinite(values) & np.isfinite(expected) & (expected != 0)
        usable &= np.abs(expected) < self.operation.signature.result.maximum
        if bad is not None:
            usable &= ~bad
        values, expected, magnitude = values[usable], expected[usable], piece.magnitude[usable]
        ulps = 2 * half_ulp(expected, self.operation.signature.result)
        errors = (values - expected) / ulps
        relative = self.rule.relative.warn
        bias = self.statistics.rounding = self.statistics.rounding or RoundingBias()
        bias.count += errors.size
        bias.upward += float(errors.sum())
        bias.outward += float(np.vdot(errors, np.sign(expected)))
        bias.drift += float((relative * np.abs(expected) / ulps).sum())
        bias.squared_scatter += float(np.square(relative * magnitude / ulps).sum())

    def note(self, first: int, bad: Mask, *compared: Float64Array) -> None:
        """Add rows of a block with bad elements; `compared` holds values, expectations and
        bounds."""
        start = self.start + first
        if not self.bad:
            row, column = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
            value, expected, bound = (float(array[row, column]) for array in compared)
            shape = self.operation.output.shape
            index = [*(int(i) for i in np.unravel_index(start + row, shape[:-1])), column]
            due = f"{expected:.9g} ± {bound:.3g}" if bound else f"{expected:.9g}"
            self.statistics.first_bad = f"{index}: got {value:.9g}, expected {due}"
        self.bad.append((slice(start, start + bad.shape[0]), bad))
        self.statistics.bad_count += int(bad.sum())
        self.statistics.nan_count += int(np.isnan(compared[0][bad]).sum())
        self.statistics.infinite_count += int(np.isinf(compared[0][bad]).sum())


def compare(
    operation: Operation,
    result: Array,
    reference: Reference,
    *,
    folded_terms: int | None = None,
    declared: Collection[Trait] = (),
) -> ErrorStatistics:
    """Compare `result` (host array in storage shape) with its reference by the bounds of
    `operation`.

    NaN is never correct. An infinity (in formats without one, NaN or the largest value) is correct
    where the reference, within its bound, overflows the result format.

    Args:
        folded_terms: as of :func:`gemmetry.numerics.bounds.accumulation_error`.
        declared: the executable's declarations about its arithmetic, which widen the bounds.
    """
    got, rule = _rows(operation, result), None
    if not operation.signature.lhs.is_integer:
        rule = bound_rule(operation, reference, folded_terms=folded_terms, declared=declared)
    is_stochastic = Trait.STOCHASTIC_ROUNDING in declared
    whole = reference.flat()

    def judge(rows: slice) -> _Block:
        block = _Block(operation, rule, rows.start)
        # A column-major result is transposed here, so that threads share that work too.
        here = np.ascontiguousarray(got[rows])
        for part, piece in whole.part(rows).rows(_PIECE):
            bad = block.compare(here[part], piece)
            if is_stochastic and rule is not None:
                block.add_rounding(here[part], piece, bad)
            if bad is not None:
                bounds = np.zeros(bad.shape) if rule is None else rule.fail(piece)
                compared = to_float64(here[part]), to_float64(piece.value), bounds
                block.note(part.start, bad, *compared)
        return block

    return _merged(got.shape, judge)


def compare_exactly(operation: Operation, result: Array, expected: Array) -> ErrorStatistics:
    """Compare `result` with `expected` (logical shape, in the result format): every element must be
    the same number. -0 equals 0; where the expectation overflows, so may the result, in any of the
    accepted ways."""
    got = _rows(operation, result)
    wanted_rows = expected.reshape(got.shape)

    def judge(rows: slice) -> _Block:
        block = _Block(operation, None, rows.start)
        here, there = np.ascontiguousarray(got[rows]), np.ascontiguousarray(wanted_rows[rows])
        if same_bytes(here, there):
            return block
        values, wanted = to_float64(here), to_float64(there)
        bad: Mask = values != wanted
        # NaN that results from rounding to a format without infinity stands for infinity.
        beyond = np.where(np.isnan(wanted), np.copysign(np.inf, wanted), wanted)
        bad &= ~_overflows_rightly(operation, values, beyond, np.zeros(()))
        if bad.any():
            block.note(0, bad, values, wanted, np.zeros(bad.shape))
        return block

    return _merged(got.shape, judge)


def outside_bound(
    operation: Operation,
    result: Array,
    reference: Reference,
    where: Mask,
    *,
    declared: Collection[Trait] = (),
) -> Mask:
    """Mask of the elements of `result` marked by `where` (both in storage shape) outside the fail
    bound; in logical order, (-1, last axis)."""
    marked = np.ascontiguousarray(_rows(operation, where))
    got = _rows(operation, result)[marked][np.newaxis]
    piece = reference.flat().of(lambda array: array[marked][np.newaxis])
    is_integer = operation.signature.lhs.is_integer
    rule = None if is_integer else bound_rule(operation, reference, declared=declared)
    bad = _Block(operation, rule).compare(got, piece)
    outside: Mask = np.zeros(marked.shape, dtype=np.bool_)
    if bad is not None:
        outside[marked] = bad[0]
    return outside


def _merged(shape: tuple[int, ...], judge: Callable[[slice], _Block]) -> ErrorStatistics:
    """Apply `judge` to all rows, block by block, with as many threads as there is work for."""
    height, width = shape
    total = ErrorStatistics(elements=height * width)
    step = max(1, _BLOCK // max(1, width))
    blocks = [slice(start, min(start + step, height)) for start in range(0, height, step)]
    for block in in_order(judge, blocks):
        total.add(block.statistics)
        for part, bad in block.bad:
            if total.bad is None:
                total.bad = np.zeros(shape, dtype=np.bool_)
            total.bad[part] = bad
    return total


def _rows(operation: Operation, result: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """`result` in logical order as (-1, last axis); a view where possible."""
    logical = to_logical(result, operation.output)
    return logical.reshape(-1, logical.shape[-1])


def _overflows_rightly(
    operation: Operation, values: Float64Array, reference: Float64Array, bound: Float64Array
) -> Mask:
    result = operation.signature.result
    beyond = np.abs(reference) + bound >= overflow_threshold(result)
    same_side = np.sign(values) == np.sign(reference)
    accepted = np.isinf(values) & same_side
    if result in FORMATS_WITHOUT_INFINITY:
        accepted |= np.isnan(values)
    if result.is_fp8:
        # Casts to fp8 may saturate: CUDA's __NV_SATFINITE is the default of its conversions.
        accepted |= (np.abs(values) == result.maximum) & same_side
    return cast(Mask, beyond & accepted)


ARRAYS_NAME = "arrays.npz"

_OUR_DTYPES = ml_dtypes.__name__
_HEADER = "header"
_RESULTS = ("output", "expected", "bad")


@dataclass(frozen=True)
class Evidence:
    """The failure of one check, as arrays on the host.

    The check may have used a different shape (tail shapes), so the operation is stored too.
    """

    check: str
    operation: Operation
    inputs: tuple[Array, ...]
    """Inputs in the order of ``operation.inputs``, in storage shapes and dtypes."""
    output: Array
    """The dispatch's output, of ``operation.output.storage_shape`` unless the shape itself is
    wrong."""
    expected: Array | None
    """The exact or float64 expectation; None where only its checksums are known (Freivalds)."""
    bad: Mask | None
    """True where an element is wrong; None where the check does not identify single elements."""

    @property
    def nbytes(self) -> int:
        """Total bytes of all arrays."""
        return sum(array.nbytes for array in self._named().values())

    def _named(self) -> dict[str, Array]:
        roles = [*(f"input_{spec.role}" for spec in self.operation.inputs), *_RESULTS]
        arrays = (*self.inputs, self.output, self.expected, self.bad)
        pairs = zip(roles, arrays, strict=True)
        return {role: np.asarray(array) for role, array in pairs if array is not None}


def save(folder: Path, evidence: Evidence) -> Path:
    """Write the arrays atomically to ``<folder>/arrays.npz``. Returns its path.

    Raises:
        OSError: the folder or the file cannot be written.
    """
    named = evidence._named()
    header = {
        "check": evidence.check,
        "operation": operation_name(evidence.operation),
        "dtypes": {name: array.dtype.name for name, array in named.items()},
    }
    stored = {name: _storable(array) for name, array in named.items()}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ARRAYS_NAME
    with completed(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.array(json.dumps(header))}, **stored)
    return path


def load(folder: Path) -> Evidence:
    """Load the evidence that :func:`save` wrote into `folder`.

    Raises:
        RequestError: there is no evidence. StorageError: the file is damaged.
    """
    path = folder / ARRAYS_NAME
    if not path.is_file():
        raise RequestError(
            f"{folder} contains no {ARRAYS_NAME}",
            hint="Give the folder that `gemmetry show` lists as the evidence of a dispatch.",
        )
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            header = json.loads(str(stored[_HEADER]))
            dtypes = header["dtypes"].items()
            arrays = {name: stored[name].view(np.dtype(dtype)) for name, dtype in dtypes}
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise StorageError(
            f"{path} cannot be read: {error}", hint="Run the dispatch again to create it."
        ) from error
    operation = parse_operation(header["operation"])
    inputs = tuple(arrays[f"input_{spec.role}"] for spec in operation.inputs)
    results = arrays["output"], arrays.get("expected"), arrays.get("bad")
    return Evidence(header["check"], operation, inputs, *results)


def _storable(array: Array) -> Array:
    """`array`, or its bits in the same shape where the file format does not support its dtype."""
    if array.dtype.type.__module__ == _OUR_DTYPES or array.dtype.kind == "V":
        return as_bits(array).reshape(array.shape)
    return array
