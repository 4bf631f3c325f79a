from __future__ import annotations

import pytest

from gemmetry.cli.console import check_outputs, emit
from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.tables import Column, ColumnType, Table

COLUMNS = (
    Column("name"), Column("ok", ColumnType.BOOLEAN), Column("many", ColumnType.TEXTS),
    Column("none"), Column("parts", ColumnType.MAPPING),
)  # fmt: skip
THINGS = Table(
    "things",
    COLUMNS,
    [("a|b", True, ["1", "2"], None, {"k": 1}), ("<i>", False, [], "x", {})],
)


def test_an_empty_table_is_still_a_table(tmp_path, capsys):
    emit(Table("things", COLUMNS), as_json=False, outputs=[tmp_path / "t.csv"])
    assert (tmp_path / "t.csv").read_text() == "name,ok,many,none,parts\n"
    assert capsys.readouterr().out.split() == ["name", "ok", "many", "none", "parts"]


def test_files_that_cannot_be_written_are_refused_before_anything_is_printed(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for name, error in (("t.pdf", RequestError), ("file/t.csv", StorageError)):
        with pytest.raises(error):
            emit(THINGS, as_json=True, outputs=[tmp_path / name])
        with pytest.raises(error):
            check_outputs([tmp_path / name])
    assert capsys.readouterr().out == ""
