"""The ``GEMM`` sheet: GEMMs by operator and sizes, with TraceLens' columns and definitions.

Its times are those of all that a call launched, helper passes, copies and fills too; the speed of
the kernel alone stands in ``gemms`` (:mod:`.gemms`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from gemmetry.formats.events import Int64, OperatorArguments
from gemmetry.kernel_names import KernelKind
from gemmetry.traces.bandwidth import ELEMENT_BYTES, element_type
from gemmetry.traces.gemm_links import link_gemms
from gemmetry.traces.gemm_operators import OPERAND_PLACES, GemmShape
from gemmetry.traces.grouped import busy_by_owner, grouped_statistics
from gemmetry.traces.joins import NONE
from gemmetry.traces.launchers import enclosing_among
from gemmetry.traces.model import Trace
from gemmetry.traces.tracelens_cells import argument_text, kernel_lists
from gemmetry.traces.tracelens_sheets import BY_NAME, Table

_ADDS = ("aten::addmm", "aten::_addmm_activation", "aten::baddbmm", "aten::addbmm", "aten::addmv")
_SCALED = ("aten::_scaled_mm", "aten::_scaled_mm_v2")
_FORMATS = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "s8": "int8", "u8": "uint8",
            "e4m3": "fp8", "e5m2": "fp8", "e2m1": "fp4"}  # fmt: skip
"""Element types in the words of TraceLens' ``Compute Spec``, where they differ from ours."""

MIB = 1 << 20


class GemmModel(NamedTuple):
    """What one call of an operator computes and moves."""

    m: int
    n: int
    k: int
    batch: int
    bias: bool
    strides: tuple[str | None, str | None]
    dtypes: tuple[str | None, str | None]
    dtype: str | None

    @property
    def gflops(self) -> float:
        """2·B·M·N·K, and B·M·N for a bias, in 10⁹."""
        return self.batch * self.m * self.n * (2 * self.k + self.bias) / 1e9

    @property
    def bytes(self) -> int | None:
        """Operands and result, each once; the result as wide as A, 2 bytes where A has 1."""
        size = ELEMENT_BYTES.get(element_type(self.dtypes[0]) or "")
        if size is None:
            return None
        result = 2 if size == 1 else size
        operands = self.m * self.k + self.k * self.n + self.n * self.bias
        return self.batch * (size * operands + result * self.m * self.n)

    @property
    def mebibytes(self) -> float | None:
        """:attr:`bytes` in 2²⁰."""
        return None if self.bytes is None else self.bytes / MIB

    @property
    def intensity(self) -> float | None:
        """FLOP a byte."""
        return self.gflops * 1e9 / self.bytes if self.bytes else None

    @property
    def spec(self) -> str | None:
        """``matrix_bf16``."""
        if self.dtype is None:
            return None
        first = self.dtype.partition(":")[0]
        return f"matrix_{_FORMATS.get(first, first)}"

    @property
    def sizes(self) -> tuple[Any, ...]:
        """Cells of the columns ``param: M`` to ``param: B``."""
        strides = [None if text is None else repr(_numbers(text)) for text in self.strides]
        dtypes = None if self.dtypes == (None, None) else repr(self.dtypes)
        return (self.m, self.n, self.k, self.bias, *strides, dtypes, self.batch)

    @property
    def params(self) -> str:
        """The same as a Python literal."""
        names = ("M", "N", "K", "bias", "stride_A", "stride_B", "dtype_A_B", "B")
        values = (self.m, self.n, self.k, self.bias, *(
            None if text is None else _numbers(text) for text in self.strides
        ), self.dtypes, self.batch)  # fmt: skip
        return repr(dict(zip(names, values, strict=True)))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(msgspec.json.decode(text, type=list[int]))


def gemm_model(name: str, arguments: OperatorArguments, shape: GemmShape) -> GemmModel:
    """What a call of the operator `name` computes; `shape` is told by its arguments."""
    a, b = OPERAND_PLACES.get(name, (None, None))
    strides, dtypes = _list(arguments.strides), _list(arguments.dtypes)

    def at(values: Sequence[Any], place: int | None) -> Any:
        return values[place] if place is not None and place < len(values) else None

    def stride(place: int | None) -> str | None:
        found = at(strides, place)
        is_stride = isinstance(found, list) and all(type(size) is int for size in found)
        return msgspec.json.encode(found).decode() if is_stride and found else None

    told = tuple(d if isinstance(d := at(dtypes, place), str) and d else None for place in (a, b))
    return GemmModel(
        m=shape.m,
        n=shape.n,
        k=shape.k,
        batch=shape.batch,
        bias=name in _ADDS,
        strides=(stride(a), stride(b)),
        dtypes=(told[0], told[1]),
        dtype=shape.dtype,
    )


