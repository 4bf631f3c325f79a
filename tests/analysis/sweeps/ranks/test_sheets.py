"""The sheet of GEMMs that is kept of each trace."""

from __future__ import annotations

from gemmetry.domain.tables import Column, Table
from gemmetry.sweeps.workers import gemm_rows, packed_sheet


def test_rows_survive_packing():
    table = Table("GEMM", (Column("name"), Column("param: M")), [("aten::mm", 8), ("µ", None)])
    assert gemm_rows(packed_sheet(table)) == table.records()
    assert packed_sheet(None) == b""
    assert gemm_rows(b"") == []
