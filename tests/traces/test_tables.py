from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from gemmetry.documents.tracelens_workbooks import TraceLensSheets
from gemmetry.domain import rows
from gemmetry.domain.rows import derived
from gemmetry.domain.tables import ColumnType
from gemmetry.results.emit import Result, write_tables
from gemmetry.traces import report as collectives
from gemmetry.traces.collectives.matching import analyse_jobs
from gemmetry.traces.gemms import Gemms, workload
from gemmetry.traces.jobs import rank_trace
from gemmetry.traces.reading import read_all
from gemmetry.traces.report import (
    build_report,
    gemms_table,
    shapes_table,
    step_table,
    summary_table,
)
from gemmetry.traces.summary import Summary, summarize, summarize_steps

DATA = Path(__file__).parents[1] / "data"
KINDS = {ColumnType.TEXT: {str}, ColumnType.INTEGER: {int}, ColumnType.NUMBER: {int, float},
         ColumnType.BOOLEAN: {bool}, ColumnType.TEXTS: {list},
         ColumnType.MAPPING: {dict}}  # fmt: skip


@pytest.fixture(scope="module")
def traces():
    files = sorted((DATA / "traces").glob("h200_fsdp_*"))
    return list(read_all(files, {}, use_cache=False))


def check_types(table, exceptions=()):
    assert table.rows
    for column in table.columns:
        kinds = {type(value) for value in table.values(column.name) if value is not None}
        if column.name not in exceptions:
            assert kinds <= KINDS[column.type], (table.name, column.name)


def test_values_have_the_types_of_their_columns(traces):
    gemms = Gemms(traces).rows()
    jobs, alone = (analyse_jobs(map(rank_trace, found)) for found in (traces, traces[:1]))
    makers = (collectives.matched_table, collectives.kernels_table, collectives.kinds_table,
              collectives.ranks_table)  # fmt: skip
    for table in (
        summary_table(map(summarize, traces)),
        step_table(step for trace in traces for step in summarize_steps(trace)),
        gemms_table(gemms),
        shapes_table(workload(gemms)),
        *(make(found) for make in makers for found in (jobs, alone)),
    ):
        check_types(table)


@pytest.mark.parametrize(
    "path", ["traces/h200_matmul.pt.trace.json.gz", "traces/mi350_aorta_misc.json.gz",
             "collectives/hta_2of128", "cpu_grid"],
)  # fmt: skip
def test_cells_of_sheets_have_the_types_of_their_columns(path):
    report = build_report(
        read_all([DATA / path], {}, use_cache=False), {}, sheets=TraceLensSheets()
    )
    assert len(report.tables) > 2
    for table in report.tables:
        # TraceLens writes Unknown where the number of elements is not known.
        is_mixed = table.name == "nccl_summary_implicit_sync"
        check_types(table, ("In msg nelems",) if is_mixed else ())


class Wider(Summary):
    """A summary with one more fact."""

    busy_share = derived("share of the window", "%", type=float)(
        lambda one: one.busy_ns / one.window_ns
    )


def test_a_column_is_added_by_its_declaration(traces, tmp_path):
    """Documents, files with their explanations, and frames follow."""
    found = [summarize(trace) for trace in traces]
    wider = [Wider(**{f.name: getattr(one, f.name) for f in dataclasses.fields(one)})
             for one in found]  # fmt: skip
    table = rows.table("trace_summary", Wider, wider)
    assert table.names == (*summary_table(found).names, "busy_share")
    assert all(0 < share <= 1 for share in table.values("busy_share"))
    described = rows.schema(Wider)["properties"]["busy_share"]["description"]
    assert described == "share of the window (in %)"
    document = Result(rows={"files": rows.Rows(Wider, wider)}).document()
    write_tables([table], tmp_path / "t.json")
    written = json.loads((tmp_path / "t.json").read_text())["trace_summary"]
    for one in (document["files"][0], written[0]):
        assert one["busy_share"] == table.rows[0][-1]
    write_tables([table], tmp_path / "t.html")
    assert described in (tmp_path / "t.html").read_text()
