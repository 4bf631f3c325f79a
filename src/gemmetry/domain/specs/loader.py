"""Files, mappings and ``key=value`` settings -> a spec; all mistakes are reported at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError

from gemmetry.domain.errors import MOST_MISTAKES, RequestError, SpecError, UnknownNameError
from gemmetry.domain.opening import STANDARD_INPUT, read_text_file
from gemmetry.domain.options import canonical_key
from gemmetry.domain.settings import OF_AGENTS, WITHOUT_AGENTS
from gemmetry.domain.specs.model import ProfileSpec
from gemmetry.domain.specs.yaml_text import read_yaml

_SCALARS = (str, int, float, bool)

_FLAG_HINT = "The same command with --help shows what each option takes, and examples."
_HINT = "`gemmetry help specs` explains every key; `gemmetry schema` lets editors check them."

_FILE_HINT = "Give the path of a YAML file, or - for standard input."

_EMPTY_HINT = (
    "Check the program that should have written it. For the default request leave out --spec, or "
    "write {}."
)


Known = Mapping[str, Collection[str]]
"""``providers`` and ``columns`` that a spec may name, where the caller knows them."""

_NOTHING: Known = MappingProxyType({})

Place = Callable[[tuple[str | int, ...], bool], str]
"""Location of a mistake, and whether it is about the key -> a readable place."""


def command_place(settings: Collection[str] = ()) -> Place:
    """The place of a mistake on a command line: the option's name, or ``--set`` and the key where
    `settings` has it."""

    def place(location: tuple[str | int, ...], _of_key: bool) -> str:
        if location and location[0] in settings:
            return f"--set {'.'.join(map(str, location))}"
        return f"--{str(location[0]).replace('_', '-')}" if location else "the request"

    return place


_FLAGS = command_place()


def key_place(location: tuple[str | int, ...], _of_key: bool) -> str:
    """The place of a mistake in a call: the key's name."""
    return str(location[0]) if location else "the request"


def load_spec(
    path: Path,
    *,
    known: Known = _NOTHING,
    overrides: Mapping[str, Any] = MappingProxyType({}),
    override_place: Place = _FLAGS,
    may_be_empty: bool = False,
) -> ProfileSpec:
    """The spec in the YAML (or JSON) file `path`, or on standard input where it is ``-``, with
    `overrides` on top; `override_place` gives the place of a mistake in these.

    A text without content is a mistake unless it `may_be_empty`: the program that should have
    written the spec failed, and the default request would run something else. ``{}`` is that
    request.

    Raises:
        RequestError: the file cannot be read, or is empty.
        SpecError: mistakes, one ``file:line:column: …`` line each.
    """
    is_standard_input = str(path) == STANDARD_INPUT
    name = "standard input" if is_standard_input else str(path)
    text = read_text_file(path, "the spec", hint=_FILE_HINT, standard_input=True)
    document = read_yaml(text, name, canonical_key)
    values = {} if document.is_empty else document.value
    if document.is_empty and not may_be_empty:
        what = f"the spec on {name}" if is_standard_input else f"the spec {name}"
        raise RequestError(f"{what} is empty: it requests nothing", hint=_EMPTY_HINT)
    if not isinstance(values, dict):
        raise SpecError([f"{name}:1:1: a spec is a mapping of keys to values"], hint=_HINT)
    if may_be_empty:  # An earlier version has stored it, whose agents are gone.
        values = {key: one for key, one in values.items() if not _is_of_agents(key)}

    def place(location: tuple[str | int, ...], of_key: bool) -> str:
        if location and location[0] in overrides:
            return override_place(location, of_key)
        return document.place(location, of_key=of_key)

    return _validate({**values, **overrides}, known, place, document.mistakes)


def make_spec(
    values: Mapping[str, Any], *, known: Known = _NOTHING, place: Place = _FLAGS
) -> ProfileSpec:
    """A spec from `values`, whose keys are as in a file; `place` gives the place of a mistake.

    Raises:
        SpecError: mistakes, one line each.
    """
    canonical = {canonical_key(key): value for key, value in values.items()}
    return _validate(canonical, known, place, [])


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """``key=value`` texts (values in YAML) -> values; ``a.b=c`` sets b within a.

    Raises:
        SpecError: an item has no key or its value is not YAML.
    """
    values: dict[str, Any] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SpecError(
                [f"--set {text!r}: not of the form key=value"], hint="Write --set seed=7."
            )
        head, *rest = key.strip().split(".")
        into, name = values, canonical_key(head)
        for part in rest:
            into = into.setdefault(name, {})
            if not isinstance(into, dict):
                raise SpecError(
                    [f"--set {key}: {name} has a value already, and so no part {part}"],
                    hint="Set the key or its parts, not both.",
                )
            name = part
        into[name] = read_yaml(value, f"--set {key}").value if value.strip() else ""
    return values


