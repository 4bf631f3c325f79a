"""Operators and runtime calls that launched GPU work, and the time of that work."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmetry.formats.events import Bools, Int32, Int64
from gemmetry.kernel_names import GEMM_KINDS
from gemmetry.traces.gemms.joins import NONE
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.gemms import is_gemm_operator
from gemmetry.traces.operators.grouped import Integers, busy_by_owner, distinct_rows

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
    """Whether it launched anything other than communication."""
    direct_ns: Int64
    """Union of the work that it launched itself, without communication."""
    subtree_ns: Int64
    """Union of all work launched by it and by the operators called from it."""


def find_launchers(trace: Trace, *, whole: Callable[[str], bool] | None = None) -> Launchers:
    """The launchers of `trace`, in no particular order.

    Args:
        whole: whether the operator with a given name represents everything launched within it.
    """
    keys, of_row = _numbered(trace, whole)
    trace.let_go()
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
        subtree_ns=_subtrees(trace, keys, of_row, count),
    )
    trace.let_go()
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
    """From each of `operator` outwards to the last one that is `whole`; itself where none is."""
    parent, names = trace.launches.parent, trace.rows.operators.name
    is_whole = np.array([whole(name) for name in trace.rows.names], bool)
    result = operator.copy()
    row = np.flatnonzero(operator != NONE)
    at = operator[row]
    while len(row):
        found = is_whole[names[at]]
        result[row[found]] = at[found]
        at = parent[at]
        inside = at != NONE
        row, at = row[inside], at[inside]
    return result


def enclosing_operator(operator: Int64, parent: Int64, chosen: Int64) -> Int64:
    """From each of `operator` outwards, itself first, to one whose number in `chosen` is not -1; -1
    where there is none."""
    at = operator.copy()
    waiting = np.flatnonzero(at != NONE)
    while len(waiting):
        waiting = waiting[chosen[at[waiting]] == NONE]
        at[waiting] = parent[at[waiting]]
        waiting = waiting[at[waiting] != NONE]
    return at


def enclosing_among(operator: Int64, parent: Int64, chosen: Int64) -> Int64:
    """The numbers in `chosen` of :func:`enclosing_operator`.

    Args:
        chosen: (operators,) a number for chosen operators, -1 for the others.

    Returns:
        The numbers; -1 where no enclosing operator is chosen.
    """
    at = enclosing_operator(operator, parent, chosen)
    result = np.full(len(at), NONE, np.int64)
    found = at != NONE
    result[found] = chosen[at[found]]
    return result


def _subtrees(trace: Trace, keys: Int64, of_row: Int64, count: int) -> Int64:
    owner, row = _members(trace, keys, of_row)
    return busy_by_owner(owner, row, trace.rows.gpu.start_ns, trace.rows.gpu.duration_ns, count)


def _members(trace: Trace, keys: Int64, of_row: Int64) -> tuple[Int32, Int32]:
    """Pairs of launchers and the rows launched by them or by operators called from them."""
    launches = trace.launches
    width = len(trace.rows.operators.name)
    number = np.full(width, NONE, np.int32)
    is_operator = keys < width
    number[keys[is_operator]] = np.flatnonzero(is_operator)
    row = np.flatnonzero(of_row != NONE).astype(np.int32)
    owners, members = [of_row[row].astype(np.int32)], [row]
    row = np.flatnonzero(launches.operator != NONE).astype(np.int32)
    at = launches.parent[launches.operator[row]] if len(row) else row
    while len(at):
        inside = at != NONE
        row, at = row[inside], at[inside]
        is_launcher = number[at] != NONE
        owners.append(number[at[is_launcher]])
        members.append(row[is_launcher])
        at = launches.parent[at]
    return np.concatenate(owners), np.concatenate(members)


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
_BY_KERNEL = (("multi_tensor_apply", "multi_tensor_apply"), ("elementwise", "elementwise"),
              ("reduce", "reduce"))  # fmt: skip


def operator_category(operator: str, kernel: str, *, kernel_is_gemm: bool = False) -> str:
    """What an operator does, in the words of TraceLens' ``op category``.

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
        for word, category in _BY_KERNEL:
            if word in kernel[:200]:
                return category
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
