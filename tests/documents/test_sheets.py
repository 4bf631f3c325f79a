from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gemmetry.documents.tracelens import BY_NAME, SHEETS
from gemmetry.formats import xlsx as tracelens


def test_every_sheet_that_we_read_of_tracelens_we_can_write():
    assert {sheet.name for sheet in SHEETS} == set(tracelens.SHEETS)
    assert set(BY_NAME) == set(tracelens.SHEETS)


def test_columns_are_named_once_and_say_what_they_mean():
    for sheet in SHEETS:
        assert len(sheet.table(()).names) > 1, sheet.name
        assert sheet.what.endswith(".")
        for column in sheet.columns:
            assert column.description, (sheet.name, column.name)


def test_order_of_columns_that_scripts_take_by_place():
    # ROCm/aorta's overlap script takes ts and dur as columns 15 and 16.
    assert BY_NAME["nccl_long"].table(()).names[15:17] == ("ts", "dur")
    assert BY_NAME["gpu_timeline"].table(()).names == ("type", "time ms", "percent")


WRITTEN = json.loads((Path(__file__).parents[1] / "data" / "tracelens_sheets.json").read_text())


@pytest.mark.parametrize("name", WRITTEN["headings"])
def test_headings_are_those_that_tracelens_wrote(name):
    """Of its reports of nine traces and of a job of four ranks, in its order."""
    theirs = [re.sub(r"\Arank_\d+_", "rank_*_", heading) for heading in WRITTEN["headings"][name]]
    # Parameters are there if an operator has them, in an order that differs between traces.
    ours = BY_NAME[name].table(()).names
    assert [h for h in ours if h in theirs] == list(dict.fromkeys(theirs))
    assert set(ours) - set(theirs) <= {"param: transpose", "param: padding"}
