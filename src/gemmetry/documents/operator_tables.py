"""Operators of a trace in TraceLens' sheets: launchers, calls, kernels, times and speeds.

The sheets include rows that TraceLens leaves out: kernels whose launch is not in the file, and
those of operators whose arguments are not recorded. Of an operator's kernels the ones that multiply
come first, never a fill.

In the sheets of operators by what they compute, times cover everything that a call launched, itself
or through the operators that it called, including helper passes, copies and fills; calls without
GPU work are left out. A call within a call of the same sheet (``aten::native_layer_norm`` in
``aten::layer_norm``) has its own row, as in TraceLens' sheets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
import numpy as np

from gemmetry.documents.operator_models import (
    OperatorModel,
    gemm_model,
    has_backward_model,
    has_model,
    is_reported,
    operator_model,
)
from gemmetry.documents.tracelens import (
    BY_NAME,
    PERFORMANCE_SHEETS,
    GroupStatistics,
    SheetKind,
    busy_by_owner,
    grouped_statistics,
)
from gemmetry.domain.tables import Table
from gemmetry.formats.events import Bools, GpuKind, Int32, Int64, OperatorArguments
from gemmetry.traces.gemms import link_gemms
from gemmetry.traces.joins import NONE, JoinedLaunches, enclosing_among, subtract
from gemmetry.traces.model import Trace
from gemmetry.traces.names import GEMM_KINDS, KernelKind
from gemmetry.traces.operators.gemms import Integers, distinct_rows, is_gemm_operator
from gemmetry.traces.summary import Summary

Rows: TypeAlias = list[tuple[Any, ...]]


RUNTIME, GRAPH = "runtime", "graph"
"""Categories of launches without a known operator."""


@dataclass(frozen=True, slots=True)
class Launchers:
    """The launchers of the work of one trace: innermost operators, else runtime calls.

    Arrays have one entry per launcher unless stated otherwise.
    """

    of_row: Int64
    """(rows of ``TraceRows.gpu``,) the launcher of each; -1: not in the file."""
    name: Integers
    """Index into ``TraceRows.names``."""
    thread: Integers
    arguments: Integers
    """Index into ``TraceRows.arguments``; -1: none."""
    external_id: Int64
    host_ns: Int64
    """Duration of the operator or call on the host."""
    category: Int64
    """Index into `categories`."""
    categories: tuple[str, ...]
    """Categories in alphabetical order."""
    computes: Bools
    """Whether the operator launched anything other than communication."""
    direct_ns: Int64
    """Union of the work launched by the operator itself, without communication."""
    subtree_ns: Int64
    """Union of all work launched by it and by the operators called from it."""

    @property
    def counted(self) -> Int64:
        """Operators on the operator sheets: they launched more than communication."""
        return np.flatnonzero(self.computes)


def find_launchers(trace: Trace, *, whole: Callable[[str], bool] | None = None) -> Launchers:
    """The launchers of `trace`, in no particular order.

    Args:
        whole: whether the operator with a given name represents everything launched within it.
    """
    keys, of_row = _numbered(trace, whole)
    trace.release_pages()
    count = len(keys)
    gpu, operators, calls = trace.rows.gpu, trace.rows.operators, trace.rows.calls
    width = len(operators.name)
    is_operator = keys < width
    operator, call = keys[is_operator], keys[~is_operator] - width

    def column(of_operators: Integers, of_calls: Integers) -> Any:
        result = np.empty(count, of_operators.dtype)
        result[is_operator] = of_operators[operator]
        result[~is_operator] = of_calls[call]
        return result

    name = column(operators.name, calls.name)
    counted = np.flatnonzero((of_row != NONE) & ~trace.is_communication)
    direct = busy_by_owner(of_row[counted], counted, gpu.start_ns, gpu.duration_ns, count)
    category, categories = _categories(trace, of_row, name, is_operator)
    found = Launchers(
        of_row=of_row,
        name=name,
        thread=column(operators.thread, calls.thread),
        arguments=column(operators.arguments, np.full(len(calls.name), NONE, np.int8)),
        external_id=column(operators.external_id, calls.external_id),
        host_ns=column(operators.duration_ns, calls.duration_ns),
        category=category,
        categories=categories,
        computes=np.bincount(of_row[counted], minlength=count) > 0,
        direct_ns=direct,
        subtree_ns=busy_by_owner(
            *_members(trace, keys, of_row), gpu.start_ns, gpu.duration_ns, count
        ),
    )
    trace.release_pages()
    return found


def _numbered(trace: Trace, whole: Callable[[str], bool] | None = None) -> tuple[Int64, Int64]:
    """(launchers,) a number for each: the operator's row, or the call's row after all operators;
    and (rows of ``TraceRows.gpu``,) the index of each row's launcher."""
    call, width = trace.launches.call, len(trace.rows.operators.name)
    operator = _past_marks(trace)
    if whole is not None:
        operator = _outermost(trace, operator, whole)
    key = np.where(operator != NONE, operator, np.where(call != NONE, call + width, NONE))
    known = np.flatnonzero(key != NONE)
    keys, which = np.unique(key[known], return_inverse=True)
    of_row = np.full(len(key), NONE, np.int64)
    of_row[known] = which
    return keys, of_row


