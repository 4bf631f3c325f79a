"""pydantic's mistakes in gemmetry's wording, one line each with the place where it stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

from gemmetry.domain.errors import UnknownNameError

_SCALARS = (str, int, float, bool)

Place = Callable[[tuple[str | int, ...], bool], str]
"""Location of a mistake, and whether it is about the key -> a readable place."""


def mistake_lines(error: ValidationError, place: Place, model: type[BaseModel]) -> list[str]:
    """One line for each mistake in the values of `model`, each starting with its place."""
    return [_line(item, place, model) for item in error.errors()]


def in_order(lines: Iterable[str]) -> list[str]:
    """Each of the `lines` once, in the order of the files and lines that they start with."""
    return sorted(set(lines), key=_by_line)


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
    """How many parts of `location` are keys of `model` and of the models within it, the last one
    known or not; and the model of that last key."""
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


def _by_line(text: str) -> tuple[str, int, int, str]:
    file, *rest = text.split(":", 3)
    numbers = [int(part) if part.isdigit() else 0 for part in rest[:2]]
    line, column = (*numbers, 0, 0)[:2]
    return (file, line, column, text)
