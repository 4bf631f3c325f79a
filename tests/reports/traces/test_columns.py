from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.reports.traces import collective_tables
from gemmetry.reports.traces.columns import COLUMNS
from gemmetry.reports.traces.steps import step_rows
from gemmetry.reports.traces.tables import gemm_rows, shape_rows, summary_rows
from gemmetry.traces.collectives.jobs import analyse_jobs
from gemmetry.traces.gemms.shapes import workload
from gemmetry.traces.gemms.summary import gemm_table
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.loading import read_all
from gemmetry.traces.summary import summarize, summarize_steps

DATA = Path(__file__).parents[2] / "data" / "traces"


@pytest.fixture(scope="module")
def tables():
    files = sorted(DATA.glob("h200_fsdp_*"))
    traces = list(read_all(files, {}, use_cache=False))
    gemms = gemm_table(traces)
    jobs, alone = (analyse_jobs(map(rank_trace, found)) for found in (traces, traces[:1]))
    of_jobs = {
        f"collectives_{name}": [
            row for found in (jobs, alone) for row in getattr(collective_tables, maker)(found)
        ]
        for name, maker in (
            ("matched", "matched_rows"), ("kernels", "kernel_rows"), ("kinds", "kind_rows"),
            ("ranks", "rank_rows"),
        )
    }  # fmt: skip
    return {
        "trace_summary": summary_rows(map(summarize, traces)),
        "trace_steps": step_rows(step for trace in traces for step in summarize_steps(trace)),
        "gemms": gemm_rows(gemms),
        "shapes": shape_rows(workload(gemms)),
        **of_jobs,
    }


def test_every_row_of_every_table_has_its_columns(tables):
    assert set(tables) == set(COLUMNS)
    for name, rows in tables.items():
        assert rows
        assert {tuple(row) for row in rows} == {COLUMNS[name]}, name
