from __future__ import annotations

import json
import os
from unittest.mock import Mock

import pytest

from gemmetry.counters.collector import Collected, divide
from gemmetry.counters.tools import CollectFiles
from gemmetry.domain.errors import StorageError

PUSHED = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
STARTED = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"


def pushed(*names: str) -> str:
    return "".join(
        f'7  ""<default domain>:{name}:none:none:none:none:none:none"" ' for name in names
    )


@pytest.fixture
def collected(tmp_path):
    """What was collected of launches with these cells about pushed and about started ranges."""

    def of(*rows: tuple[str, str], columns=(PUSHED, STARTED)) -> Collected:
        files = CollectFiles.at(tmp_path / "whole")
        files.folder.mkdir()
        header = ["ID", *columns, "Kernel Name", "gpu__time_duration.sum"]
        cells = [header, ["", *("" for _ in columns), "", "ns"]]
        cells += [[str(n), *row[: len(columns)], f"kernel {n}", f"1,00{n}"]
                  for n, row in enumerate(rows)]  # fmt: skip
        lines = ["==PROF== a note", *(",".join(f'"{cell}"' for cell in one) for one in cells)]
        files.table.write_text("\n".join(lines) + "\n")
        files.report.write_bytes(b"NVR")
        files.description.write_text(
            json.dumps({"launches": len(rows), "notes": ["a"], "set": "x"})
        )
        files.application_log.write_text("printed\n")
        return Collected(files=files, launches=len(rows), passes=9, notes=("a",))

    return of


def kernels(part: Collected) -> list[str]:
    header, units, *rows = part.files.table.read_text().splitlines()
    assert header.startswith('"ID","') and units.endswith('"ns"')
    return [row.split('","')[-2] for row in rows]


def test_each_range_has_its_launches_whichever_way_it_was_opened(collected, tmp_path):
    whole = collected((pushed("a_1"), ""), (pushed("outer", "a_11"), ""), ("", pushed("a_2")),
                      (pushed("outer", "a_1"), ""), ("", ""))  # fmt: skip
    parts = divide(whole, {name: tmp_path / name for name in ("a_1", "a_11", "a_2", "a_3")})
    assert {name: kernels(part) for name, part in parts.items()} == {
        "a_1": ["kernel 0", "kernel 3"], "a_11": ["kernel 1"], "a_2": ["kernel 2"],
    }  # fmt: skip
    assert (parts["a_1"].launches, parts["a_1"].passes) == (2, 9)
    described = json.loads((tmp_path / "a_1/counters.json").read_text())
    assert (described["launches"], described["set"], described["notes"][0]) == (2, "x", "a")
    assert "in the range a_1" in described["notes"][1]
    assert not (tmp_path / "a_3").exists()


def test_the_report_and_the_logs_are_the_same_files_and_replace_older_ones(
    collected, tmp_path, monkeypatch
):
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "counters.profiler.log").write_text("of an earlier collection")
    whole = collected((pushed("a", "b"), ""))
    divide(whole, {"a": folder})
    report = folder / "counters.ncu-rep"
    assert report.samefile(tmp_path / "whole/counters.ncu-rep")
    assert (folder / "counters.application.log").read_text() == "printed\n"
    assert not (folder / "counters.profiler.log").exists()
    # A file system without links has copies.
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError))
    divide(whole, {"b": tmp_path / "b"})
    assert (tmp_path / "b/counters.ncu-rep").read_bytes() == report.read_bytes()


def test_without_ranges_in_the_report_there_are_no_parts(collected, tmp_path):
    assert divide(collected(("", ""), columns=()), {"a": tmp_path / "a"}) == {}
    (tmp_path / "whole/counters.csv").unlink()
    shown = Collected(files=CollectFiles.at(tmp_path / "whole"), launches=1, passes=1)
    assert divide(shown, {"a": tmp_path / "a"}) == {}


def test_a_folder_that_cannot_be_written_is_named(collected, tmp_path):
    (tmp_path / "a").write_text("a file")
    with pytest.raises(StorageError, match="/a cannot be written"):
        divide(collected((pushed("a"), "")), {"a": tmp_path / "a"})