def _validate(
    values: Mapping[str, Any], known: Known, place: Place, mistakes: Sequence[str]
) -> ProfileSpec:
    try:
        spec = ProfileSpec.model_validate(dict(values), context=dict(known))
    except ValidationError as error:
        lines = [*mistakes, *mistake_lines(error, place, ProfileSpec)]
        are_options = all(text.startswith("--") and not text.startswith("--set ") for text in lines)
        raise SpecError(in_order(lines), hint=_FLAG_HINT if are_options else _HINT) from None
    if mistakes:
        raise SpecError(mistakes, hint=_HINT)
    return spec


def mistake_lines(error: ValidationError, place: Place, model: type[BaseModel]) -> list[str]:
    """One line for each mistake in the values of `model`, each starting with its place."""
    return [_line(item, place, model) for item in error.errors()[: MOST_MISTAKES + 1]]


def in_order(lines: Iterable[str]) -> list[str]:
    """Each of the `lines` once, in the order of the files and lines that they start with."""

    def place(text: str) -> tuple[str, int, int, str]:
        file, *rest = text.split(":", 3)
        line, column = (*(int(part) if part.isdigit() else 0 for part in rest[:2]), 0, 0)[:2]
        return file, line, column, text

    return sorted(set(lines), key=place)


def _is_of_agents(key: object) -> bool:
    return f"--{str(key).replace('_', '-')}" in OF_AGENTS


def _line(error: Any, place: Place, model: type[BaseModel]) -> str:
    location = tuple(error["loc"])
    is_unknown = error["type"] == "extra_forbidden"
    is_key = location[-1:] == ("[key]",)
    if is_key:
        location = location[:-1]
    where = place(location, is_unknown or is_key)
    depth, section = _section(model, location)
    if is_unknown:
        name = str(location[-1])
        if len(location) == depth:
            if _is_of_agents(name):
                return f"{where}: there is no key {name!r} any more. {WITHOUT_AGENTS}"
            unknown = UnknownNameError("key", name, section.model_fields)
            return f"{where}: {unknown.message}. {unknown.hint}"
        return f"{where}: unknown key {name!r}"
    message = _message(error, str(location[-1]) if location else "value")
    if where.startswith("--") or not location or where == location[0]:
        return f"{where}: {message}"
    return f"{where}: {'.'.join(map(str, location[:depth]))}: {message}"


def _section(
    model: type[BaseModel], location: tuple[str | int, ...]
) -> tuple[int, type[BaseModel]]:
    """Number of parts of `location` that are keys of `model` and of nested models, the last one
    known or not, and the model of that last key."""
    for depth, part in enumerate(location[:-1], 1):
        field = model.model_fields.get(str(part))
        inner = field.annotation if field is not None else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return depth, model
        model = inner
    return len(location), model


_NUMBERS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_LIMITS = {
    "greater_than_equal": ("below", "ge"),
    "greater_than": ("not above", "gt"),
    "less_than_equal": ("above", "le"),
    "less_than": ("not below", "lt"),
}
"""pydantic's type of a mistake -> gemmetry's wording, and the name of the limit in the mistake's
context."""


def _message(error: Any, key: str) -> str:
    """A mistake in the wording of gemmetry's own errors."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "literal_error":
        known = re.findall(r"'([^']*)'", context["expected"])
        unknown = UnknownNameError(key.replace("_", " "), str(value), known)
        return f"{unknown.message}. {unknown.hint}"
    if kind in _LIMITS:
        word, name = _LIMITS[kind]
        return f"{value} is {word} {context[name]}"
    if kind == "model_type":
        return f"{value!r} is not a mapping of keys to values"
    wanted = _NUMBERS.get(kind.partition("_")[0])
    if wanted is not None:
        return f"{value!r} is not {wanted}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if kind not in ("request", "value_error") and isinstance(value, _SCALARS):
        message = f"{message}, not {value!r}"
    return message