def _past_marks(trace: Trace) -> Int64:
    """The innermost operator around each row; marks within an operator (``nccl:all_reduce`` in
    ``record_param_comms``) are skipped."""
    rows, launches = trace.rows, trace.launches
    is_mark = np.array([name == "execute" or name.startswith("nccl:") for name in rows.names], bool)
    number = np.arange(len(rows.operators.name))
    if len(number):
        number[is_mark[rows.operators.name]] = NONE
    outer = enclosing_among(launches.operator, launches.parent, number)
    return np.where(outer == NONE, launches.operator, outer)


def _outermost(trace: Trace, operator: Int64, whole: Callable[[str], bool]) -> Int64:
    """Outermost ancestor of each of `operator` that is `whole`; `operator` itself where none is."""
    is_whole = np.array([whole(name) for name in trace.rows.names], bool)
    result = operator.copy()
    row = np.flatnonzero(operator != NONE)
    for found, at in _outwards(
        trace.launches, row, operator[row], is_whole[trace.rows.operators.name]
    ):
        result[found] = at
    return result


def _outwards(
    launches: JoinedLaunches, row: Int64, at: Int64, wanted: Bools
) -> Iterator[tuple[Int64, Int64]]:
    """Rows and operators that are `wanted`, from the operators `at` of `row` outwards."""
    while len(row):
        chosen = wanted[at]
        yield row[chosen], at[chosen]
        at = launches.parent[at]
        inside = at != NONE
        row, at = row[inside], at[inside]


def _pairs(found: Iterator[tuple[Int64, Int64]]) -> tuple[Int64, Int64]:
    """Rows and operators of all levels."""
    rows, operators = zip((np.zeros(0, np.int64),) * 2, *found, strict=True)
    return np.concatenate(rows), np.concatenate(operators)


def _members(trace: Trace, keys: Int64, of_row: Int64) -> tuple[Int32, Int32]:
    """Pairs of launchers and the rows launched by them or by operators called from them."""
    launches = trace.launches
    number = np.full(len(trace.rows.operators.name), NONE, np.int32)
    is_operator = keys < len(number)
    number[keys[is_operator]] = np.flatnonzero(is_operator)
    own = np.flatnonzero(of_row != NONE).astype(np.int32)
    row = np.flatnonzero(launches.operator != NONE).astype(np.int32)
    outer = launches.parent[launches.operator[row]] if len(row) else row
    row, outer = row[outer != NONE], outer[outer != NONE]
    members, at = _pairs(_outwards(launches, row, outer, number != NONE))
    owners = np.concatenate([of_row[own].astype(np.int32), number[at]])
    return owners, np.concatenate([own, members.astype(np.int32)])


_LOOKED_AT = 512
"""Number of characters of an operator's name that are read: searching a malicious one of 16,000
takes half a second."""


_BY_OPERATOR = tuple(
    (re.compile(pattern), category)
    for pattern, category in (
        (r"\Arecord_param_comms", "record_param_comms"),
        (r"\Atriton", "triton"),
        (r"convolution_backward|(?i:conv\w*_?backward)", "CONV_bwd"),
        (r"(?:aten|torchvision)::\w*conv(?:olution|\d)", "CONV_fwd"),
        (r"(?:batch|layer|group|instance|rms)_norm\w*backward", "NORM_bwd"),
        (r"(?:batch|layer|group|instance|rms)_norm", "NORM_fwd"),
        (r"(?i:attn|attention|fmha)\w*(?i:backward|bwd)", "SDPA_bwd"),
        (r"::\w*(?i:flash_attn|attention|fmha|mha_)", "SDPA_fwd"),
        (r"::_foreach_|::_fused_(?:adam|sgd)", "multi_tensor_apply"),
        (r"::(?:copy_?|_to_copy|clamp_m\w+|sigmoid|rsqrt|silu|neg|pow|div_?|mul_?|add_?)\Z",
         "elementwise"),
        (r"::(?:sum|mean|max|min|a?amin|amax|norm|linalg_\w*norm|std|var|logsumexp|cumsum"
         r"|cumprod)\Z", "reduce"),
    )
)  # fmt: skip


def operator_category(operator: str, kernel: str, *, kernel_is_gemm: bool = False) -> str:
    """Category of an operator, in the words of TraceLens' ``op category``.

    Args:
        kernel: name of the first kernel that it launched; used where the operator's name is not
            decisive.
    """
    operator = operator[:_LOOKED_AT]
    if is_gemm_operator(operator):
        return "GEMM"
    for pattern, category in _BY_OPERATOR:
        if pattern.search(operator):
            return category
    if kernel.startswith("void at::native"):
        for word in ("multi_tensor_apply", "elementwise", "reduce"):
            if word in kernel[:200]:
                return word
    return "GEMM" if kernel_is_gemm else "other"


