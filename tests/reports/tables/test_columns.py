from __future__ import annotations

import pytest

from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.errors import UnknownNameError
from gemmetry.reports.tables.columns import (
    PRESETS,
    cell_text,
    select_columns,
    table_rows,
    tag_names,
)

NAME = "matmul_8x8x8_f32t_f32t_f32t"


def test_default_is_every_column_of_the_domain():
    assert [c.heading for c in select_columns(None)] == [c.name for c in COLUMNS]


def test_presets_and_names_mix_without_repetition():
    headings = [c.heading for c in select_columns(["gflops", "summary", "gflops", "seed"])]
    assert headings[0] == "gflops"
    assert headings.count("gflops") == 1
    assert headings[-1] == "seed"


def test_every_preset_expands():
    for preset in PRESETS:
        assert len(select_columns([preset])) > 5


def test_tags_lead_and_replace_their_column(make_record):
    records = [make_record(NAME, tags={"run": "1"}), make_record(NAME, tags={"host": "a"})]
    columns = select_columns(None, tags=tag_names(records))
    assert [c.heading for c in columns[:3]] == ["run", "host", "dispatch"]
    assert "tags" not in [c.heading for c in columns]
    rows = list(table_rows(records, columns))
    assert rows[0][:2] == ["1", None]
    assert rows[1][:2] == [None, "a"]


def test_a_tag_called_like_a_column_keeps_both(make_record):
    record = make_record(NAME, tags={"provider": "mine"})
    columns = select_columns(["provider"], tags=tag_names([record]))
    assert [c.heading for c in columns] == ["tag:provider", "provider"]
    assert next(iter(table_rows([record], columns))) == ["mine", "torch"]


def test_unknown_column_names_the_nearest():
    with pytest.raises(UnknownNameError, match="median_ns"):
        select_columns(["median"])


def test_cells_hold_one_value():
    assert cell_text(["a", "b"]) == "a; b"
    assert cell_text({"a": 1, "b": "c"}) == "a=1; b=c"
    assert cell_text(1.5) == 1.5
    assert cell_text(None) is None
