"""Derives the collectives of one trace from its communication kernels: operation, group, sizes and
times.

The properties of a kernel come, in this order, from its own arguments, from the operators around
its launch (``record_param_comms``, ``nccl:...``, ``c10d::...``), and from its name. Anything that
none of them specifies stays None.

Sizes of messages and bandwidths are those of nccl-tests: ``algbw`` = S / t and ``busbw`` = algbw ·
factor, in 10⁹ bytes/s. S is the size of the whole message: the output of every rank in an
all-gather, the input of every rank in a reduce-scatter, the whole buffer of one rank in an
all-to-all. Sources: NVIDIA/nccl-tests a0b82b2, ``doc/PERFORMANCE.md`` and the ``...GetBw``
functions of ``src/*.cu``; for all-to-alls with unequal parts facebookresearch/param 1e115ff,
``et_replay/comm/profiler_trace_analysis.py``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from gemmetry.domain.rows import Row, derived, fact
from gemmetry.formats.events import MOST_ELEMENTS, MOST_RANKS, CollectiveCall, TraceRows
from gemmetry.hardware.devices import find_device
from gemmetry.traces.joins import NONE, input_tensors
from gemmetry.traces.model import Trace
from gemmetry.traces.names import KernelName

_PER_RANK_SHARE = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


_ONCE = ("broadcast", "reduce", "send", "recv", "send_recv")


_SPELLINGS: dict[str, tuple[int, str]] = {
    "Byte": (1, "unsigned char;uint8;u8"),
    "Char": (1, "signed char;char;int8;s8"),
    "Short": (2, "short;short int;int16;s16"),
    "Int": (4, "int;int32;s32"),
    "Long": (8, "long;long int;long long;int64;s64"),
    "UInt16": (2, "unsigned short;uint16;u16"),
    "UInt32": (4, "unsigned int;uint32;u32"),
    "UInt64": (8, "unsigned long;uint64;u64"),
    "Half": (2, "half;float16;f16"),
    "Float": (4, "float;float32;f32;tf32"),
    "Double": (8, "double;float64;f64"),
    "BFloat16": (2, "bfloat16;bf16"),
    "ComplexHalf": (4, "complex<half>;complex<c10::half>;complex32"),
    "ComplexFloat": (8, "complex<float>;complex64;c64"),
    "ComplexDouble": (16, "complex<double>;complex128;c128"),
    "QInt32": (4, "qint32"),
    "Bits16": (2, "bits16"),
    "Float8_e5m2": (1, "e5m2"),
    "Float8_e4m3fn": (1, "e4m3"),
    "Float8_e5m2fnuz": (1, "e5m2fnuz"),
    "Float8_e4m3fnuz": (1, "e4m3fnuz"),
    "Float8_e8m0fnu": (1, "e8m0"),
    "Float4_e2m1fn_x2": (1, "e2m1"),
} | {
    name: (1, name.lower())
    for name in ("Bool", "QInt8", "QUInt8", "QUInt4x2", "QUInt2x4", "Bits1x8", "Bits2x4",
                 "Bits4x2", "Bits8")
}  # fmt: skip
"""PyTorch's name of an element type (``c10/core/ScalarType.h``) -> bytes and further spellings:
C++ types, as in "Input type", and the names of ``domain/operation.py``."""


ELEMENT_BYTES: dict[str, int] = {name: size for name, (size, _) in _SPELLINGS.items()}


_NAMES: dict[str, str] = {
    spelling: name
    for name, (_, others) in _SPELLINGS.items()
    for spelling in (name.lower(), *others.split(";"))
}


def element_type(spelling: str | None) -> str | None:
    """PyTorch's name of an element type in any spelling; unknown names are returned unchanged, None
    and "" as None."""
    return _NAMES.get(spelling.removeprefix("c10::").lower(), spelling) if spelling else None


def message_elements(
    op: str | None, in_elements: int | None, out_elements: int | None, group_size: int | None
) -> int | None:
    """Elements of the whole message S, from one rank's input and output.

    It is the output of an all-gather or gather, the input of a reduce-scatter or scatter, the
    larger of both otherwise. Where a trace records only one rank's part, the group's size completes
    it; None where that is missing too.
    """
    if op in ("all_gather", "gather"):
        whole, part = out_elements, in_elements
    elif op in ("reduce_scatter", "scatter"):
        whole, part = in_elements, out_elements
    else:
        recorded = [count for count in (in_elements, out_elements) if count is not None]
        return max(recorded) if recorded and op else None
    if whole is not None and whole >= (part or 0):
        return whole
    return part * group_size if part is not None and group_size else None


def message_bytes(one: Any) -> int | None:
    """Size of the whole message of a collective."""
    size = ELEMENT_BYTES.get(one.dtype or "")
    return None if size is None or one.elements is None else one.elements * size


def bus_factor(op: str | None, group_size: int | None) -> float | None:
    """The factor from algbw to busbw; None where the operation or the group size is not known.

    all_reduce 2(n-1)/n; all_gather, reduce_scatter, all_to_all, gather, scatter (n-1)/n;
    broadcast, reduce, send and receive 1 (nccl-tests, see above).
    """
    if op in _ONCE:
        return 1.0
    times = 2 if op == "all_reduce" else int(op in _PER_RANK_SHARE)
    return times * (group_size - 1) / group_size if times and group_size else None


def exchanged_elements(
    elements: int, splits: Sequence[int], index: int | None, group_size: int
) -> float:
    """Number of a rank's `elements` in an all-to-all that belong to other ranks.

    Args:
        splits: sizes of the parts by rank of the group; () means equal parts.
        index: index of the rank in its group; None if not known (an equal part is subtracted).
    """
    if len(splits) == group_size and index is not None:
        return elements - splits[index]
    return elements * (group_size - 1) / group_size


def gigabytes_per_second(size: float | None, duration_ns: int) -> float | None:
    """10⁹ bytes/s, which is bytes/ns; None without a size or a duration."""
    return None if not size or duration_ns <= 0 else size / duration_ns


POINT_TO_POINT = ("send", "recv")


SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations whose result on each rank depends on data of all ranks, so that none ends before all
have begun. (An all-to-all may have empty parts.)"""


