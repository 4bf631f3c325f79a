"""Selects a plan's dispatches from a folder that ``generate`` wrote: which of them, on which
target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, NamedDispatch, Selection
from gemmetry.domain.errors import EmptySelectionError, RequestError, nearest
from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target
from gemmetry.specs.generated import Generated

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
        """What decides which dispatches run, in canonical JSON form."""
        found: dict[str, dict[str, list[str]]] = {}
        for named in self.named:
            lane = found.setdefault(f"{named.provider} on {named.target}", {})
            lane.setdefault(operation_name(named.operation), []).append(named.configuration)
        return {
            "generated": found,
            "operations": [operation_name(operation) for operation in self.operations],
        }


@dataclass(frozen=True)
class WithoutReused:
    """A selection that leaves out the dispatches that `reused` names."""

    reused: Reused
    inner: Selection
    _operations: frozenset[Operation] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_operations", frozenset(self.reused.operations))

    @property
    def everything(self) -> bool:
        return False

    @property
    def include(self) -> Any:
        """The patterns, for messages."""
        return getattr(self.inner, "include", ())

    def matches(self, provider: str, name: str, operation: Operation) -> bool:
        if provider in self.reused.providers and operation in self._operations:
            return False
        return self.inner.matches(provider, name, operation)


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
            fitting = _fitting(entries, provider, target)
            if fitting:
                served.setdefault(provider, []).append(target)
            for entry in fitting:
                for configuration in entry.configurations:
                    name = f"{operation_name(entry.operation)}_{configuration}"
                    if default_only and configuration != DEFAULT_CONFIGURATION:
                        continue
                    if selection.matches(provider, name, entry.operation):
                        named[_named(entry, configuration, target)] = None
    _refuse_half(served, targets, where)
    others = [provider for provider in providers if provider not in served]
    operations = tuple(dict.fromkeys(entry.operation for entry in entries)) if others else ()
    notes = _notes(entries, named, operations, others, targets, where)
    return Reused(tuple(named), operations, frozenset(served), notes)


def _fitting(entries: Sequence[Generated], provider: str, target: Target) -> list[Generated]:
    own = [entry for entry in entries if entry.provider == provider]
    exact = [entry for entry in own if entry.target == target.name]
    return exact or [entry for entry in own if entry.kind is target.kind]


def _named(entry: Generated, configuration: str, target: Target) -> NamedDispatch:
    return NamedDispatch(
        operation=entry.operation,
        configuration=configuration,
        provider=entry.provider,
        target=target.name,
    )


def _refuse_half(served: dict[str, list[Target]], targets: Sequence[Target], where: str) -> None:
    for provider, mine in served.items():
        missing = [target.name for target in targets if target not in mine]
        if missing:
            have = ", ".join(target.name for target in mine)
            raise RequestError(
                f"{where} contains dispatches of {provider} for {have}, but none for "
                f"{', '.join(missing)}",
                hint=f"Generate them with --device {missing[0]}, or give --device {mine[0].name} "
                "alone.",
            )


def _notes(
    entries: Sequence[Generated],
    named: Iterable[NamedDispatch],
    operations: Sequence[Operation],
    others: Sequence[str],
    targets: Sequence[Target],
    where: str,
) -> tuple[str, ...]:
    """The entries used from the folder, and the kinds of device whose code in it cannot be used
    here. (Code for one architecture may serve another of the same kind.)"""
    written_for = ", ".join(dict.fromkeys(entry.target for entry in entries))
    names = list(named)
    notes = []
    if names:
        notes.append(f"dispatches: {len(names)} of {where}, generated for {written_for}")
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
