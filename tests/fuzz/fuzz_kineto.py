"""Fuzzes the readers of traces with atheris: ``python tests/fuzz/fuzz_kineto.py [FOLDER]``.

The readers may refuse a file or report problems; they may raise no other exception, and rows must
keep the promises of ``formats/events.py``.
"""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gemmetry.formats", "gemmetry.traces"]):
    import numpy as np

    from gemmetry.domain.errors import RequestError
    from gemmetry.formats.events import TraceRows
    from gemmetry.formats.kineto import read_kineto
    from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_json
    from gemmetry.traces.reading import read_trace

SAMPLES = Path(__file__).parents[1] / "data" / "traces"
_FOLDER = Path(tempfile.mkdtemp(prefix="gemmetry-fuzz-"))


def check(rows: TraceRows | None) -> None:
    """What readers promise about rows."""
    if rows is None:
        return
    for table in (rows.gpu, rows.calls, rows.operators, rows.annotations):
        assert (table.duration_ns >= 0).all()
        assert ((table.name >= 0) & (table.name < len(rows.names))).all()
        assert (np.abs(table.start_ns) <= 2**62).all()
    assert (rows.gpu.collective < len(rows.collectives)).all()
    assert (rows.calls.thread < len(rows.threads)).all()
    assert (rows.operators.arguments < len(rows.arguments)).all()
    assert len(rows.gpu.start_ns) <= rows.events


def one_input(data: bytes) -> None:
    """Try one file; its first byte chooses the size of a piece and the reader."""
    if not data:
        return
    choice, text = data[0], data[1:]
    chunk_bytes = 64 << (choice & 7)
    if choice & 64:
        path = _FOLDER / ("1_kernel_trace.csv" if choice & 16 else "trace.json")
        path.write_bytes(text)
        try:
            check(read_trace(path, use_cache=False))
        except RequestError:
            pass
    elif choice & 16:
        check(read_rocprofv3_json(io.BytesIO(text), chunk_bytes=chunk_bytes))
    else:
        check(read_kineto(io.BytesIO(text), chunk_bytes=chunk_bytes))


def write_corpus(folder: Path) -> None:
    """Seeds: the beginnings of the committed samples."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in SAMPLES.glob("*.*"):
        text = path.read_bytes()
        if path.suffix == ".gz":
            text = gzip.decompress(text)
        choice = 16 if "results" in path.name else 32 if "_et_" in path.name else 10
        choice = 64 | 16 if path.suffix == ".csv" else choice
        for size in (2_000, 20_000):
            (folder / f"{path.name}.{size}").write_bytes(bytes([choice]) + text[:size])


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    if folders:
        write_corpus(folders[0])
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