def _list(text: str) -> list[Any]:
    try:
        found = msgspec.json.decode(text) if text else []
    except (msgspec.DecodeError, RecursionError):
        return []
    return found if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class GemmCalls:
    """Calls of operators that are GEMMs and told their sizes; one entry a call."""

    operator: Int64
    """Row of ``TraceRows.operators``."""
    model: Int64
    """Index into `models`."""
    models: tuple[tuple[str, GemmModel], ...]
    """Operator's name and what it computes."""
    busy_ns: Int64
    """Union of all that the call launched."""
    of_row: Int64
    """(rows of ``TraceRows.gpu``,) the call around each; -1: none."""


def gemm_calls(trace: Trace) -> GemmCalls:
    """The calls that launched GEMM kernels of `trace`, by start."""
    rows, launches = trace.rows, trace.launches
    gpu, operators = rows.gpu, rows.operators
    links = link_gemms(trace)
    told = (links.shape != NONE) & ~links.inferred & (links.operator != NONE)
    called, first = np.unique(links.operator[told], return_index=True)
    shape = links.shape[told][first]
    by_start = np.argsort(operators.start_ns[called], kind="stable")
    called, shape = called[by_start], shape[by_start]
    number = np.full(len(operators.name), NONE, np.int64)
    number[called] = np.arange(len(called))
    of_row = enclosing_among(launches.operator, launches.parent, number)
    inside = np.flatnonzero(of_row != NONE)
    busy = busy_by_owner(of_row[inside], gpu.start_ns[inside], gpu.duration_ns[inside], len(called))
    keys = np.column_stack([operators.name[called], operators.arguments[called], shape])
    distinct, which = np.unique(keys.reshape(-1, 3), axis=0, return_inverse=True)
    numbers: dict[tuple[str, GemmModel], int] = {}
    model_of = []
    for name, arguments, place in distinct.tolist():
        text = rows.names[name]
        told_arguments = rows.arguments[arguments] if arguments >= 0 else OperatorArguments()
        model = gemm_model(text, told_arguments, links.shapes[place])
        model_of.append(numbers.setdefault((text, model), len(numbers)))
    models = np.array(model_of, np.int64)[which.reshape(-1)] if model_of else shape[:0]
    return GemmCalls(called, models, tuple(numbers), busy, of_row)


def gemm_sheet(trace: Trace, calls: GemmCalls, thread_names: Sequence[str]) -> Table:
    """One row an operator and sizes, those with the most time first."""
    rows, operators = trace.rows, trace.rows.operators
    count = len(calls.models)
    owner = np.full(len(calls.of_row), NONE, np.int64)
    inside = calls.of_row != NONE
    owner[inside] = calls.model[calls.of_row[inside]]
    lists = kernel_lists(trace, owner, count)
    transposed = _transposed(trace, owner)
    times = grouped_statistics(calls.model, calls.busy_ns / 1000, count)
    first = np.full(count, NONE, np.int64)
    first[calls.model[::-1]] = calls.operator[::-1]
    found = []
    for place in np.lexsort((first, -times.sum)).tolist():
        name, model = calls.models[place]
        row = int(first[place])
        chosen = calls.busy_ns[calls.model == place] / 1000
        told = operators.arguments[row]
        arguments = rows.arguments[told] if told >= 0 else OperatorArguments()
        found.append((
            name, *model.sizes, transposed.get(place),
            model.gflops, model.mebibytes, model.intensity,
            *speeds(model, chosen),
            None, None, thread_names[operators.thread[row]], model.spec,
            *lists[place],
            *(argument_text(text, as_tuple=False) for text in
              (arguments.shapes, arguments.dtypes, arguments.strides, arguments.values)),
            *(_number(getattr(times, a)[place])
              for a in ("mean", "median", "std", "min", "max", "sum")),
            int(times.count[place]), _identity(operators.external_id[row]),
        ))  # fmt: skip
    return Table("GEMM", BY_NAME["GEMM"].headings, found)


def speeds(model: GemmModel, times_us: Any) -> tuple[float | None, ...]:
    """Mean, median, std, min, max of TB/s and then of TFLOPS/s over calls."""
    times = times_us[times_us > 0]
    moved = model.bytes
    result: list[float | None] = []
    for amount in (None if moved is None else moved / 1e6, model.gflops * 1e3):
        if amount is None or not len(times):
            result += [None] * 5
            continue
        # 10⁶ bytes (or FLOP) a µs are 10¹² a second.
        values = amount / times
        spread = float(values.std(ddof=1)) if len(values) > 1 else None
        result += [float(values.mean()), float(np.median(values)), spread, float(values.min()),
                   float(values.max())]  # fmt: skip
    return tuple(result)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _identity(external_id: int) -> int | None:
    return int(external_id) if external_id > 0 else None


def _transposed(trace: Trace, owner: Int64) -> dict[int, str]:
    """``(True, False)`` by owner, where its kernels' names tell one."""
    result: dict[int, str] = {}
    gpu = trace.rows.gpu
    rows = np.flatnonzero((owner != NONE) & trace.is_gemm)
    for of, name in np.unique(np.column_stack([owner[rows], gpu.name[rows]]), axis=0).tolist():
        told = trace.kernel_names[name]
        if told.kind is KernelKind.GEMM and told.layout and len(told.layout) == 2:
            result[of] = repr(tuple(letter == "t" for letter in told.layout))
    return result