def _categories(
    trace: Trace, of_row: Int64, name: Integers, is_operator: Bools
) -> tuple[Int64, tuple[str, ...]]:
    rows = trace.rows
    first_kernel = np.full(len(name), NONE, np.int64)
    known = np.flatnonzero((of_row != NONE) & trace.is_kernel)
    # The value written last remains: the earliest kernel of each launcher.
    backwards = known[np.argsort(-rows.gpu.start_ns[known], kind="stable")]
    first_kernel[of_row[backwards]] = rows.gpu.name[backwards]
    pairs, which = distinct_rows(name, first_kernel)
    words = []
    for operator, kernel in pairs.tolist():
        facts = trace.kernel_names.get(kernel)
        text = rows.names[kernel] if kernel != NONE else ""
        is_gemm = facts is not None and facts.kind in GEMM_KINDS
        words.append(operator_category(rows.names[operator], text, kernel_is_gemm=is_gemm))
    categories = tuple(sorted({*words, RUNTIME, GRAPH}))
    result = np.array([categories.index(word) for word in words], np.int64)[which]
    is_graph = np.array(["graphlaunch" in text.lower() for text in rows.names], bool)
    result[~is_operator] = categories.index(RUNTIME)
    result[~is_operator & is_graph[name]] = categories.index(GRAPH)
    return result, categories


MOST_NAME_CHARACTERS = 4096
"""Maximum length of a kernel's name in a list of kernels."""


_MOST_CHARACTERS = 32_000
"""Maximum length of a list: a cell holds 32767 (Excel's published limits), and a truncated literal
cannot be parsed."""


_SHORT_NAME = 64
"""Characters of a name in the shortened list, as in TraceLens."""


_MULTIPLIES = (KernelKind.GEMM, KernelKind.GEMV)


@lru_cache(maxsize=8192)
def argument_text(text: str, *, as_tuple: bool = True) -> str | None:
    """A list of an operator's arguments, JSON in the trace, as a Python literal: nested tuples as
    in TraceLens' ``ops_unique_args``, or lists; None where it is missing."""
    if not text:
        return None
    try:
        value = msgspec.json.decode(text)
        return repr(_tuples(value) if as_tuple else value)
    except (msgspec.DecodeError, RecursionError):
        return text


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def kernel_lists(
    trace: Trace, owner: Int64, owners: int, *, row: Int64 | None = None
) -> list[tuple[str, str]]:
    """For each owner its kernels, copies and fills by name and stream, as a Python literal with
    their times in µs, and shortened.

    Kernels that multiply come first, fills and copies last, and within these groups those with the
    most time first, so that a script that reads the first kernel of a GEMM gets the GEMM itself.

    Args:
        owner: (rows of ``TraceRows.gpu``,) numbers from 0 to below `owners`; -1: no owner.
        row: the rows that `owner` refers to, which may have several owners. None: every row, once.
    """
    gpu = trace.rows.gpu
    known = np.flatnonzero(owner != NONE)
    result = [("[]", "[]")] * owners
    if not len(known):
        return result
    owner, chosen = owner[known], known if row is None else row[known]
    distinct, which = distinct_rows(owner, gpu.name[chosen], gpu.stream[chosen], gpu.kind[chosen])
    found = grouped_statistics(which, gpu.duration_ns[chosen], len(distinct))
    multiplies = {i for i, facts in trace.kernel_names.items() if facts.kind in _MULTIPLIES}
    lists: dict[int, list[tuple[tuple[int, int], dict[str, Any]]]] = {}
    for place, (of, name, stream, kind) in enumerate(distinct.tolist()):
        total, count = int(found.sum[place]), int(found.count[place])
        order = 2 if kind != GpuKind.KERNEL else int(name not in multiplies)
        spread = 0.0 if count == 1 else found.std[place] * math.sqrt((count - 1) / count)
        lists.setdefault(of, []).append(((order, -total), {
            "name": trace.rows.names[name][:MOST_NAME_CHARACTERS],
            "stream": stream,
            "count": count,
            "total_duration_us": total / 1000,
            "mean_duration_us": _rounded_us(found.mean[place]),
            "median_duration_us": _rounded_us(found.median[place]),
            "std_dev_duration_us": _rounded_us(spread),
            "min_duration_us": _rounded_us(found.min[place]),
            "max_duration_us": _rounded_us(found.max[place]),
        }))  # fmt: skip
    for of, entries in lists.items():
        entries.sort(key=lambda entry: entry[0])
        result[of] = (
            _literal([entry for _, entry in entries]),
            _literal([_shortened(entry) for _, entry in entries]),
        )
    return result


def _rounded_us(ns: float) -> float:
    return round(float(ns) / 1000, 6)


