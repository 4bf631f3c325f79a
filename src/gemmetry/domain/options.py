"""Options of commands, each declared once, as a field of a dataclass (an options struct).

A room of the project may declare the options of its own request; the command line makes parsers,
help and completion of them, and scripts give the same names.

Every key of a spec, a row of ``keys.csv``: its panel, its form on the command line, its other
names, its default (JSON), its text. Those of a run's settings stand in the place of the row ``*``
and follow from their declarations in ``domain/settings.py``.

The model's JSON schema, the command line's options, shell completion and the documents' tables
all read this table. Standard library only, because ``--help`` imports it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from gemmetry.domain.settings import Form, Key, RunSettings, declarations

DECLARED = "declared"
USUAL = object()


@dataclass(frozen=True, slots=True)
class Declared:
    """An option or argument as a field of an options struct declares it."""

    flags: tuple[str, ...] = ()
    default: Any = USUAL
    """Usually None, False for a flag, an empty list, or nothing for what must be given."""
    parse: Callable[[Any, str], Any] | None = None
    """Parser of the given text (or texts), typed by its first parameter; also gets the option's
    name."""
    is_argument: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of typer: help, metavar, min, rich_help_panel, hidden, autocompletion."""

    def names(self, name: str) -> tuple[str, ...]:
        """The names of the option: that of its field, unless a long one is declared."""
        if self.flags and self.flags[0].startswith("--"):
            return self.flags
        return (f"--{name.replace('_', '-')}", *self.flags)

    def value(self, name: str, kind: Any, given: Any) -> Any:
        """The value of the field `name`: a list that is not given is empty."""
        collection = get_origin(kind)
        if given is None or given == []:
            return collection() if collection in (list, tuple, dict) else None
        found = self.parse(given, self.names(name)[0]) if self.parse else given
        return tuple(found) if collection is tuple else found

    def otherwise(self, name: str, kind: Any) -> Any:
        """The value where nothing is given."""
        if self.default is not USUAL:
            return self.default
        return False if kind is bool else self.value(name, kind, None)


def option(
    help: str,
    names: str = "",
    *,
    default: Any = USUAL,
    parse: Callable[[Any, str], Any] | None = None,
    complete: Callable[[str], list[str]] | tuple[str, ...] = (),
    panel: str | None = None,
    **more: Any,
) -> Any:
    """A field of an options struct that is an option of its command. Its heading in help is
    `panel`, or the attribute ``PANEL`` of the struct that declares it.

    Args:
        help: what it does.
        names: its flags where the field's name does not suffice, all of them or short ones in
            addition, and the placeholder of its value in help: ``-o FILE``, ``NAME``.
        default: its value where it is not given, unless that is None, False or an empty list.
        parse: reads what is given; gets it, and the name of the option.
        complete: the names that it takes, or what completes its value.
        more: other arguments of ``typer.Option``.
    """
    words = names.split()
    flags = tuple(word for word in words if word.startswith("-"))
    metavar = " ".join(word for word in words if not word.startswith("-")) or None
    more |= {"help": help, "metavar": metavar, "autocompletion": _completer(complete)}
    more |= {"rich_help_panel": panel} if panel else {}
    return field(metadata={DECLARED: Declared(flags, default, parse, more=more)})


def argument(
    help: str,
    metavar: str,
    *,
    default: Any = USUAL,
    complete: Callable[[str], list[str]] | tuple[str, ...] = (),
    **more: Any,
) -> Any:
    """A field of an options struct that is an argument; it must be given if there is no default,
    and its type has no None. For the parameters see :func:`option`."""
    more |= {"help": help, "metavar": metavar, "autocompletion": _completer(complete)}
    return field(metadata={DECLARED: Declared((), default, is_argument=True, more=more)})


