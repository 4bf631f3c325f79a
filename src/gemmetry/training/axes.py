"""The axes of a sweep: numbers of channels and threads, and further
axes of environment variables, configuration keys, or placeholders in a command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gemmetry.domain.errors import RequestError, UnknownNameError

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_PLACEHOLDER = re.compile(r"\{(\w[\w.]*)\}")
PATH_AXIS = "path"
AXIS_FORM = "Write --axis NAME=VALUE,VALUE, as in --axis NCCL_ALGO=Ring,Tree."


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


def check_counts(values: Sequence[int], option: str) -> tuple[int, ...]:
    """The values of an axis of numbers.

    Raises:
        RequestError: one of them is not positive, or occurs twice.
    """
    for value in values:
        if value < 1:
            raise RequestError(
                f"{option}: {value} is not a positive whole number",
                hint=f"Write {option} 256,512.",
            )
    _check_once([str(value) for value in values], option)
    return tuple(values)


def make_axes(
    axes: Mapping[str, Sequence[object]], *, command: Sequence[str] | None, keys: Sequence[str]
) -> tuple[SweepAxis, ...]:
    """The further axes of a sweep, from the values of each.

    Args:
        command: the user's own command, None for the workload.
        keys: the names of the workload's configuration keys.

    Raises:
        RequestError: one has no values, or the same twice, or changes nothing.
    """
    found = []
    for name, values in axes.items():
        texts = tuple(map(str, values))
        if not texts:
            raise RequestError(f"--axis {name} has no values", hint=AXIS_FORM)
        _check_once(texts, f"--axis {name}")
        found.append(SweepAxis(name, _kind(name, command, keys), texts))
    return tuple(found)


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
    raise UnknownNameError(
        "configuration key or environment variable", name, keys, where="--axis",
        more=f"Environment variables are in capital letters: --axis {name.upper()}=...",
    )  # fmt: skip


def _check_once(values: Sequence[str], option: str) -> None:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise RequestError(f"{option}: {twice} is given twice", hint="Give each value once.")
