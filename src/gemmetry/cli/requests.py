"""From options to a request and its plan: the spec file, overridden by ``--set`` and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.cli.console import note

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared
    from gemmetry.specs.model import ProfileSpec
    from gemmetry.specs.operations.defaults import Defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a request comes from."""

    given: dict[str, Any]
    """Keys given as options."""
    spec: Path | None = None
    settings: Iterable[str] = ()
    """``key=value`` of ``--set``."""
    save: Path | None = None


_PATTERN_KEYS = frozenset(("dispatches", "exclude", "output", "shapes", "matrix_sizes", "kernel"))
"""Keys whose items may hold commas of their own, or mean something else joined by commas."""


def given_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as values of a spec: list options become one text, so that ``--dtypes a,b c`` and
    a file's ``dtypes: "a, b, c"`` are read by the same code."""
    return {
        name: ",".join(value) if isinstance(value, list) and name not in _PATTERN_KEYS else value
        for name, value in given.items()
    }


def read_request(source: Source, **defaults: Any) -> ProfileSpec:
    """The spec of a command line; `defaults` are keys for what it leaves out.

    Raises:
        SpecError: every mistake, with its place or its option.
        StorageError: the file of ``--save-spec`` cannot be written.
    """
    from gemmetry.api.profile import read_spec, write_spec
    from gemmetry.specs.loader import command_place, parse_settings

    settings, given = parse_settings(source.settings), given_values(source.given)
    place = command_place(settings.keys() - given.keys())
    spec = read_spec(source.spec, {**settings, **given}, place=place)
    silent = {key: value for key, value in defaults.items() if key not in spec.model_fields_set}
    if silent:
        spec = spec.model_copy(update=silent)
    if source.save is not None:
        write_spec(spec, source.save)
        note(f"spec: {source.save}")
    return spec


def warn_of_idle_patterns(prepared: Prepared) -> None:
    """Warn of patterns that selected nothing while others did, after the plan was enumerated."""
    from gemmetry.specs.reuse import WithoutReused
    from gemmetry.specs.selection import PatternSelection

    selection = prepared.plan.selection
    if isinstance(selection, WithoutReused):
        selection = selection.inner
    if not isinstance(selection, PatternSelection):
        return
    for text in selection.idle_patterns():
        # A full name is a dispatch even where no provider lists its configuration.
        if set(text) & set("*?[{=") or text.startswith("re:"):
            note(f"warning: the pattern {text!r} matches no dispatch")


def plan_request(
    spec: ProfileSpec,
    source: Source,
    *,
    defaults: Defaults | None = None,
    shows_notes: bool = True,
    takes_generated: bool = True,
) -> Prepared:
    """The plan of `spec`; notes about choices made by default are printed on stderr."""
    from gemmetry.api.profile import prepare

    # Paths in a spec file are relative to it, those on the command line to the working directory.
    is_from_file = source.spec is not None and not {"shapes", "kernel"} & set(source.given)
    base = source.spec.parent if is_from_file and source.spec is not None else None
    prepared = prepare(spec, defaults=defaults, base=base, takes_generated=takes_generated)
    for text in prepared.notes if shows_notes else ():
        note(text)
    return prepared