def complete_names(*names: str) -> Callable[[str], list[str]]:
    """Completes an option that takes one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _completer(
    complete: Callable[[str], list[str]] | tuple[str, ...],
) -> Callable[[str], list[str]] | None:
    if not isinstance(complete, tuple):
        return complete
    return complete_names(*complete) if complete else None


def struct_of(struct: type[Any], given: Mapping[str, Any]) -> Any:
    """An options struct with the `given` values, and usual ones elsewhere.

    Raises:
        TypeError: `struct` has no option of a given name.
    """
    kinds = get_type_hints(struct)
    usual = {one.name: one.metadata[DECLARED].otherwise(one.name, kinds[one.name])
             for one in fields(struct)}  # fmt: skip
    return struct(**{**usual, **given})


def first_type(kind: Any, parse: Callable[[Any, str], Any] | None) -> Any:
    """The type of a command line's value for a field of type `kind`."""
    if parse is not None:
        return next(iter(get_type_hints(parse).values()))
    return list[get_args(kind)[0]] if get_origin(kind) is tuple else kind  # type: ignore[misc]


WHAT = "What is computed"
GRID = "Grid settings"
EXAMPLE = "Options of CUTLASS' block-scaled example"
WHO = "What computes it, and where"
HOW = "How it is run"
RESULTS = "Results"
PANELS = (WHAT, WHO, HOW, RESULTS, GRID, EXAMPLE)

SETTINGS = tuple(
    replace(key, name=key.name or field, panel=HOW, setting=field)
    for field, key in declarations(RunSettings).items()
)
"""Keys that each set one field of :class:`RunSettings`."""


def _rows() -> Iterator[Key]:
    with (Path(__file__).parent / "specs/keys.csv").open(encoding="utf-8", newline="") as file:
        for one in csv.DictReader(file):
            if one["name"] == "*":
                yield from SETTINGS
                continue
            yield Key(
                one["name"], one["panel"], Form(one["form"]), one["text"],
                tuple(one["aliases"].split()), one["short"], one["metavar"],
                json.loads(one["default"] or "null"), one["unset"], bare=one["bare"],
            )  # fmt: skip


KEYS: dict[str, Key] = {key.name: key for key in _rows()}

ALIASES: dict[str, str] = {alias: key.name for key in KEYS.values() for alias in key.aliases}
"""Other names of keys -> the key: the dispatch profiler's options, the grid's settings."""


@dataclass(frozen=True, slots=True)
class Retired:
    """An option of the dispatch profiler that is accepted and does nothing, and why."""

    option: str
    aliases: tuple[str, ...]
    takes_value: bool
    reason: str


RETIRED = (
    Retired("--build-dir", (), True,
            "IREE's tools come from the installed package, or from --iree-bin-dir"),
    Retired("--mlir-dialect", (), True, "linalg is the only dialect that is generated"),
    Retired("--use-mma-sync", ("--iree-codegen-llvmgpu-use-mma-sync",), False,
            "today's IREE takes the instruction from the configuration"),
    Retired("--use-wmma", ("--iree-codegen-llvmgpu-use-wmma",), False,
            "today's IREE takes the instruction from the configuration"),
    Retired("--cluster-shape-mn", (), True,
            "no configuration here launches clusters of thread blocks"),
    Retired("--print-ir-after-all", ("--mlir-print-ir-after-all",), False,
            "`gemmetry show` gives the compile command; add --mlir-print-ir-after-all to it"),
)  # fmt: skip


def canonical_key(key: str) -> str:
    """``Batch-Size`` -> ``dispatch_repeat_count``: hyphens, capitals and aliases removed."""
    name = key.strip().lower().replace("-", "_")
    return ALIASES.get(name, name)


_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")


def split_files(text: str) -> list[str]:
    """``a.csv,b.json`` -> both. A comma separates files only where every part ends in a suffix, so
    that a name may contain commas."""
    parts = [part.strip() for part in text.split(",")]
    return parts if all(map(_SUFFIX.search, parts)) else [text]
