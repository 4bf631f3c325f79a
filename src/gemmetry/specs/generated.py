"""The dispatches that ``generate`` wrote into a folder, which ``compile`` and ``profile`` use where
their own request names no problem.

The dispatch profiler kept the same in a pickle next to its sources; here it is ``dispatches.json``
in the folder ``generated``, one entry for each operation, provider and target.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import operation_name, parse_operation
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import TargetKind, parse_target
from gemmetry.formats.files import write_whole
from gemmetry.formats.opening import read_json, why_unreadable
from gemmetry.specs.keys import GRID, KEYS, WHAT
from gemmetry.specs.model import ProfileSpec

FILE_NAME = "dispatches.json"

SCHEMA_VERSION = 1

_FILTERS = frozenset(("operation_kind", "dtypes"))
"""Keys that select dispatches of a folder as they select among all others."""
_HOW = frozenset(("wait_steps", "active_steps", "chakra_all_steps"))
_PROBLEM = (
    frozenset(key.name for key in KEYS.values() if key.panel in (WHAT, GRID)) - _FILTERS - _HOW
)


@dataclass(frozen=True, slots=True)
class Generated:
    """The dispatches of one operation for which one provider has sources."""

    provider: str
    target: str
    """Name of the target for which they were written."""
    operation: Operation
    configurations: tuple[str, ...]
    source: str
    """The file, relative to the folder."""

    @property
    def kind(self) -> TargetKind:
        """Kind of the target's device."""
        return parse_target(self.target).kind


def names_a_problem(spec: ProfileSpec) -> bool:
    """True if `spec` itself specifies what is computed, so that no folder is consulted."""
    return bool(_PROBLEM & spec.model_fields_set)


def read_generated(folder: Path) -> tuple[Generated, ...]:
    """The entries of `folder`; empty if ``generate`` never wrote there. Entries whose source no
    longer exists are left out.

    Raises:
        RequestError: the list cannot be read.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return ()
    try:
        entries = read_json(path)["dispatches"]
        found = [_entry(item) for item in entries]
    except (OSError, ValueError, KeyError, TypeError, RequestError) as error:
        raise RequestError(
            f"cannot read {path}, the list of what was generated: {why_unreadable(error)}",
            hint="Remove the file and run `gemmetry generate` again, or give --shapes.",
        ) from error
    return tuple(entry for entry in found if (folder / entry.source).is_file())


def wanted_of(spec: ProfileSpec, found: Sequence[Generated]) -> tuple[Generated, ...]:
    """Those of `found` that match the kinds and formats of `spec`."""
    kinds = frozenset(spec.operation_kind)
    return tuple(
        entry
        for entry in found
        if (not kinds or "all" in kinds or str(entry.operation.kind) in kinds)
        and (not spec.dtypes or any(_has_formats(entry.operation, d) for d in spec.dtypes))
    )


def add_generated(folder: Path, entries: Iterable[Generated]) -> None:
    """Add the written entries to the folder's list; configurations of an operation are merged.

    Raises:
        OSError: it cannot be written. RequestError: the list that is there cannot be read.
    """
    with _locked(folder):
        known = {_key(entry): entry for entry in read_generated(folder)}
        for entry in entries:
            before = known.get(_key(entry))
            earlier = before.configurations if before is not None else ()
            names = dict.fromkeys((*earlier, *entry.configurations))
            known[_key(entry)] = Generated(
                entry.provider, entry.target, entry.operation, tuple(names), entry.source
            )
        lines = ",\n".join(json.dumps(_document(entry)) for entry in known.values())
        text = f'{{"schema_version": {SCHEMA_VERSION}, "dispatches": [\n{lines}\n]}}\n'
        write_whole(folder / FILE_NAME, text.encode())


def _key(entry: Generated) -> tuple[str, str, Operation]:
    return entry.provider, entry.target, entry.operation


def _document(entry: Generated) -> dict[str, Any]:
    return {
        "provider": entry.provider,
        "target": entry.target,
        "operation": operation_name(entry.operation),
        "configurations": list(entry.configurations),
        "source": entry.source,
    }


def _entry(item: dict[str, Any]) -> Generated:
    parse_target(item["target"])
    return Generated(
        str(item["provider"]),
        item["target"],
        parse_operation(item["operation"]),
        tuple(map(str, item["configurations"])),
        str(item["source"]),
    )


def _has_formats(operation: Operation, dtypes: str) -> bool:
    """``f32``, ``lhs:rhs`` or ``lhs:rhs:result``, as keys of a spec have them."""
    s = operation.signature
    names = dtypes.split(":")
    wanted = names * 2 if len(names) == 1 else names
    return wanted == [s.lhs.name, s.rhs.name, s.result.name][: len(wanted)]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Excludes other processes that generate into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{FILE_NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
