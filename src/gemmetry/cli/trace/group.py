"""``gemmetry trace``: the group of commands about traces."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, ClassVar

from gemmetry.cli.groups import LazyGroup, group_app

_THREADS = "OPENBLAS_NUM_THREADS"


class TraceGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "record": "trace.record",
        "summary": "trace.tables",
        "gemms": "trace.tables",
        "shapes": "trace.tables",
        "collectives": "trace.collectives",
        "report": "trace.report",
    }

    @classmethod
    def load(cls, name: str) -> Any:
        if name != "record":
            _import_numpy_alone()
        return super().load(name)


app = group_app(TraceGroup, "Record and read traces.")


def _import_numpy_alone() -> None:
    """Import numpy without the threads that OpenBLAS starts at its import, which take as long as
    half of it: reading a trace multiplies no matrices."""
    if "numpy" in sys.modules:
        return
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        # Processes started from here must have the given variables.
        del os.environ[_THREADS]
        if before is not None:
            os.environ[_THREADS] = before
