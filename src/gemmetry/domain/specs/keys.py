"""Every key of a spec, a row of ``keys.csv``: its panel, its form on the command line, its other
names, its default (JSON), its text. Those of a run's settings stand in the place of the row ``*``
and follow from their declarations in ``domain/settings.py``.

The model's JSON schema, the command line's options, shell completion and the documents' tables
all read this table. Standard library only, because ``--help`` imports it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gemmetry.domain.settings import Form, Key, RunSettings, declarations

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
"""The keys that set a field of :class:`RunSettings` each."""


def _rows() -> Iterator[Key]:
    with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
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
