"""Typed events of a Kineto trace, with the keys that the tables use, from PyTorch 1.8 on.

Numbers whose type varies are accepted as any type and converted by :func:`whole`; arrays stay JSON
text until they are needed.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeAlias

import msgspec

from gemmetry.formats.events import MISSING, MOST_RANKS, CollectiveCall, OperatorArguments

NOTHING = msgspec.Raw(b"")
NO_ARGS = msgspec.Raw(b"{}")

Number: TypeAlias = int | float | str | bool | None


class Event(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``."""

    ph: str = ""
    cat: str | None = ""
    name: str | int | float | None = ""
    ts: msgspec.Raw = NOTHING
    dur: msgspec.Raw = NOTHING
    pid: msgspec.Raw = NOTHING
    tid: msgspec.Raw = NOTHING
    args: msgspec.Raw = NO_ARGS


class CallArgs(msgspec.Struct, gc=False):
    """Arguments of runtime and driver calls."""

    external: Number = msgspec.field(default=None, name="External id")
    external_2021: Number = msgspec.field(default=None, name="external id")
    correlation: Number = None
    grid: Any = None
    """Arguments of HIP launches."""
    block: Any = None


class _CollectiveArguments(msgspec.Struct, gc=False):
    operation: Number = msgspec.field(default=None, name="Collective name")
    element_type: Number = msgspec.field(default=None, name="dtype")
    in_elements: Number = msgspec.field(default=None, name="In msg nelems")
    out_elements: Number = msgspec.field(default=None, name="Out msg nelems")
    group_size: Number = msgspec.field(default=None, name="Group size")
    group_name: Number = msgspec.field(default=None, name="Process Group Name")
    group_ranks: msgspec.Raw = msgspec.field(default=NOTHING, name="Process Group Ranks")
    in_splits: msgspec.Raw = msgspec.field(default=NOTHING, name="In split size")
    out_splits: msgspec.Raw = msgspec.field(default=NOTHING, name="Out split size")
    destination: Number = msgspec.field(default=None, name="Dst Rank")
    source: Number = msgspec.field(default=None, name="Src Rank")
    number: Number = msgspec.field(default=None, name="Seq")

    def collective_key(self) -> tuple[object, ...]:
        """A key that is equal for events with the same information about their collectives."""
        lists = (bytes(self.group_ranks), bytes(self.in_splits), bytes(self.out_splits))
        return (
            self.operation, self.element_type, self.in_elements, self.out_elements,
            self.group_size, self.group_name, *lists, self.destination, self.source, self.number,
        )  # fmt: skip

    def collective(self) -> CollectiveCall:
        """The event's information about a collective."""
        peer = self.destination if self.destination is not None else self.source
        return CollectiveCall(
            operation=str(self.operation),
            dtype=None if self.element_type is None else str(self.element_type),
            in_elements=_known(self.in_elements),
            out_elements=_known(self.out_elements),
            group_size=_known(self.group_size),
            group_name=None if self.group_name is None else str(self.group_name),
            group_ranks=ranks_of(self.group_ranks, whole(self.group_size)),
            in_splits=integers(self.in_splits),
            out_splits=integers(self.out_splits),
            peer=_known(peer),
            sequence=_known(self.number),
        )


class GpuArgs(_CollectiveArguments, gc=False):
    """Arguments of kernels, copies and fills."""

    external: Number = msgspec.field(default=None, name="External id")
    external_2021: Number = msgspec.field(default=None, name="external id")
    correlation: Number = None
    device: Number = None
    stream: Number = None
    grid: Any = None
    block: Any = None
    bytes: Number = None
    graph: Number = msgspec.field(default=None, name="graph id")


class OperatorArgs(_CollectiveArguments, gc=False):
    """Arguments of operators."""

    external: Number = msgspec.field(default=None, name="External id")
    sequence: Number = msgspec.field(default=None, name="Sequence number")
    forward_thread: Number = msgspec.field(default=None, name="Fwd thread id")
    shapes: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    dtypes: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Strides")
    values: msgspec.Raw = msgspec.field(default=NOTHING, name="Concrete Inputs")


def operator_arguments(raws: tuple[bytes, bytes, bytes, bytes]) -> OperatorArguments:
    """The arguments, from the JSON texts of shapes, dtypes, strides and values."""
    return OperatorArguments(*(raw.decode("utf-8", "replace") for raw in raws))


def external_id(args: CallArgs | GpuArgs) -> int:
    """External id of the operator that was running at the launch."""
    return whole(args.external if args.external is not None else args.external_2021)


def whole(value: Number) -> int:
    """`value` as a 64-bit integer; ``MISSING`` where it is not one."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else MISSING
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(?:stream\s+)?(-?\d{1,18})\s*", value)
        return int(match[1]) if match else MISSING
    if isinstance(value, float) and math.isfinite(value) and abs(value) < 2**53:
        return int(value)
    return MISSING


def integers(raw: msgspec.Raw) -> tuple[int, ...]:
    """The integers of a JSON array, or of a string that contains one, as both occur; () otherwise,
    and for abbreviated lists of ranks such as ``[0, 1, ..., 7]``, which are ambiguous."""
    text = bytes(raw).strip().strip(b'"')
    if not re.fullmatch(rb"\[\s*(?:-?\d{1,18}\s*(?:,\s*-?\d{1,18}\s*)*)?\]", text):
        return ()
    return tuple(int(part) for part in re.findall(rb"-?\d+", text))


def ranks_of(raw: msgspec.Raw, size: int) -> tuple[int, ...]:
    """Ranks of a group of `size`. PyTorch writes more than 30 ranks as the first 29, ``...`` and
    the last; the rest are filled in where those written are evenly spaced and consistent with
    `size`."""
    text = bytes(raw).strip().strip(b'"')
    if b"..." not in text:
        return integers(raw)
    written = [int(part) for part in re.findall(rb"-?\d{1,18}", text)]
    if len(written) < 3 or not len(written) <= size <= MOST_RANKS or written[1] <= written[0]:
        return ()
    ranks = range(written[0], written[-1] + 1, written[1] - written[0])
    is_even = len(ranks) == size and ranks[-1] == written[-1]
    return tuple(ranks) if is_even and list(ranks[: len(written) - 1]) == written[:-1] else ()


def triple(values: object) -> tuple[int, int, int]:
    """Sizes of a grid or block; zeros where they are not specified."""
    if not isinstance(values, list) or len(values) != 3:
        return (0, 0, 0)
    found = [whole(value) for value in values]
    return (found[0], found[1], found[2]) if all(0 <= v < 2**31 for v in found) else (0, 0, 0)


def _known(value: Number) -> int | None:
    found = whole(value)
    return None if found == MISSING else found
