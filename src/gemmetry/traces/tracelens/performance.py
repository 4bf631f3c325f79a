"""Sheets of operators grouped by what they compute, with TraceLens' columns: amounts, times and
speeds.

Times cover everything that a call launched, itself or through the operators that it called,
including helper passes, copies and fills; calls without GPU work are left out. A call within a call
of the same sheet (``aten::native_layer_norm`` in ``aten::layer_norm``) has its own row, as in
TraceLens' sheets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmetry.domain.tables import Table
from gemmetry.formats.events import Bools, Int64, OperatorArguments
from gemmetry.traces.joins import NONE, JoinedLaunches
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.gemms import busy_by_owner, distinct_rows, grouped_statistics
from gemmetry.traces.operators.models import (
    OperatorModel,
    has_backward_model,
    has_model,
    operator_model,
)
from gemmetry.traces.tracelens.cells import SheetKind, argument_text, kernel_lists
from gemmetry.traces.tracelens.sheets import PERFORMANCE_SHEETS

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
    rows, operators, parent = trace.rows, trace.rows.operators, trace.launches.parent
    nothing = _calls(trace, *np.zeros((2, 0), np.int64), backward=True)
    wanted = np.array([has_backward_model(name) for name in rows.names], bool)
    of_engine = np.array([name.startswith(_BACKWARD_NODE) for name in rows.names], bool)
    if not wanted.any() or not of_engine.any():
        return nothing
    node, at = _forward_of(trace, np.flatnonzero(of_engine[operators.name]))
    nodes, forward = [], []
    while len(node):
        is_wanted = wanted[operators.name[at]]
        nodes.append(node[is_wanted])
        forward.append(at[is_wanted])
        at = parent[at]
        inside = at != NONE
        node, at = node[inside], at[inside]
    if not nodes:
        return nothing
    by_node = np.argsort(np.concatenate(nodes), kind="stable")
    linked, of_linked = np.concatenate(nodes)[by_node], np.concatenate(forward)[by_node]
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
    at = launches.operator[row]
    rows, operators = [row[:0]], [at[:0]]
    while len(row):
        chosen = wanted[at]
        rows.append(row[chosen])
        operators.append(at[chosen])
        at = launches.parent[at]
        inside = at != NONE
        row, at = row[inside], at[inside]
    return np.concatenate(rows), np.concatenate(operators)


def _calls(trace: Trace, row: Int64, operator: Int64, *, backward: bool = False) -> ModelledCalls:
    """The pairs of work and operator whose arguments determine the operator's work."""
    rows, operators, gpu = trace.rows, trace.rows.operators, trace.rows.gpu
    called = np.unique(operator)
    called = called[np.argsort(operators.start_ns[called], kind="stable")]
    distinct, which = distinct_rows(operators.name[called], operators.arguments[called])
    numbers: dict[tuple[str, OperatorModel], int] = {}
    model_of = np.full(len(distinct), NONE, np.int64)
    for place, (name, arguments) in enumerate(distinct.tolist()):
        recorded = rows.arguments[arguments] if arguments >= 0 else OperatorArguments()
        model = operator_model(rows.names[name], recorded, backward=backward)
        if model is not None:
            model_of[place] = numbers.setdefault((rows.names[name], model), len(numbers))
    model_of = model_of[which]
    called = called[model_of != NONE]
    number = np.full(len(operators.name), NONE, np.int64)
    number[called] = np.arange(len(called))
    call = number[operator]
    row, call = row[call != NONE], call[call != NONE]
    busy = busy_by_owner(call, row, gpu.start_ns, gpu.duration_ns, len(called))
    return ModelledCalls(called, model_of[model_of != NONE], tuple(numbers), busy, row, call)


def joined(parts: Sequence[ModelledCalls]) -> ModelledCalls:
    """The calls of all parts, in order."""
    numbers: dict[tuple[str, OperatorModel], int] = {}
    models, calls, before = [], [], 0
    for part in parts:
        number = [numbers.setdefault(model, len(numbers)) for model in part.models]
        models.append(np.array(number, np.int64)[part.model])
        calls.append(part.call + before)
        before += len(part.operator)
    return ModelledCalls(
        np.concatenate([part.operator for part in parts]),
        np.concatenate(models),
        tuple(numbers),
        np.concatenate([part.busy_ns for part in parts]),
        np.concatenate([part.row for part in parts]),
        np.concatenate(calls),
    )


def performance_tables(
    trace: Trace, calls: ModelledCalls, more: Mapping[int, Mapping[str, Any]] | None = None
) -> list[Table]:
    """One table per TraceLens sheet, with one row per operator and parameters, those with the most
    time first; includes tables without rows.

    Args:
        more: further parameters by model.
    """
    rows, operators = trace.rows, trace.rows.operators
    count = len(calls.models)
    lists = kernel_lists(trace, calls.model[calls.call], count, row=calls.row)
    times = grouped_statistics(calls.model, calls.busy_ns / 1000, count)
    first = np.full(count, NONE, np.int64)
    first[calls.model[::-1]] = calls.operator[::-1]
    rates = speeds([model for _, model in calls.models], calls.model, calls.busy_ns)
    found: dict[str, list[tuple[Any, ...]]] = {sheet.name: [] for sheet in PERFORMANCE_SHEETS}
    parameters = {sheet.name: _parameters(sheet) for sheet in PERFORMANCE_SHEETS}
    for place in np.lexsort((first, -times.sum)).tolist():
        name, model = calls.models[place]
        row = int(first[place])
        index = operators.arguments[row]
        arguments = rows.arguments[index] if index >= 0 else OperatorArguments()
        cells = {**model.cells, **(more or {}).get(place, {})}
        found[model.sheet].append((
            name, *(cells.get(parameter) for parameter in parameters[model.sheet]),
            model.gflops, model.mebibytes, model.intensity,
            *rates[place],
            None, None, rows.threads[operators.thread[row]], model.spec,
            *lists[place],
            *(argument_text(text, as_tuple=False) for text in
              (arguments.shapes, arguments.dtypes, arguments.strides, arguments.values)),
            *(_number(getattr(times, a)[place])
              for a in ("mean", "median", "std", "min", "max", "sum")),
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
