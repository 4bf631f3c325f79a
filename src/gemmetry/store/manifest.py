"""``manifest.json``: a description of an experiment, readable without a database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gemmetry.formats.files import write_whole
from gemmetry.store.schema import FORMAT_VERSION, damaged

MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Description of an experiment."""

    name: str
    plan_hash: str
    document: Mapping[str, Any] = field(default_factory=dict)
    """The plan's document; its hash decides whether a command may resume this experiment."""
    commands: tuple[str, ...] = ()
    """Every command line that wrote to this experiment, oldest first, without duplicates."""
    created: str = ""
    """ISO 8601, UTC."""
    format_version: int = FORMAT_VERSION

    def with_command(self, command: str) -> Manifest:
        """The same manifest with `command` added."""
        if not command or command in self.commands:
            return self
        return replace(self, commands=(*self.commands, command))


_MOST_DIFFERENCES = 4
_LONGEST_VALUE = 40


def plan_differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    """The differences between the documents of two plans, for a message: ``trace.repeats (5, now
    3)``; long values are listed by name only. "" if there are none."""
    found = list(_differences(theirs, ours, ""))
    more = len(found) - _MOST_DIFFERENCES
    return ", ".join(found[:_MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")


def _differences(theirs: Mapping[str, Any], ours: Mapping[str, Any], place: str) -> Iterator[str]:
    for key in dict.fromkeys((*theirs, *ours)):
        old, new = theirs.get(key), ours.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, f"{place}{key}.")
            continue
        before, after = (msgspec.json.encode(value).decode() for value in (old, new))
        if before == after:
            continue
        is_short = len(before) + len(after) <= _LONGEST_VALUE
        yield f"{place}{key} ({before}, now {after})" if is_short else f"{place}{key}"


def now() -> str:
    """The time in ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def time_created() -> str:
    """Like :func:`now`, to the microsecond, which distinguishes experiments of one second."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of `folder`; None if it has none.

    Raises:
        JournalDamagedError: it cannot be read, or has another format.
    """
    try:
        text = (folder / MANIFEST_NAME).read_bytes()
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as error:
        raise damaged(folder, f"{MANIFEST_NAME} cannot be read: {error}") from error
    if manifest.format_version != FORMAT_VERSION:
        raise damaged(
            folder,
            f"its format is {manifest.format_version}, but this version of gemmetry reads "
            f"{FORMAT_VERSION}",
        )
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest atomically, so that a reader finds either the old or the new one."""
    write_whole(folder / MANIFEST_NAME, indented(manifest), durable=True)


def indented(document: object) -> bytes:
    """A document as JSON that people can read, with a line end; NaN and infinities are null."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
