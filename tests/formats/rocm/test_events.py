"""Events of rocprofv3's CSV files and JSON documents; small files are in ``test_golden``."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.errors import RequestError
from gemmetry.formats.events import TraceRows
from gemmetry.formats.rocm import tables
from gemmetry.formats.rocm.rocprofv3 import read_rocprofv3_csv, read_rocprofv3_json

SAMPLES = Path(__file__).parents[2] / "data" / "traces"
SAMPLE = SAMPLES / "mi350x_908_part_results.json.gz"
KERNELS = "Agent_Id,Queue_Id,Kernel_Name,Start_Timestamp,End_Timestamp,Grid_Size_X\n"


def test_many_rows_with_odd_names_in_a_packed_file_that_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROWS_A_BLOCK", 1000)
    names = ['"a, ""b"""', '"two\nlines"', "k" * 1_000_000, "=1+1"]
    rows = "".join(f"4,1,{names[i % 4 if i < 4 else 3]},{i + 1},{i * 7919 % 1000 + 5000},1\n"
                   for i in range(5000))  # fmt: skip
    packed = gzip.compress((KERNELS + rows).encode())
    path = tmp_path / "my kernels.csv.gz"
    path.write_bytes(packed)
    csv.field_size_limit(1000)  # as another library of the process may
    found = read_rocprofv3_csv(path)
    assert found is not None
    assert len(found.gpu.start_ns) == 5000
    assert found.gpu.start_ns.tolist() == list(range(1, 5001))
    first, second, third, last = (found.names[i] for i in found.gpu.name[:4])
    assert (first, second, last, len(third) < 20_000) == ('a, "b"', "two\nlines", "=1+1", True)
    path.write_bytes(packed[: len(packed) // 2])
    found = read_rocprofv3_csv(path)
    assert found is not None
    assert 500 < len(found.gpu.start_ns) < 4500
    assert found.partial
    with pytest.raises(RequestError):
        read_rocprofv3_csv(tmp_path / "none.csv")


def dispatch(start: int) -> dict[str, Any]:
    return {
        "start_timestamp": start, "end_timestamp": start + 1,
        "dispatch_info": {"agent_id": {"handle": 11}, "kernel_id": 7, "grid_size": {"x": 65}},
    }  # fmt: skip


def document(*dispatches: dict[str, Any]) -> bytes:
    process = {
        "agents": [{"id": {"handle": 11}, "type": 2, "name": "gfx950", "gpu_index": 0}],
        "kernel_symbols": [{"kernel_id": 7, "formatted_kernel_name": "gemm [clone .kd]"}],
        "buffer_records": {"kernel_dispatch": list(dispatches), "hip_api": []},
    }
    return json.dumps({"rocprofiler-sdk-tool": [process]}).encode()


def names(rows: TraceRows) -> list[str]:
    return [rows.names[i] for i in rows.gpu.name]


@given(st.integers(0, 400))
@settings(deadline=None, max_examples=60)
def test_a_document_cut_anywhere_gives_its_complete_records(missing):
    text = document(*map(dispatch, range(20)))
    rows = read_rocprofv3_json(io.BytesIO(text[: len(text) - missing]), chunk_bytes=512)
    assert rows is not None
    count = len(rows.gpu.start_ns)
    assert rows.gpu.start_ns.tolist() == list(range(count))
    # Names and agents are known as well, since they stand before the records.
    assert (names(rows), rows.gpu.device.tolist()) == (["gemm"] * count, [0] * count)


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_damage_anywhere_raises_nothing(data):
    text = bytearray(document(*[dispatch(1)] * 3))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    stream, chunk_bytes = io.BytesIO(bytes(text)), data.draw(st.integers(1, 2000))
    rows = read_rocprofv3_json(stream, chunk_bytes=chunk_bytes)
    if rows is None:  # Not even the kind of document can be recognised.
        return
    assert (rows.gpu.start_ns > 0).sum() <= 3, "damage invents no dispatch that has a time"
    assert (rows.gpu.duration_ns >= 0).all()


def test_a_real_document_whatever_the_size_of_a_piece():
    """Records of the document are compared in ``traces/test_real_traces``."""
    text = gzip.decompress(SAMPLE.read_bytes())
    rows, parts = (
        read_rocprofv3_json(io.BytesIO(text), chunk_bytes=size) for size in (1 << 22, 1024)
    )
    assert rows is not None and parts is not None
    assert set(rows.devices.values()) == {"AMD Instinct MI350X"}
    assert (rows.gpu.grid > 0).all()
    assert np.array_equal(rows.gpu.start_ns, parts.gpu.start_ns)
    assert (names(parts), parts.problems) == (names(rows), ())
