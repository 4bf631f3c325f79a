"""Fuzzes tables and reports of traces with atheris: ``python tests/fuzz/fuzz_tables.py FOLDER``.

The input decides the traces of two ranks of a job (``hostile_traces.py``). Every table and every
report of them is created.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gemmetry.traces", "gemmetry.dispatches"]):
    from hostile_traces import check_everything, hostile_trace

_FOLDER = Path(tempfile.mkdtemp(prefix="gemmetry-fuzz-"))


def one_input(data: bytes) -> None:
    """Try one job of two ranks."""
    paths = []
    for rank in range(2):
        path = _FOLDER / f"rank{rank}.json"
        path.write_bytes(hostile_trace(data, rank))
        paths.append(path)
    check_everything(paths, _FOLDER)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
