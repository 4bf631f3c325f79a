"""The dispatches that ``generate`` wrote into a folder, which ``compile`` and ``profile`` use where
their own request names no problem.

The dispatch profiler kept the same in a pickle next to its sources; here it is ``dispatches.json``
in the folder ``generated``, one entry for each operation, provider and target.

Selects a plan's dispatches from a folder that ``generate`` wrote: which of them, on which
target.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    NamedDispatch,
    Selection,
    Target,
    TargetKind,
    parse_operation,
    parse_target,
)
from gemmetry.domain.errors import EmptySelectionError, RequestError, nearest
from gemmetry.domain.files import write_whole
from gemmetry.domain.opening import read_json, why_unreadable
from gemmetry.domain.operation import Operation, operation_name
from gemmetry.domain.options import GRID, KEYS, WHAT
from gemmetry.domain.specs.model import ProfileSpec

FILE_NAME = "dispatches.json"

_VERSION = 1

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
        found = [_entry(item) for item in read_json(path)["dispatches"]]
    except (OSError, ValueError, KeyError, TypeError, RequestError) as error:
        raise RequestError(
            f"cannot read {path}, the list of what was generated: {why_unreadable(error)}",
            hint="Remove the file and run `gemmetry generate` again, or give --shapes.",
        ) from error
    return tuple(entry for entry in found if (folder / entry.source).is_file())


def wanted_of(spec: ProfileSpec, found: Sequence[Generated]) -> tuple[Generated, ...]:
    """Dispatches of `found` that match the kinds and formats of `spec`."""
    kinds = frozenset(spec.operation_kind)
    # ``f32``, ``lhs:rhs`` or ``lhs:rhs:result``, as keys of a spec have them.
    formats = [names * 2 if len(names) == 1 else names
               for names in (text.split(":") for text in spec.dtypes)]  # fmt: skip
    wanted = []
    for entry in found:
        s = entry.operation.signature
        own = [s.lhs.name, s.rhs.name, s.result.name]
        is_of_kind = not kinds or "all" in kinds or str(s.kind) in kinds
        if is_of_kind and (not formats or any(own[: len(one)] == one for one in formats)):
            wanted.append(entry)
    return tuple(wanted)


def add_generated(folder: Path, entries: Iterable[Generated]) -> None:
    """Add the written entries to the folder's list; configurations of an operation are merged.

    Raises:
        OSError: the list cannot be written. RequestError: the list that is there cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = attrgetter("provider", "target", "operation")
    with (folder / f".{FILE_NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Other processes generate into the folder as well.
        known = {key(entry): entry for entry in read_generated(folder)}
        for entry in entries:
            earlier = known[key(entry)].configurations if key(entry) in known else ()
            names = tuple(dict.fromkeys((*earlier, *entry.configurations)))
            known[key(entry)] = replace(entry, configurations=names)
        lines = ",\n".join(
            json.dumps(asdict(replace(entry, operation=operation_name(entry.operation))))  # type: ignore[arg-type]
            for entry in known.values()
        )
        text = f'{{"schema_version": {_VERSION}, "dispatches": [\n{lines}\n]}}\n'
        write_whole(folder / FILE_NAME, text.encode())


def _entry(item: dict[str, Any]) -> Generated:
    parse_target(item["target"])
    return Generated(str(item["provider"]), item["target"], parse_operation(item["operation"]),
                     tuple(map(str, item["configurations"])), str(item["source"]))  # fmt: skip


_FOR_SUGGESTIONS = 1000
"""Names that are compared with a pattern that matched none."""


@dataclass(frozen=True, slots=True)
class Reused:
    """The part of a folder that a request uses."""

    named: tuple[NamedDispatch, ...] = ()
    """Dispatches as they were generated."""
    operations: tuple[Operation, ...] = ()
    """The folder's operations, if a provider takes part for which it has no dispatches."""
    providers: frozenset[str] = frozenset()
    """The providers whose dispatches are in `named`, so that they add no other configurations."""
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Canonical JSON of everything that decides which dispatches run."""
        found: dict[str, dict[str, list[str]]] = {}
        for named in self.named:
            lane = found.setdefault(f"{named.provider} on {named.target}", {})
            lane.setdefault(operation_name(named.operation), []).append(named.configuration)
        return {
            "generated": found,
            "operations": [operation_name(operation) for operation in self.operations],
        }


def reuse(
    entries: Sequence[Generated],
    providers: Iterable[str],
    targets: Sequence[Target],
    selection: Selection,
    *,
    default_only: bool,
    where: str,
) -> Reused:
    """The dispatches of `entries` that `providers` can use on `targets`.

    A target gets the dispatches written for its architecture, otherwise those for its kind of
    device. A provider for which the folder has nothing on a target chooses configurations itself,
    for the folder's operations.

    Args:
        where: the folder, for messages.

    Raises:
        RequestError: a provider has dispatches for some of the targets only.
    """
    named: dict[NamedDispatch, None] = {}
    served: dict[str, list[Target]] = {}
    for target in targets:
        for provider in providers:
            own = [entry for entry in entries if entry.provider == provider]
            fitting = [entry for entry in own if entry.target == target.name]
            fitting = fitting or [entry for entry in own if entry.kind is target.kind]
            if fitting:
                served.setdefault(provider, []).append(target)
            for entry in fitting:
                for configuration in entry.configurations:
                    name = f"{operation_name(entry.operation)}_{configuration}"
                    is_open = not default_only or configuration == DEFAULT_CONFIGURATION
                    if is_open and selection.matches(provider, name, entry.operation):
                        named[NamedDispatch(
                            operation=entry.operation, configuration=configuration,
                            provider=entry.provider, target=target.name,
                        )] = None  # fmt: skip
    for provider, mine in served.items():
        if missing := [target.name for target in targets if target not in mine]:
            have = ", ".join(target.name for target in mine)
            raise RequestError(
                f"{where} contains dispatches of {provider} for {have}, but none for "
                f"{', '.join(missing)}",
                hint=f"Generate them with --device {missing[0]}, or give --device {mine[0].name} "
                "alone.",
            )
    others = [provider for provider in providers if provider not in served]
    operations = tuple(dict.fromkeys(entry.operation for entry in entries)) if others else ()
    notes = _notes(entries, named, operations, others, targets, where)
    return Reused(tuple(named), operations, frozenset(served), notes)


def _notes(
    entries: Sequence[Generated], named: Collection[NamedDispatch],
    operations: Sequence[Operation], others: Sequence[str], targets: Sequence[Target], where: str,
) -> tuple[str, ...]:  # fmt: skip
    """The entries used from the folder, and the kinds of device whose code in it cannot be used
    here. (Code for one architecture may serve another of the same kind.)"""
    written_for = ", ".join(dict.fromkeys(entry.target for entry in entries))
    notes = []
    if named:
        notes.append(f"dispatches: {len(named)} of {where}, generated for {written_for}")
    if operations:
        here = ", ".join(target.name for target in targets)
        notes.append(
            f"{where} was generated for {written_for}: its operations ({len(operations)}) run on "
            f"{here} with the configurations that {', '.join(others)} has there"
        )
    kinds = {target.kind for target in targets}
    unused = dict.fromkeys(entry.target for entry in entries if entry.kind not in kinds)
    if unused and notes:
        notes[-1] += f"; code compiled for {', '.join(unused)} is not used"
    return tuple(notes)


def nothing_left(
    patterns: Sequence[str], entries: Sequence[Generated], where: str
) -> EmptySelectionError:
    """The error where `patterns` select none of the dispatches that `entries` hold."""
    names = [
        f"{operation_name(entry.operation)}_{configuration}"
        for entry in entries
        for configuration in entry.configurations
    ]
    text = ", ".join(patterns) or "the request"
    near = nearest(text.strip("*"), names[:_FOR_SUGGESTIONS]) or names[:3]
    return EmptySelectionError(
        f"{text} matches none of the {len(names)} dispatches of {where}",
        hint=f"The nearest names: {', '.join(near)}. Give --shapes to ignore the folder.",
    )
