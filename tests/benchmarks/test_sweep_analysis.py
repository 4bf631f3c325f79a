"""The benchmark of sweeps."""

from __future__ import annotations

import sys

import pytest
import sweep_analysis as benchmark

from gemmetry.sweeps.api import analyze


def test_a_made_sweep_has_a_trace_for_each_rank(tmp_path):
    folder = benchmark.make_sweep(tmp_path, 6, None)
    found = analyze(folder)
    (point,) = found.analysis.points
    assert [one.facts.rank for one in point.ranks] == list(range(6))
    assert point.world_size == 6
    assert found.problems == []


def test_seconds_and_memory_of_a_process_and_its_children():
    block = "bytearray(80_000_000)"
    child = f"import time; b = {block}; time.sleep(0.3)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    seconds, used, memory = benchmark.measure([sys.executable, "-c", program])
    assert seconds > 0.3
    assert used > 0
    assert memory > 80


def test_a_command_that_fails_is_reported():
    with pytest.raises(RuntimeError, match="no sweep"):
        benchmark.measure([sys.executable, "-c", "raise SystemExit('no sweep')"])


def test_a_row():
    assert benchmark.line("s", 32, (1.44, 2.5, 162.4)) == "| s | 32 | 1.4 | 2.5 | 78 | 162 |"