# PyTorch's barrier is an all-reduce of one element.
_OPERATION = re.compile(
    r"(?P<reduce_scatter>reduce_?scatter)|(?P<all_reduce>all_?reduce|barrier)"
    r"|(?P<all_gather>all_?gather)|(?P<all_to_all>all_?to_?all)|(?P<broadcast>broadcast)"
    r"|(?P<reduce>reduce)|(?P<gather>gather)|(?P<scatter>scatter)|(?P<send_recv>send_?recv)"
    r"|(?P<send>send)|(?P<recv>recv)",
    re.IGNORECASE,
)


_HEAD = 256
"""Number of characters of a kernel's name that are searched for NCCL's words."""


_OUT_FIRST = re.compile(r"c10d::(?:_?all_?gather_base|allgather_into_tensor|_?reduce_scatter_base"
                        r"|reduce_scatter_tensor|alltoall_base)")  # fmt: skip
"""Operators whose first argument is the output and whose second is the input (PyTorch,
``torch/csrc/distributed/c10d/Ops.cpp``)."""


_CATCH_ALL = re.compile(r"nccl(?P<newer>Dev)?Kernel(?:Debug)?_")
"""NCCL's own kernels. The name is that of the one function that is compiled into the kernel; the
kernel runs the others by a table. Up to 2.17 there is one for each algorithm, named LL for all
protocols; since then one named RING (or TREE) and LL for all other than trees. Source: NVIDIA/nccl
v2.17.1 ``src/collectives/device/common.h`` (IMPL_COLL4), 5067397 ``src/device/generate.py``
(best_kernel). On 4x H200 ``..._AllGather_RING_LL`` reaches a bus bandwidth of 310 GB/s, for which
LL, half of whose bytes are flags, would need more than NVLink's 450."""


_OF_PYTORCH = ("record_param_comms", "nccl:", "c10d::")


_WORDS = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter"}
"""PyTorch's names of operations, where they differ."""


SizeSource: TypeAlias = tuple[str, int]
"""The source of a collective's sizes: a call by its number, or the row of an operator."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group, as far as the trace records it."""

    name: str | None = None
    ranks: tuple[int, ...] = ()
    size: int | None = None


