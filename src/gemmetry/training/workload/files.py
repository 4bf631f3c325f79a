"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import StorageError
from gemmetry.formats.files import completed
from gemmetry.store.manifest import indented


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to; the file is renamed to `path` when the block ends without an error.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with completed(path) as partial:
            yield partial
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="Free space there, or give another folder with --output.",
        ) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON."""
    with whole_file(path) as partial:
        partial.write_bytes(indented(content))
