"""The axes of a sweep as a command line gives them: numbers of channels and threads, and further
axes of environment variables, configuration keys, or placeholders in a command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gemmetry.domain.errors import RequestError, UnknownNameError

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_PLACEHOLDER = re.compile(r"\{(\w[\w.]*)\}")
PATH_AXIS = "path"
_FORM = "Write --axis NAME=VALUE,VALUE, as in --axis NCCL_ALGO=Ring,Tree."


class AxisKind(StrEnum):
    """What an axis changes."""

    VARIABLE = "variable"
    """An environment variable."""
    KEY = "key"
    """A key of the workload's configuration, such as ``distributed.bucket_cap_mb``."""
    PLACEHOLDER = "placeholder"
    """``{name}`` in the user's own command."""
    PATH = "path"
    """How the bytes move, as ``--path`` does for a whole sweep."""


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """A further axis of a sweep."""

    name: str
    kind: AxisKind
    values: tuple[str, ...]


def parse_counts(texts: Iterable[str], option: str) -> tuple[int, ...]:
    """Numbers, separated by commas or given one by one; each once.

    Raises:
        RequestError: one of them is not a positive whole number, or occurs twice.
    """
    values = []
    for part in _parts(texts):
        if not part.isdecimal() or int(part) < 1:
            raise RequestError(
                f"{option}: {part!r} is not a positive whole number",
                hint=f"Write {option} 256,512.",
            )
        values.append(int(part))
    _check_once([str(value) for value in values], option)
    return tuple(values)


def parse_axes(
    texts: Iterable[str], *, command: Sequence[str] | None, keys: Sequence[str]
) -> tuple[SweepAxis, ...]:
    """Axes of the form ``NAME=VALUE,VALUE``.

    Args:
        command: the user's own command, None for the workload.
        keys: the names of the workload's configuration keys.

    Raises:
        RequestError: one is not of that form, occurs twice, or changes nothing.
    """
    axes = []
    for text in texts:
        name, equals, values = text.partition("=")
        name, parts = name.strip(), list(_parts([values]))
        if not equals or not name or not parts:
            raise RequestError(f"--axis {text}: not of the form NAME=VALUE,VALUE", hint=_FORM)
        _check_once(parts, f"--axis {name}")
        axes.append(SweepAxis(name, _kind(name, command, keys), tuple(parts)))
    _check_once([axis.name for axis in axes], "--axis")
    return tuple(axes)


def placeholders(command: Sequence[str]) -> set[str]:
    """The names in braces in a command."""
    return {name for word in command for name in _PLACEHOLDER.findall(word)}


def _kind(name: str, command: Sequence[str] | None, keys: Sequence[str]) -> AxisKind:
    if name == PATH_AXIS:
        return AxisKind.PATH
    if _VARIABLE.fullmatch(name):
        return AxisKind.VARIABLE
    if command is not None:
        if name in placeholders(command):
            return AxisKind.PLACEHOLDER
        raise RequestError(
            f"--axis {name} changes nothing: it is not the name of an environment variable, and "
            f"the command does not contain {{{name}}}",
            hint=f"Write {{{name}}} in --command where its value belongs.",
        )
    if name in keys:
        return AxisKind.KEY
    raise UnknownNameError("configuration key or environment variable", name, keys, where="--axis")


def _parts(texts: Iterable[str]) -> Iterable[str]:
    return (part.strip() for text in texts for part in text.split(",") if part.strip())


def _check_once(values: Sequence[str], option: str) -> None:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise RequestError(f"{option}: {twice} is given twice", hint="Give each value once.")
