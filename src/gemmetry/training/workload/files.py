"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import StorageError
from gemmetry.store.manifest import indented


@contextlib.contextmanager
def completed(path: Path) -> Iterator[Path]:
    """A name to write to; the file is renamed to `path` when the block ends without an error.

    Raises:
        StorageError: it cannot be written.
    """
    # Its end is not that of a trace, so that no reader takes what an ended process left for one.
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="Free space there, or give another folder with --output.",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON."""
    with completed(path) as partial:
        partial.write_bytes(indented(content))