class Collective(Row):
    """One communication kernel; fields are None where the trace does not record them."""

    row: int
    """Row in ``TraceRows.gpu``."""
    operation: str | None = None
    """The operation as the kernel records it: ``_allgather_base``."""
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    group: Group | None
    is_shared: bool = False
    """Several kernels came from the same operator, so its sizes are those of all of them
    together."""
    link_gbps: float | None = None
    """10⁹ bytes/s in one direction of all links of its GPU to the others of a node; None where the
    product is not known or has none."""

    op: str | None = fact("operation")
    """Named as in nccl-tests: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``,
    ``broadcast``, ``reduce``, ``gather``, ``scatter``; and ``send``, ``recv``, ``send_recv`` (a
    kernel that does both)."""
    elements: int | None = fact("elements of the message")
    dtype: str | None = fact("element type, as PyTorch names it")

    bytes = derived("size of the message", "B")(message_bytes)
    group_name = derived("name of the process group", key="group", type=str | None)(
        lambda one: one.group and one.group.name
    )
    start_ns: int = fact("start, as recorded", "ns")
    """Start, in ns since 1970 where the trace records the origin of its times."""
    duration_ns: int = fact("duration with the wait for others", "ns")
    group_size = derived("ranks of the group", type=int | None)(
        lambda one: one.group and one.group.size
    )
    group_inferred: bool = fact("whether the group is that of the stream", default=False)
    in_elements: int | None = fact("elements that the rank contributes")
    out_elements: int | None = fact("elements that the rank receives")
    peer: int | None = fact("the other rank of a send or receive", default=None)
    sequence: int | None = fact("number of the collective in its group", default=None)
    algorithm: str | None = fact("algorithm in the kernel's name")
    """Set only where the name is unambiguous (:data:`_CATCH_ALL`)."""
    protocol: str | None = fact("protocol in the kernel's name")
    source: str = fact("source of the collective's properties")
    """``kernel``, ``operator`` or ``name``."""
    name: str = fact("name of the kernel", key="kernel")
    stream: int = fact("stream of the kernel")
    device: int = fact("device of the kernel")

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns

    @property
    def element_bytes(self) -> int | None:
        """Bytes of one element; None where the type is not known."""
        return ELEMENT_BYTES.get(self.dtype or "")

    @property
    def written(self) -> str | None:
        """The operation as the trace names it, else as PyTorch would; None if it is not known."""
        return self.operation or (_WORDS.get(self.op, self.op) if self.op else None)


def operation_name(text: str | None) -> str | None:
    """nccl-tests' name for an operation in any spelling (``_allgather_base``, ``nccl:all_to_all``,
    ``reduce_scatter_tensor_coalesced`` ...); None for other texts."""
    found = _OPERATION.search(text or "")
    return found.lastgroup if found else None


def collectives_of(trace: Trace) -> list[Collective]:
    """The communication kernels of one trace, by start."""
    gpu = trace.rows.gpu
    chosen = np.flatnonzero(trace.is_communication)
    chosen = chosen[np.argsort(gpu.start_ns[chosen], kind="stable")]
    found = [_collective(trace, row) for row in chosen.tolist()]
    # Several kernels of one operator share its sizes.
    counts = Counter(source for _, source in found if source is not None)
    return _with_groups([
        replace(one, is_shared=True) if source is not None and counts[source] > 1 else one
        for one, source in found
    ])  # fmt: skip


def _collective(trace: Trace, row: int) -> tuple[Collective, SizeSource | None]:
    rows, gpu = trace.rows, trace.rows.gpu
    name = trace.kernel_names[int(gpu.name[row])]
    call, source, size_source = _metadata(trace, row)
    operation = call.operation if source == "kernel" else None
    op = operation_name(call.operation)
    if op is None:
        op, source = name.collective, "name"
    size = _natural(call.group_size, MOST_RANKS) or len(call.group_ranks) or None
    ins, outs = _natural(call.in_elements), _natural(call.out_elements)
    algorithm, protocol = _algorithm(rows.names[gpu.name[row]], name)
    group = Group(call.group_name, call.group_ranks, size)
    found = Collective(
        row=row,
        operation=operation,
        op=op,
        dtype=element_type(call.dtype or name.dtype),
        elements=message_elements(op, ins, outs, size),
        in_elements=ins,
        out_elements=outs,
        in_splits=call.in_splits,
        out_splits=call.out_splits,
        group=None if group == Group() else group,
        peer=call.peer if op in ("send", "recv") else None,
        sequence=call.sequence,
        algorithm=algorithm,
        protocol=protocol,
        source=source,
        name=name.short,
        stream=int(gpu.stream[row]),
        device=int(gpu.device[row]),
        link_gbps=link_gbps(trace.device_name(int(gpu.device[row]))),
        start_ns=rows.base_ns + int(gpu.start_ns[row]),
        duration_ns=int(gpu.duration_ns[row]),
    )
    return found, size_source


