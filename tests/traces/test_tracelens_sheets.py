from __future__ import annotations

from gemmetry.formats import tracelens
from gemmetry.traces.tracelens_sheets import BY_NAME, SHEETS


def test_every_sheet_that_we_read_of_tracelens_we_can_write():
    assert {sheet.name for sheet in SHEETS} == set(tracelens.SHEETS)
    assert set(BY_NAME) == set(tracelens.SHEETS)


def test_columns_are_named_once_and_say_what_they_mean():
    for sheet in SHEETS:
        assert len(set(sheet.headings)) == len(sheet.headings), sheet.name
        assert sheet.what.endswith(".")
        for column in sheet.columns:
            assert column.meaning, (sheet.name, column.name)


def test_order_of_columns_that_scripts_take_by_place():
    # ROCm/aorta's overlap script takes ts and dur as columns 15 and 16.
    assert BY_NAME["nccl_long"].headings[15:17] == ("ts", "dur")
    assert BY_NAME["gpu_timeline"].headings == ("type", "time ms", "percent")
