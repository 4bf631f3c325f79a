"""Operators and runtime calls that launched work on a GPU, and how long that work took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gemmetry.formats.events import Int64
from gemmetry.kernel_names import GEMM_KINDS
from gemmetry.traces.gemm_operators import is_gemm_operator
from gemmetry.traces.grouped import busy_by_owner
from gemmetry.traces.joins import NONE
from gemmetry.traces.model import Trace

Integers: TypeAlias = npt.NDArray[np.integer[Any]]

Bools = npt.NDArray[np.bool_]

RUNTIME, GRAPH = "runtime", "graph"
"""Categories of launches around which no operator is known."""


@dataclass(frozen=True, slots=True)
class Launchers:
    """What launched the work of one trace: innermost operators, else runtime calls.

    Arrays have one entry a launcher unless they say otherwise.
    """

    of_row: Int64
    """(rows of ``TraceRows.gpu``,) the launcher of each; -1: not in the file."""
    name: Int64
    """Index into ``TraceRows.names``."""
    thread: Int64
    arguments: Int64
    """Index into ``TraceRows.arguments``; -1: none."""
    external_id: Int64
    host_ns: Int64
    """How long the operator or call took on the host."""
    category: tuple[str, ...]
    computes: Bools
    """It launched something that is no communication."""
    direct_ns: Int64
    """Union of what it launched itself, communication aside."""
    subtree_ns: Int64
    """Union of all that it and operators called from it launched."""


def find_launchers(trace: Trace) -> Launchers:
    """The launchers of `trace`, in no particular order."""
    rows, launches = trace.rows, trace.launches
    gpu, operators = rows.gpu, rows.operators
    width = len(operators.name)
    operator_of = _past_marks(trace)
    has_operator = operator_of != NONE
    key = np.where(has_operator, operator_of, launches.call + width)
    key[~has_operator & (launches.call == NONE)] = NONE
    known = np.flatnonzero(key != NONE)
    keys, which = np.unique(key[known], return_inverse=True)
    count = len(keys)
    of_row = np.full(len(key), NONE, np.int64)
    of_row[known] = which
    is_operator = keys < width
    operator, call = keys[is_operator], keys[~is_operator] - width

    def column(of_operators: Integers, of_calls: Integers) -> Int64:
        result = np.empty(count, np.int64)
        result[is_operator] = of_operators[operator]
        result[~is_operator] = of_calls[call]
        return result

    calls = rows.calls
    name = column(operators.name, calls.name)
    counted = known[~trace.is_communication[known]]
    direct = busy_by_owner(of_row[counted], gpu.start_ns[counted], gpu.duration_ns[counted], count)
    return Launchers(
        of_row=of_row,
        name=name,
        thread=column(operators.thread, calls.thread),
        arguments=column(operators.arguments, np.full(len(calls.name), NONE, np.int64)),
        external_id=column(operators.external_id, calls.external_id),
        host_ns=column(operators.duration_ns, calls.duration_ns),
        category=_categories(trace, of_row, name, is_operator),
        computes=np.bincount(of_row[counted], minlength=count) > 0,
        direct_ns=direct,
        subtree_ns=_subtrees(trace, keys, of_row, count),
    )


def _past_marks(trace: Trace) -> Int64:
    """The innermost operator around each row; marks within an operator (``nccl:all_reduce`` in
    ``record_param_comms``) are passed over."""
    rows, launches = trace.rows, trace.launches
    is_mark = np.array([name == "execute" or name.startswith("nccl:") for name in rows.names], bool)
    number = np.arange(len(rows.operators.name))
    if len(number):
        number[is_mark[rows.operators.name]] = NONE
    outer = enclosing_among(launches.operator, launches.parent, number)
    return np.where(outer == NONE, launches.operator, outer)


def enclosing_among(operator: Int64, parent: Int64, chosen: Int64) -> Int64:
    """From each of `operator` outwards, itself first, to one that is `chosen`.

    Args:
        chosen: (operators,) a number for those that are, -1 for the others.

    Returns:
        The numbers; -1 where none is around.
    """
    at = operator.copy()
    waiting = np.flatnonzero(at != NONE)
    while len(waiting):
        waiting = waiting[chosen[at[waiting]] == NONE]
        at[waiting] = parent[at[waiting]]
        waiting = waiting[at[waiting] != NONE]
    result = np.full(len(at), NONE, np.int64)
    found = at != NONE
    result[found] = chosen[at[found]]
    return result


def _subtrees(trace: Trace, keys: Int64, of_row: Int64, count: int) -> Int64:
    gpu, launches = trace.rows.gpu, trace.launches
    width = len(trace.rows.operators.name)
    number = np.full(width, NONE, np.int64)
    is_operator = keys < width
    number[keys[is_operator]] = np.flatnonzero(is_operator)
    row = np.flatnonzero(of_row != NONE)
    owners, members = [of_row[row]], [row]
    row = np.flatnonzero(launches.operator != NONE)
    at = launches.parent[launches.operator[row]] if len(row) else row
    while len(at):
        inside = at != NONE
        row, at = row[inside], at[inside]
        is_launcher = number[at] != NONE
        owners.append(number[at[is_launcher]])
        members.append(row[is_launcher])
        at = launches.parent[at]
    member = np.concatenate(members)
    return busy_by_owner(
        np.concatenate(owners), gpu.start_ns[member], gpu.duration_ns[member], count
    )


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
_BY_KERNEL = (("multi_tensor_apply", "multi_tensor_apply"), ("elementwise", "elementwise"),
              ("reduce", "reduce"))  # fmt: skip


def operator_category(operator: str, kernel: str, *, kernel_is_gemm: bool = False) -> str:
    """What an operator does, in the words of TraceLens' ``op category``.

    Args:
        kernel: name of the first kernel that it launched; decides where the operator's name does
            not.
    """
    if is_gemm_operator(operator):
        return "GEMM"
    for pattern, category in _BY_OPERATOR:
        if pattern.search(operator):
            return category
    if kernel.startswith("void at::native"):
        for word, category in _BY_KERNEL:
            if word in kernel[:200]:
                return category
    return "GEMM" if kernel_is_gemm else "other"


def _categories(trace: Trace, of_row: Int64, name: Int64, is_operator: Bools) -> tuple[str, ...]:
    rows = trace.rows
    first_kernel = np.full(len(name), NONE, np.int64)
    known = np.flatnonzero((of_row != NONE) & trace.is_kernel)
    # Written last is what stays: the earliest kernel of each launcher.
    backwards = known[np.argsort(-rows.gpu.start_ns[known], kind="stable")]
    first_kernel[of_row[backwards]] = rows.gpu.name[backwards]
    pairs, which = np.unique(np.column_stack([name, first_kernel]), axis=0, return_inverse=True)
    words = []
    for operator, kernel in pairs.tolist():
        told = trace.kernel_names.get(kernel)
        text = rows.names[kernel] if kernel != NONE else ""
        is_gemm = told is not None and told.kind in GEMM_KINDS
        words.append(operator_category(rows.names[operator], text, kernel_is_gemm=is_gemm))
    found = [words[place] for place in which.reshape(-1).tolist()]
    graphs = {i for i, text in enumerate(rows.names) if "graphlaunch" in text.lower()}
    for place in np.flatnonzero(~is_operator).tolist():
        found[place] = GRAPH if int(name[place]) in graphs else RUNTIME
    return tuple(found)