@cache
def link_gbps(product: str) -> float | None:
    """The links of a GPU, as :attr:`Collective.link_gbps`, by its product name."""
    spec = find_device(product)
    return None if spec is None or spec.link_bytes_per_s is None else spec.link_bytes_per_s / 1e9


def _natural(value: int | None, most: int = MOST_ELEMENTS) -> int | None:
    """The count; None where it is negative or exceeds any memory, which is damage."""
    return value if value is not None and 0 <= value <= most else None


def _algorithm(kernel: str, name: KernelName) -> tuple[str | None, str | None]:
    """Algorithm and protocol, where a kernel's name is unambiguous."""
    found = _CATCH_ALL.search(kernel[:_HEAD])
    if not found or name.algorithm == "symmetric":
        return name.algorithm, name.protocol
    # NCCL has no other algorithm for broadcasts and reduces.
    is_sure = name.algorithm == "tree" or name.collective in ("broadcast", "reduce")
    return (name.algorithm if is_sure or not found["newer"] else None), None


def _metadata(trace: Trace, row: int) -> tuple[CollectiveCall, str, SizeSource | None]:
    """The metadata of a collective from its kernel or operators, their source, and the source of
    the sizes."""
    own = int(trace.rows.gpu.collective[row])
    if own >= 0:
        number = int(trace.rows.gpu.external_id[row])
        return trace.rows.collectives[own], "kernel", ("call", number) if number > 0 else None
    call = CollectiveCall()
    size_source: SizeSource | None = None
    for operator in _around(trace, row):
        known = int(trace.rows.operators.collective[operator])
        if known >= 0:
            return trace.rows.collectives[known], "operator", ("operator", operator)
        call = _joined(call, _from_arguments(trace.rows, operator))
        size_source = size_source or ("operator", operator)
    return call, "operator", size_source


def _around(trace: Trace, row: int) -> Iterator[int]:
    """Operators around the launch of a row that relate to communication, innermost first."""
    launches = trace.launches
    operator = int(launches.operator[row])
    while operator != NONE:
        name = trace.rows.names[trace.rows.operators.name[operator]]
        if not name.startswith(_OF_PYTORCH) and operation_name(name) is None:
            return
        yield operator
        operator = int(launches.parent[operator])


def _from_arguments(rows: TraceRows, operator: int) -> CollectiveCall:
    """Metadata from the name and tensors of an operator without collective metadata (PyTorch up to
    2.0, and collectives of inference engines)."""
    name = rows.names[rows.operators.name[operator]]
    index = int(rows.operators.arguments[operator])
    places = input_tensors(rows.arguments[index]) if index >= 0 else []
    operation = None if name == "record_param_comms" else name
    outs, ins = [], next((place for place in places if place), [])
    if _OUT_FIRST.match(name):
        outs, ins = [*places, [], []][:2]
    elif name.startswith("nccl:"):
        ins = [tensor for place in places for tensor in place]
    outputs, inputs = (sum(t.elements for t in ones) if ones else None for ones in (outs, ins))
    dtype = next((tensor.dtype for tensor in (*outs, *ins)), None)
    return CollectiveCall(
        operation=operation, dtype=dtype, in_elements=inputs, out_elements=outputs
    )


def _joined(first: CollectiveCall, second: CollectiveCall) -> CollectiveCall:
    """`first`, completed from `second`."""
    known = {name: value for one in (second, first) for name in _COMPLETED
             if (value := getattr(one, name)) not in (None, "")}  # fmt: skip
    return CollectiveCall(**known)


_COMPLETED = ("operation", "dtype", "in_elements", "out_elements")


def _with_groups(found: list[Collective]) -> list[Collective]:
    """Assign kernels without a group that of their stream, or of the whole trace, where all
    recorded groups are the same."""
    by_stream: dict[int, set[Group]] = defaultdict(set)
    for one in found:
        if one.group is not None:
            by_stream[one.stream].add(one.group)
    everywhere = set().union(*by_stream.values())
    for place, one in enumerate(found):
        groups = by_stream.get(one.stream, everywhere)
        if one.group is None and len(groups) == 1:
            (group,) = groups
            elements = message_elements(one.op, one.in_elements, one.out_elements, group.size)
            found[place] = replace(one, group=group, group_inferred=True, elements=elements)
    return found