def _shortened(entry: dict[str, Any]) -> dict[str, Any]:
    name = entry["name"]
    short = name if len(name) <= _SHORT_NAME else f"{name[:_SHORT_NAME]}..."
    mean = round(entry["mean_duration_us"], 2)
    return {"name": short, "stream": entry["stream"], "mean_duration_us": mean}


def _literal(entries: list[dict[str, Any]]) -> str:
    """Literal with as many of the first entries as fit into a cell."""
    texts: list[str] = []
    left = _MOST_CHARACTERS
    for entry in entries:
        text = repr(entry)
        left -= len(text) + 2
        if left < 0:
            break
        texts.append(text)
    return f"[{', '.join(texts)}]"


_BACKWARD_NODE = "autograd::engine::evaluate_function:"
"""Prefix of the names of operations that autograd's engine runs."""


@dataclass(frozen=True, slots=True)
class ModelledCalls:
    """Calls of operators whose work is known; arrays have one entry per call."""

    operator: Int64
    """Row of ``TraceRows.operators``."""
    model: Int64
    """Index into `models`."""
    models: tuple[tuple[str, OperatorModel], ...]
    """Operator's name and work."""
    busy_ns: Int64
    """Union of all work that the call launched."""
    row: Int64
    """(pairs,) row of ``TraceRows.gpu`` that belongs to `call`."""
    call: Int64
    """(pairs,) index of a call; calls within calls share rows."""


def operator_calls(trace: Trace) -> ModelledCalls:
    """The calls of operators other than GEMMs that launched GPU work, by start."""
    rows = trace.rows
    wanted = np.array([has_model(name) for name in rows.names], bool)
    if not wanted.any() or not len(rows.operators.name):
        return _calls(trace, *np.zeros((2, 0), np.int64))
    return _calls(trace, *_around(trace.launches, wanted[rows.operators.name]))


def backward_calls(trace: Trace) -> ModelledCalls:
    """The forward calls whose arguments determine the work of their backward pass, with the GPU
    work of that pass."""
    rows, operators = trace.rows, trace.rows.operators
    nothing = _calls(trace, *np.zeros((2, 0), np.int64), backward=True)
    wanted = np.array([has_backward_model(name) for name in rows.names], bool)
    of_engine = np.array([name.startswith(_BACKWARD_NODE) for name in rows.names], bool)
    if not wanted.any() or not of_engine.any():
        return nothing
    forward = _forward_of(trace, np.flatnonzero(of_engine[operators.name]))
    node, at = _pairs(_outwards(trace.launches, *forward, wanted[operators.name]))
    by_node = np.argsort(node, kind="stable")
    linked, of_linked = node[by_node], at[by_node]
    is_linked = np.zeros(len(operators.name), bool)
    is_linked[linked] = True
    row, launched_in = _around(trace.launches, is_linked)
    first = np.searchsorted(linked, launched_in, "left")
    several = np.searchsorted(linked, launched_in, "right") - first
    place = np.arange(int(several.sum())) - np.repeat(np.cumsum(several) - several, several)
    operator = of_linked[np.repeat(first, several) + place]
    if not len(operator):
        return nothing
    pairs, _ = distinct_rows(np.repeat(row, several), operator)
    return _calls(trace, pairs[:, 0], pairs[:, 1], backward=True)


def _forward_of(trace: Trace, node: Int64) -> tuple[Int64, Int64]:
    """The nodes of a backward pass with a known forward operator, and that operator: the last one
    to begin with the node's sequence number, on a thread without such nodes."""
    operators = trace.rows.operators
    node = node[operators.sequence[node] >= 0]
    backward = np.zeros(len(trace.rows.threads), bool)
    backward[operators.thread[node]] = True
    candidate = np.flatnonzero((operators.sequence >= 0) & ~backward[operators.thread])
    if not len(node) or not len(candidate):
        return node[:0], node[:0]
    number = operators.sequence[candidate]
    order = np.lexsort((operators.start_ns[candidate], number))
    number = number[order]
    place = np.searchsorted(number, operators.sequence[node], "right") - 1
    found = (place >= 0) & (number[np.maximum(place, 0)] == operators.sequence[node])
    return node[found], candidate[order[place[found]]]


def _around(launches: JoinedLaunches, wanted: Bools) -> tuple[Int64, Int64]:
    """All pairs of rows of GPU work and the `wanted` operators around them."""
    row = np.flatnonzero(launches.operator != NONE)
    return _pairs(_outwards(launches, row, launches.operator[row], wanted))


def _recorded(trace: Trace, index: int) -> OperatorArguments:
    """Arguments by their index; -1: none."""
    return trace.rows.arguments[index] if index >= 0 else OperatorArguments()


