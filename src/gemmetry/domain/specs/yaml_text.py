"""Reads YAML with the places of its keys and values, and without the traps of YAML 1.1.

``no``, ``on`` and ``12:30`` stay text, ``1e5`` and ``0o17`` are numbers, and a repeated key is a
mistake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from gemmetry.domain.errors import SpecError

try:
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment]

KeyPath = tuple[str | int, ...]

MAX_NODES = 100_000
"""Values of a document, each alias counted with all that it stands for: a few lines can represent
more values than memory holds."""

MAX_DEPTH = 100
"""A spec needs four levels. The readers of YAML end at depths of their own, or at none."""

_PLAIN_TAGS = frozenset(("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"))


class _Loader(_BaseLoader):
    """A safe loader that resolves only the types of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
     r"|\.(nan|NaN|NAN)", "-+0123456789."),
):  # fmt: skip
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
    )


def _integer(loader: Any, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    try:
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    except ValueError as error:  # thousands of digits
        problem = f"{text[:12]}... has {len(text)} characters"
        raise yaml.MarkedYAMLError("", None, problem, node.start_mark) from error


def _float(loader: Any, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node).replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


@dataclass
class YamlDocument:
    """The value of a YAML text, and the places of its parts (``line:column``, from 1)."""

    value: Any
    file: str
    keys: dict[KeyPath, str] = field(default_factory=dict)
    values: dict[KeyPath, str] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    """Mistakes that YAML allows but a spec does not: repeated keys."""

    @property
    def is_empty(self) -> bool:
        """True if the text contains only blanks and comments, or null."""
        return not self.values or self.value is None

    def place(self, path: KeyPath, *, of_key: bool = False) -> str:
        """``file:line:column`` of the deepest part of `path` that the text contains."""
        for length in range(len(path), -1, -1):
            part = path[:length]
            if of_key and part in self.keys:
                return f"{self.file}:{self.keys[part]}"
            if part in self.values:
                return f"{self.file}:{self.values[part]}"
        return f"{self.file}:1:1"


def read_yaml(text: str, file: str, canonical_key: Callable[[str], str] = str) -> YamlDocument:
    """`text` as plain values; the names of top-level keys go through `canonical_key`.

    Raises:
        SpecError: the text is not YAML; the message has file:line:column.
    """
    document = YamlDocument({}, file)
    with _mistakes_in(file), _composed(text, file, _Loader) as (loader, node):
        if node is not None:
            document.value = _walk(loader, node, (), document, canonical_key)
    return document


def safe_yaml(text: str, file: str) -> Any:
    """`text` as PyYAML's safe loader understands it (YAML 1.1), as other tools do.

    Raises:
        SpecError: as :func:`read_yaml`.
    """
    with _mistakes_in(file), _composed(text, file, _BaseLoader) as (loader, node):
        return None if node is None else loader.construct_document(node)


def yaml_nodes(text: str, file: str) -> yaml.Node | None:
    """The nodes of `text`; None if it is empty.

    Raises:
        SpecError: as :func:`read_yaml`.
    """
    with _mistakes_in(file), _composed(text, file, _BaseLoader) as (_, node):
        return node


@contextmanager
def _composed(text: str, file: str, loader_class: Any) -> Iterator[tuple[Any, yaml.Node | None]]:
    """A loader and the nodes of `text`, which are not deeper or more than is accepted."""
    _check_events(text, file)
    loader = loader_class(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _values_of(node, file, {})
        yield loader, node
    finally:
        loader.dispose()


def _values_of(node: yaml.Node, file: str, known: dict[int, int]) -> int:
    """Number of values that `node` stands for; `known` has that of nodes that aliases repeat."""
    if id(node) not in known:
        known[id(node)] = MAX_NODES + 1  # An alias within it refers to itself.
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        values = [part[1] if isinstance(part, tuple) else part for part in parts]
        count = 1
        for value in values:
            count += _values_of(value, file, known)
            if count > MAX_NODES:
                _refuse(file, value.start_mark, f"with its aliases it has more than {MAX_NODES:,} "
                        "values, or an alias refers to itself")  # fmt: skip
        known[id(node)] = count
    return known[id(node)]


def _refuse(file: str, mark: yaml.Mark | None, problem: str) -> NoReturn:
    raise SpecError([f"{file}:{_position(mark)}: {problem}"], hint="Write plain values.")


@contextmanager
def _mistakes_in(file: str) -> Iterator[None]:
    try:
        yield
    except yaml.MarkedYAMLError as error:
        place = _position(error.problem_mark or error.context_mark)
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(
            [f"{file}:{place}: not YAML: {problem}"],
            hint="Indent with spaces, and quote texts with special characters.",
        ) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise SpecError(
            [f"{file}:1:1: not YAML: {error}"], hint="Save it as UTF-8 text."
        ) from error


def _check_events(text: str, file: str) -> None:
    """Refuse a text that is nested too deeply or has too many values before its nodes are composed,
    which recurses."""
    depth = end = 0
    mark: Any = None
    event: Any
    try:
        for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            end, mark = event.end_mark.index, event.start_mark
            if depth > MAX_DEPTH:
                break
            if number > 4 * MAX_NODES:
                _refuse(file, mark, f"it has more than {MAX_NODES:,} values")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # Brackets that follow each other are read before the first of them is an event.
        ahead = text[end : mark.index if mark else end]
        depth += sum(ahead.count(sign) for sign in "[{") - sum(ahead.count(sign) for sign in "]}")
    except yaml.YAMLError:
        return  # composing it reports the same
    if depth > MAX_DEPTH:
        _refuse(file, mark, _TOO_DEEP)


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep, or an alias refers to itself"


def _walk(
    loader: Any,
    node: yaml.Node,
    path: KeyPath,
    document: YamlDocument,
    canonical: Callable[[str], str],
) -> Any:
    document.values[path] = _position(node.start_mark)
    if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN_TAGS:
        _refuse(document.file, node.start_mark, f"the tag {node.tag} is not supported here")
    if len(path) > MAX_DEPTH:
        _refuse(document.file, node.start_mark, _TOO_DEEP)
    if isinstance(node, yaml.SequenceNode):
        return [_walk(loader, n, (*path, i), document, canonical) for i, n in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node)
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        written = str(key_node.value)
        key = canonical(written) if not path else written
        place, position = (*path, key), _position(key_node.start_mark)
        if key in mapping:
            also = f" (or {key})" if key != written else ""
            document.mistakes.append(
                f"{document.file}:{position}: the key {written!r}{also} appears "
                f"twice; it is first at {document.keys[place]}"
            )
            continue
        document.keys[place] = position
        mapping[key] = _walk(loader, value_node, place, document, canonical)
    return mapping


def _position(mark: yaml.Mark | None) -> str:
    return f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
