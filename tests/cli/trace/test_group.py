from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

from gemmetry.traces.reading import SMALLEST_CACHED_BYTES

_TRACES = Path(__file__).parents[2] / "data" / "traces"
_SCRIPT = """
import os, sys
from gemmetry.cli.main import run

threads = os.environ.get("OPENBLAS_NUM_THREADS")
status = run(sys.argv[2:])
print(status, sorted(set(sys.argv[1].split()) & set(sys.modules)))
assert os.environ.get("OPENBLAS_NUM_THREADS") == threads
"""
_HEAVY = "polars torch jinja2 rich.console plotly matplotlib"


def _loaded(of: str, *arguments: str) -> str:
    """Exit status of a command, and which of some modules it loads."""
    script = [sys.executable, "-c", _SCRIPT, of, *arguments]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_a_workbook_does_not_load_what_it_does_not_need(tmp_path):
    trace = _TRACES / "h200_matmul.pt.trace.json.gz"
    output = str(tmp_path / "r.xlsx")
    assert _loaded(_HEAVY, "trace", "report", str(trace), "--no-cache", "-o", output) == "0 []"


def test_the_summary_of_a_cached_trace_loads_no_reader(tmp_path):
    trace = tmp_path / "trace.json"
    packed = _TRACES / "h200_fsdp_rank0of4_part.pt.trace.json.gz"
    trace.write_bytes(gzip.decompress(packed.read_bytes()).ljust(SMALLEST_CACHED_BYTES))
    readers = "gemmetry.formats.kineto gemmetry.formats.rocm.rocpd sqlite3"
    tables = "gemmetry.traces.gemms gemmetry.domain.record numpy.ma"
    command = (f"{_HEAVY} {readers} {tables}", "trace", "summary", str(trace), "--json")
    assert _loaded(*command) != "0 []"
    assert _loaded(*command) == "0 []"