def _calls(trace: Trace, row: Int64, operator: Int64, *, backward: bool = False) -> ModelledCalls:
    """The pairs of work and operator whose arguments determine the operator's work."""
    rows, operators, gpu = trace.rows, trace.rows.operators, trace.rows.gpu
    called = np.unique(operator)
    called = called[np.argsort(operators.start_ns[called], kind="stable")]
    distinct, which = distinct_rows(operators.name[called], operators.arguments[called])
    names = [rows.names[name] for name in distinct[:, 0].tolist()]
    found = [
        (name, operator_model(name, _recorded(trace, of), backward=backward))
        for name, of in zip(names, distinct[:, 1].tolist(), strict=True)
    ]
    models = tuple(dict.fromkeys((name, one) for name, one in found if one is not None))
    numbers: dict[tuple[str, OperatorModel | None], int] = {m: n for n, m in enumerate(models)}
    model_of = np.array([numbers.get(one, NONE) for one in found], np.int64)[which]
    called = called[model_of != NONE]
    number = np.full(len(operators.name), NONE, np.int64)
    number[called] = np.arange(len(called))
    call = number[operator]
    row, call = row[call != NONE], call[call != NONE]
    busy = busy_by_owner(call, row, gpu.start_ns, gpu.duration_ns, len(called))
    return ModelledCalls(called, model_of[model_of != NONE], models, busy, row, call)


def joined(parts: Sequence[ModelledCalls]) -> ModelledCalls:
    """The calls of all parts, in order."""
    numbers = {one: i for i, one in enumerate(dict.fromkeys(m for p in parts for m in p.models))}
    model = [np.array([numbers[m] for m in p.models], np.int64)[p.model] for p in parts]
    before = np.cumsum([0, *(len(part.operator) for part in parts)]).tolist()
    return ModelledCalls(
        np.concatenate([part.operator for part in parts]),
        np.concatenate(model),
        tuple(numbers),
        np.concatenate([part.busy_ns for part in parts]),
        np.concatenate([part.row for part in parts]),
        np.concatenate([part.call + past for part, past in zip(parts, before, strict=False)]),
    )


def performance_tables(trace: Trace, calls: ModelledCalls) -> list[Table]:
    """One table per TraceLens sheet, with one row per operator and parameters, those with the most
    time first; includes tables without rows."""
    rows, operators = trace.rows, trace.rows.operators
    count = len(calls.models)
    lists = kernel_lists(trace, calls.model[calls.call], count, row=calls.row)
    times = grouped_statistics(calls.model, calls.busy_ns / 1000, count)
    first = np.full(count, NONE, np.int64)
    first[calls.model[::-1]] = calls.operator[::-1]
    rates = speeds([model for _, model in calls.models], calls.model, calls.busy_ns)
    transposed = _transposes(trace, calls)
    found: dict[str, list[tuple[Any, ...]]] = {sheet.name: [] for sheet in PERFORMANCE_SHEETS}
    parameters = {sheet.name: _parameters(sheet) for sheet in PERFORMANCE_SHEETS}
    for place in np.lexsort((first, -times.sum)).tolist():
        name, model = calls.models[place]
        row = int(first[place])
        arguments = _recorded(trace, operators.arguments[row])
        cells = {**model.cells, "transpose": transposed.get(place)}
        found[model.sheet].append((
            name, *(cells.get(parameter) for parameter in parameters[model.sheet]),
            model.gflops, model.mebibytes, model.intensity,
            *rates[place],
            None, None, rows.threads[operators.thread[row]], model.spec,
            *lists[place],
            *(argument_text(text, as_tuple=False) for text in
              (arguments.shapes, arguments.dtypes, arguments.strides, arguments.values)),
            *(_number(value) for value in _figures(times, place)),
            int(times.count[place]), _identity(operators.external_id[row]),
        ))  # fmt: skip
    return [sheet.table(found[sheet.name]) for sheet in PERFORMANCE_SHEETS]


def _parameters(sheet: SheetKind) -> list[str]:
    prefix = "param: "
    return [c.name.removeprefix(prefix) for c in sheet.columns if c.name.startswith(prefix)]


def speeds(
    models: Sequence[OperatorModel | None], group: Int64, busy_ns: Int64
) -> list[tuple[float | None, ...]]:
    """Mean, median, std, min and max of TB/s and then of TFLOPS/s over the calls of each model;
    None where they are not known.

    Args:
        group: (calls,) index into `models`.
        busy_ns: (calls,) duration of the call's work; calls of zero duration have no speed.
    """
    result: list[tuple[float | None, ...]] = [()] * len(models)
    for amounts in (
        [model and model.bytes for model in models], [model and model.flops for model in models],
    ):  # fmt: skip
        of_group = np.array([np.nan if a is None else float(a) for a in amounts])
        known = np.flatnonzero(~np.isnan(of_group[group]) & (busy_ns > 0))
        # 10³ bytes (or FLOP) per ns are 10¹² per second.
        values = of_group[group[known]] / 1e3 / busy_ns[known]
        found = grouped_statistics(group[known], values, len(models))
        columns = (found.mean, found.median, found.std, found.min, found.max)
        for place, cells in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            result[place] += tuple(map(_number, cells))
    return result


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _identity(external_id: int) -> int | None:
    return int(external_id) if external_id > 0 else None


