"""rocpd databases of rocprofv3."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gemmetry.domain.opening import SQLITE_MAGIC
from gemmetry.formats.readers import TraceFormat

if TYPE_CHECKING:
    from gemmetry.formats.events import TraceRows


def _confirmed(path: Path) -> bool:
    from gemmetry.formats.rocm.rocpd import is_rocpd

    return is_rocpd(path)


def _read(path: Path) -> TraceRows | None:
    from gemmetry.formats.rocm.rocpd import read_rocpd

    return read_rocpd(path)


FORMAT = TraceFormat(
    name="rocpd database (SQLite)",
    suffix=".db",
    summary="rocprofv3's .db files (rocpd)",
    begins=lambda text: text.startswith(SQLITE_MAGIC),
    confirmed=_confirmed,
    read=_read,
    problem="it is a SQLite database that is damaged or has no tables of rocprofv3",
)
