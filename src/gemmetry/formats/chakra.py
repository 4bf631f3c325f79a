"""Chakra execution traces of PyTorch (``ExecutionTraceObserver``, schemas 1.0.1 to 1.1.1).

Schema 1.0.1 stores a node's fields flat (``parent``, ``input_shapes``, ``rf_id``); later schemas
have ``ctrl_deps``, ``inputs`` and ``outputs`` objects, and an ``attrs`` list. Nodes are returned in
the order of the file, children before their parents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

import msgspec

from gemmetry.formats.events import MISSING, OperatorArguments, TraceProblem
from gemmetry.formats.json.array import CHUNK_BYTES, DECODE_ERRORS, ArrayReader, outer_object
from gemmetry.formats.naming import short_name

NOTHING = msgspec.Raw(b"")

Attribute: TypeAlias = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class ChakraNode:
    """One call of an operator, or one named range."""

    id: int
    parent: int
    """The enclosing node ("ctrl_deps")."""
    name: str
    inputs: OperatorArguments
    outputs: OperatorArguments
    attributes: dict[str, Attribute]
    """``rf_id``, ``op_schema``, ``seq_id``, ``scope``, ``tid``, ``fw_tid``, ``fw_parent``; for
    collectives also ``collective_name``, ``dtype``, ``in_msg_nelems``, ``pg_size`` ..."""

    @property
    def record_function_id(self) -> int:
        """Shared with "Record function id" of the Kineto trace recorded at the same time."""
        found = self.attributes.get("rf_id")
        return found if type(found) is int else MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class ChakraRows:
    """One execution trace."""

    schema: str
    pid: int
    nodes: tuple[ChakraNode, ...]
    start_ms: int
    """Time since boot, as the observer writes it."""
    finish_ms: int
    problems: tuple[TraceProblem, ...] = ()
    partial: bool = False


class _Values(msgspec.Struct, gc=False):
    values: msgspec.Raw = NOTHING
    shapes: msgspec.Raw = NOTHING
    types: msgspec.Raw = NOTHING
    strides: msgspec.Raw = NOTHING


class _Attribute(msgspec.Struct, gc=False):
    name: str = ""
    value: msgspec.Raw = NOTHING


class _Node(msgspec.Struct, gc=False):
    id: int
    name: str = ""
    ctrl_deps: int | None = None
    parent: int | None = None
    inputs: msgspec.Raw = NOTHING
    outputs: msgspec.Raw = NOTHING
    attrs: list[_Attribute] | None = None
    input_shapes: msgspec.Raw = NOTHING
    input_types: msgspec.Raw = NOTHING
    output_shapes: msgspec.Raw = NOTHING
    output_types: msgspec.Raw = NOTHING
    rf_id: int | None = None
    fw_parent: int | None = None
    seq_id: int | None = None
    scope: int | None = None
    tid: int | None = None
    fw_tid: int | None = None
    op_schema: str | None = None


_NODES = msgspec.json.Decoder(list[_Node])
_NODE = msgspec.json.Decoder(_Node)
_VALUES = msgspec.json.Decoder(_Values)
_FLAT = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema")


def read_chakra(file: BinaryIO, *, chunk_bytes: int = CHUNK_BYTES) -> ChakraRows | None:
    """The nodes of an execution trace.

    Args:
        file: opened at its beginning, decompressed.
        chunk_bytes: number of bytes read at a time; does not affect the nodes.

    Returns:
        None if the document has no ``nodes`` and ``schema``.
    """
    reader = ArrayReader(file, "nodes", _NODES.decode, _rescue, chunk_bytes=chunk_bytes)
    nodes = [_node(node) for piece in reader for node in piece]
    wanted = ("schema", "pid", "start_ts", "finish_ts")
    outer, _ = outer_object(reader.head, reader.tail, wanted)
    schema = outer.get("schema")
    if not reader.found or not isinstance(schema, str):
        return None
    return ChakraRows(
        schema=schema,
        pid=_whole(outer.get("pid")),
        nodes=tuple(nodes),
        start_ms=_whole(outer.get("start_ts")),
        finish_ms=_whole(outer.get("finish_ts")),
        problems=reader.text.all_problems(),
        partial=reader.text.is_partial,
    )


def _rescue(text: bytes) -> _Node | str:
    try:
        return _NODE.decode(text.decode("utf-8", "replace"))
    except DECODE_ERRORS as error:
        return f"left out, as it is no node: {error}"


def _node(node: _Node) -> ChakraNode:
    parent = node.ctrl_deps if node.ctrl_deps is not None else node.parent
    if node.attrs is None:
        told = {name: getattr(node, name) for name in _FLAT}
        attributes = {name: value for name, value in told.items() if value is not None}
        inputs = _arguments(node.inputs, node.input_shapes, node.input_types)
        outputs = _arguments(node.outputs, node.output_shapes, node.output_types)
    else:
        attributes = {one.name: _value(one.value) for one in node.attrs}
        inputs, outputs = _nested(node.inputs), _nested(node.outputs)
    return ChakraNode(
        id=node.id,
        parent=parent if parent is not None else MISSING,
        name=short_name(node.name),
        inputs=inputs,
        outputs=outputs,
        attributes=attributes,
    )


def _nested(raw: msgspec.Raw) -> OperatorArguments:
    try:
        told = _VALUES.decode(bytes(raw) or b"{}")
    except DECODE_ERRORS:
        return OperatorArguments()
    return _arguments(told.values, told.shapes, told.types, told.strides)


def _arguments(
    values: msgspec.Raw, shapes: msgspec.Raw, types: msgspec.Raw, strides: msgspec.Raw = NOTHING
) -> OperatorArguments:
    text: Callable[[msgspec.Raw], str] = lambda raw: bytes(raw).decode("utf-8", "replace")  # noqa: E731
    return OperatorArguments(
        shapes=text(shapes), dtypes=text(types), strides=text(strides), values=text(values)
    )


def _value(raw: msgspec.Raw) -> Attribute:
    try:
        found = msgspec.json.decode(bytes(raw) or b"null")
    except DECODE_ERRORS:
        return None
    return found if isinstance(found, (int, float, str, bool)) else bytes(raw).decode("utf-8")


def _whole(value: object) -> int:
    return value if type(value) is int else MISSING