def gemm_calls(trace: Trace) -> ModelledCalls:
    """The calls that launched GEMM kernels of `trace` and have recorded sizes, by start."""
    rows, launches = trace.rows, trace.launches
    gpu, operators = rows.gpu, rows.operators
    links = link_gemms(trace)
    linked = (links.shape != NONE) & ~links.inferred & (links.operator != NONE)
    called, first = np.unique(links.operator[linked], return_index=True)
    shape = links.shape[linked][first]
    by_start = np.argsort(operators.start_ns[called], kind="stable")
    called, shape = called[by_start], shape[by_start]
    number = np.full(len(operators.name), NONE, np.int64)
    number[called] = np.arange(len(called))
    of_row = enclosing_among(launches.operator, launches.parent, number)
    inside = np.flatnonzero(of_row != NONE)
    busy = busy_by_owner(of_row[inside], inside, gpu.start_ns, gpu.duration_ns, len(called))
    distinct, which = distinct_rows(operators.name[called], operators.arguments[called], shape)
    found = [
        (rows.names[name], gemm_model(rows.names[name], _recorded(trace, of), links.shapes[place]))
        for name, of, place in distinct.tolist()
    ]
    numbers = {one: number for number, one in enumerate(dict.fromkeys(found))}
    models = np.array([numbers[one] for one in found], np.int64)[which]
    return ModelledCalls(called, models, tuple(numbers), busy, inside, of_row[inside])


def _transposes(trace: Trace, calls: ModelledCalls) -> dict[int, str]:
    """The parameter ``transpose``, ``(True, False)``, by model, where kernel names specify it."""
    result: dict[int, str] = {}
    chosen = trace.is_gemm[calls.row]
    row, model = calls.row[chosen], calls.model[calls.call[chosen]]
    for of, name in distinct_rows(model, trace.rows.gpu.name[row])[0].tolist():
        facts = trace.kernel_names[name]
        if facts.kind is KernelKind.GEMM and facts.layout and len(facts.layout) == 2:
            result[of] = repr(tuple(letter == "t" for letter in facts.layout))
    return result


SHORT_KERNEL_US = 10.0
"""TraceLens' own threshold of a short kernel."""


HISTOGRAM_BINS = 100
"""TraceLens' own number of parts."""


def trace_tables(
    trace: Trace, summary: Summary, *, short_kernel_us: float = SHORT_KERNEL_US
) -> list[Table]:
    """The tables of one trace except collectives; empty tables are left out.

    Args:
        summary: summary of the whole `trace`.
        short_kernel_us: kernels shorter than this are listed in the sheets of short kernels.
    """
    found: dict[str, Table] = {}
    for table in _tables(trace, summary, short_kernel_us):
        if table.rows:
            found[table.name] = table
        trace.release_pages()
    return [found[name] for name in BY_NAME if name in found]


def gemm_sheet(trace: Trace) -> Table | None:
    """The sheet ``GEMM`` alone; None without GEMMs of operators."""
    return next(iter(performance_tables(trace, gemm_calls(trace))), None)


def _tables(trace: Trace, summary: Summary, short_kernel_us: float) -> Iterator[Table]:
    """All tables, in an order that keeps memory use low."""
    yield BY_NAME["gpu_timeline"].table(_timeline(trace, summary))
    launchers = find_launchers(trace)
    yield _by_category(launchers)
    yield _by_operator(trace, launchers)
    yield _by_arguments(trace, launchers)
    yield _kernels(trace, summary, launchers)
    yield from _short_kernels(trace, summary, launchers, short_kernel_us)
    del launchers  # What follows does not need it.
    modelled = joined([gemm_calls(trace), operator_calls(trace)])
    yield _with_speeds(trace, modelled)
    yield from performance_tables(trace, joined([modelled, backward_calls(trace)]))


def _timeline(trace: Trace, summary: Summary) -> Rows:
    window = summary.window_ns
    if not window:
        return []
    exposed = trace.time_of(trace.is_copy)
    if len(exposed):
        exposed = subtract(exposed, trace.time_of(~trace.is_copy))
    times = {
        "computation_time": summary.compute_union_ns,
        "exposed_comm_time": summary.exposed_comm_ns,
        "exposed_memcpy_time": exposed.length,
        "busy_time": summary.busy_ns,
        "idle_time": summary.idle_ns,
        "total_time": window,
        "total_comm_time": summary.comm_union_ns,
        "total_memcpy_time": summary.memcpy_union_ns,
    }
    return [(name, ns / 1e6, 100 * ns / window) for name, ns in times.items()]


def _by_category(launchers: Launchers) -> Table:
    counted = launchers.counted
    used, group = np.unique(launchers.category[counted], return_inverse=True)
    words = [launchers.categories[place] for place in used.tolist()]
    times = grouped_statistics(group, launchers.direct_ns[counted], len(words))
    rows = [
        (words[place], int(times.count[place]), ns / 1e6, share, reached)
        for place, ns, share, reached in _longest_first(times)
    ]
    return BY_NAME["ops_summary_by_category"].table(rows)


def _by_operator(trace: Trace, launchers: Launchers) -> Table:
    counted = launchers.counted
    names, group = np.unique(launchers.name[counted], return_inverse=True)
    direct = grouped_statistics(group, launchers.direct_ns[counted], len(names))
    subtree = grouped_statistics(group, launchers.subtree_ns[counted], len(names))
    categories: list[list[str]] = [[] for _ in names]
    for place, word in distinct_rows(group, launchers.category[counted])[0].tolist():
        categories[place].append(launchers.categories[word])
    rows = []
    for place, own, share, reached in _longest_first(direct):
        with_called = int(subtree.sum[place])
        rows.append((
            trace.rows.names[names[place]], own / 1e3, with_called / 1e3, own / 1e6,
            with_called / 1e6, int(direct.count[place]), repr(categories[place]),
            share, reached,
        ))  # fmt: skip
    return BY_NAME["ops_summary"].table(rows)


def _by_arguments(trace: Trace, launchers: Launchers) -> Table:
    """``ops_unique_args``."""
    calls = _Arguments(trace, launchers)
    found: Rows = []
    for place, head, share, reached in calls.rows():
        # Mean, median, std, min, max and sum, of the launcher's own work and of all.
        pairs = zip(_figures(calls.direct, place), _figures(calls.subtree, place), strict=True)
        found.append((
            *head, int(calls.direct.count[place]), *(_us(ns) for pair in pairs for ns in pair),
            calls.uid(place), *calls.lists[place], share, reached,
        ))  # fmt: skip
    return BY_NAME["ops_unique_args"].table(found)


def _with_speeds(trace: Trace, modelled: ModelledCalls) -> Table:
    """``unified_perf_summary``: operators whose work is known represent everything that they
    launched."""
    calls = _Arguments(trace, find_launchers(trace, whole=is_reported))
    operators = trace.rows.operators
    names, arguments = operators.name[modelled.operator], operators.arguments[modelled.operator]
    of_call = {
        (name, argument): modelled.models[model][1]
        for name, argument, model in distinct_rows(names, arguments, modelled.model)[0].tolist()
    }
    models = [of_call.get((n, a)) for n, a, _ in calls.distinct.tolist()]
    rates = speeds(models, calls.group, calls.launchers.subtree_ns[calls.launchers.counted])
    found: Rows = []
    for place, head, share, reached in calls.rows():
        model = models[place]
        found.append((
            *head, calls.uid(place), int(calls.direct.count[place]),
            *_unified(model, rates[place], calls.subtree, calls.host, place),
            *calls.lists[place], model.params if model else None, model is not None,
            share, reached,
        ))  # fmt: skip
    return BY_NAME["unified_perf_summary"].table(found)


def _kernels(trace: Trace, summary: Summary, launchers: Launchers) -> Table:
    """``kernel_summary``."""
    rows = trace.rows
    kernel = np.flatnonzero(trace.is_kernel)
    launcher = launchers.of_row[kernel]  # -1, the last of what is appended: none
    words, codes = launchers.categories, np.append(launchers.category, NONE)
    parent = np.append(launchers.name, NONE)[launcher]
    gpu = rows.gpu
    distinct, group = distinct_rows(codes[launcher], parent, gpu.name[kernel], gpu.stream[kernel])
    times = grouped_statistics(group, gpu.duration_ns[kernel], len(distinct))
    found: Rows = []
    for place, spent, share, _ in _longest_first(times):
        category, operator, name, stream = distinct[place].tolist()
        found.append((
            words[category] if category >= 0 else None,
            rows.names[operator] if operator >= 0 else None, rows.names[name], stream,
            spent / 1e3, int(times.count[place]), _us(times.mean[place]),
            _us(times.min[place]), _us(times.max[place]), share,
            _percent(spent, summary.window_ns),
        ))  # fmt: skip
    return BY_NAME["kernel_summary"].table(found)


def _short_kernels(
    trace: Trace, summary: Summary, launchers: Launchers, threshold_us: float
) -> list[Table]:
    """``short_kernel_histogram`` and ``short_kernels_summary``."""
    rows, gpu = trace.rows, trace.rows.gpu
    short = np.flatnonzero(trace.is_kernel & (gpu.duration_ns < threshold_us * 1000))
    if not len(short):
        return []
    counts, edges = np.histogram(gpu.duration_ns[short] / 1000, bins=HISTOGRAM_BINS)
    histogram = list(zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True))
    launcher = launchers.of_row[short]
    parent = np.append(launchers.name, NONE)[launcher]
    arguments_of = np.append(launchers.arguments, NONE)[launcher]
    # Arguments without types; the last entry means none.
    entries = [*rows.arguments, OperatorArguments()]
    places: dict[tuple[str, str, str], int] = {}
    number = np.array(
        [places.setdefault((e.shapes, e.strides, e.values), len(places)) for e in entries]
    )
    texts = list(places)
    distinct, group = distinct_rows(parent, number[arguments_of], gpu.name[short])
    times = grouped_statistics(group, gpu.duration_ns[short], len(distinct))
    found: Rows = []
    for place, spent, _, _ in _longest_first(times):
        operator, arguments, name = distinct[place].tolist()
        found.append((
            rows.names[operator] if operator >= 0 else None,
            *(argument_text(text) for text in texts[arguments]),
            rows.names[name], spent / 1e3, int(times.count[place]), _us(times.mean[place]),
            _percent(spent, summary.window_ns),
        ))  # fmt: skip
    parts = {"short_kernel_histogram": histogram, "short_kernels_summary": found}
    return [BY_NAME[name].table(part) for name, part in parts.items()]


class _Arguments:
    """Launchers grouped by name, arguments and thread; one entry per group unless stated
    otherwise."""

    def __init__(self, trace: Trace, launchers: Launchers) -> None:
        self.trace, self.launchers = trace, launchers
        counted = launchers.counted
        keys = (launchers.name, launchers.arguments, launchers.thread)
        self.distinct, self.group = distinct_rows(*(key[counted] for key in keys))
        """(groups, 3) name, arguments and thread; and (calls,) the group of each call."""
        count = len(self.distinct)
        self.direct, self.subtree, self.host = (
            grouped_statistics(self.group, times[counted], count)
            for times in (launchers.direct_ns, launchers.subtree_ns, launchers.host_ns)
        )
        # The group of each GPU row; -1 for communication and rows without a known launcher.
        of_launcher = np.full(len(launchers.name) + 1, NONE, np.int64)
        of_launcher[counted] = self.group
        of_row = of_launcher[launchers.of_row]
        of_row[trace.is_communication] = NONE
        self.lists = kernel_lists(trace, of_row, count)
        self._first = np.full(count, NONE, np.int64)
        """Index in `launchers` of the first call."""
        self._first[self.group[::-1]] = counted[::-1]

    def uid(self, place: int) -> int | None:
        """External id of the first call."""
        return _identity(self.launchers.external_id[self._first[place]])

    def rows(self) -> Iterator[tuple[int, tuple[Any, ...], float | None, float]]:
        """Index, cells up to ``Concrete Inputs``, and shares of the time; those with the most
        direct time first."""
        rows, launchers = self.trace.rows, self.launchers
        for place, _, share, reached in _longest_first(self.direct):
            name, arguments, thread = self.distinct[place].tolist()
            recorded = _recorded(self.trace, arguments)
            category = launchers.categories[launchers.category[self._first[place]]]
            head = (
                rows.names[name], category, None, None, rows.threads[thread],
                *(argument_text(text) for text in
                  (recorded.shapes, recorded.dtypes, recorded.strides, recorded.values)),
            )  # fmt: skip
            yield place, head, share, reached


def _figures(found: GroupStatistics, place: int) -> list[float]:
    """Mean, median, std, min, max and sum of a group."""
    columns = (found.mean, found.median, found.std, found.min, found.max, found.sum)
    return [column[place] for column in columns]


def _unified(
    model: OperatorModel | None,
    rates: tuple[float | None, ...],
    kernels: GroupStatistics,
    host: GroupStatistics,
    place: int,
) -> tuple[Any, ...]:
    """Cells of ``unified_perf_summary`` from ``total_duration_us`` to ``Kernel Time (µs)_max``."""
    of_bytes, of_flops = rates[:5], rates[5:]
    amounts: tuple[Any, ...] = (None,) * 4
    if model is not None:
        amounts = (model.gflops, model.mebibytes, model.intensity, model.spec)
    host_us, kernel_us = (list(map(_us, _figures(found, place))) for found in (host, kernels))
    mean, median, std, low, high, total = range(6)
    return (
        host_us[total], host_us[mean], host_us[std], *amounts,
        of_bytes[0], of_bytes[2], of_flops[0], of_flops[2],
        kernel_us[mean], kernel_us[std], kernel_us[total],
        host_us[median], host_us[low], host_us[high],
        of_bytes[1], of_bytes[3], of_bytes[4], of_flops[1], of_flops[3], of_flops[4],
        kernel_us[median], kernel_us[low], kernel_us[high],
    )  # fmt: skip


def _longest_first(times: GroupStatistics) -> Iterator[tuple[int, int, float | None, float]]:
    """Index, time in ns, share of all time and the sum of shares up to here, of each group; those
    with the most time first."""
    total, reached = int(times.sum.sum()), 0.0
    for place in np.argsort(-times.sum, kind="stable").tolist():
        ns = int(times.sum[place])
        share = _percent(ns, total)
        reached += share or 0.0
        yield place, ns, share, reached


def _us(ns: float) -> float | None:
    return None if np.isnan(ns) else float(ns) / 1000


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
