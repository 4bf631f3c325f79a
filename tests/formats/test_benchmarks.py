"""Results of other benchmarks; small files of most are in ``test_golden``."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from gemmetry.domain import opening
from gemmetry.domain.errors import RequestError
from gemmetry.formats import benchmarks as results
from gemmetry.formats.benchmarks import StatedOperation, read_results, result_formats

LINES = """
from gemmetry.formats.benchmarks import ForeignResult, ResultFormat

FORMATS = [ResultFormat(
    name="lines", summary="lines of times", recognises=lambda text: text.startswith("TIMES"),
    rows=lambda text: enumerate(text.splitlines()[1:], 2),
    result=lambda row, stated, path: ForeignResult(
        operation=stated.whole(), configuration="line", time_ns=float(row)),
)]
"""


def test_a_file_in_the_folder_is_a_format(tmp_path, monkeypatch) -> None:
    (tmp_path / "lines_of_times.py").write_text(LINES)
    path = tmp_path / "t.txt"
    path.write_text("TIMES\n5\nx\n7\n")
    result_formats.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(results, "__path__", [*results.__path__, str(tmp_path)])
        form, found = read_results(path, StatedOperation("matmul_8x8x8_f32t_f32t_f32t"))
    result_formats.cache_clear()
    sys.modules.pop("gemmetry.formats.benchmarks.lines_of_times")
    assert form.name == "lines"
    assert [one.time_ns for one in found.results] == [5, 7]
    (problem,) = found.problems
    assert problem.startswith("t.txt:3: ")


@pytest.mark.parametrize("name", ["nvbench.csv", "iree_benchmark.json", "triton_do_bench.csv"])
def test_results_that_do_not_state_the_product_are_refused(name) -> None:
    path = Path(__file__).parents[1] / "data" / "reports" / "23" / name
    with pytest.raises(RequestError, match=name):
        read_results(path, StatedOperation("f16t_f16t_f16t"))


@pytest.mark.parametrize("content", [b"", b"a,b,c\n1,2,3\n", b"{}", b"\x7fELF\x00\xff"])
def test_other_files_are_refused_with_what_is_supported(tmp_path, content) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(RequestError) as caught:
        read_results(path, StatedOperation())
    for form in result_formats():
        assert form.summary in caught.value.hint


def test_the_longest_field_and_the_deepest_document_are_bounded(tmp_path, monkeypatch) -> None:
    lines = json.loads((Path(__file__).parents[1] / "data" / "read" / "benchmark.json").read_text())
    table = next(one["files"]["c.csv"] for one in lines if "c.csv" in one["files"])
    header, row = table.splitlines()
    path = tmp_path / "c.csv.gz"
    wide = row.replace("cutlass3x", "x" * 200_000)
    path.write_bytes(gzip.compress("\n".join([header, wide, row]).encode()))
    monkeypatch.setattr(opening, "LONGEST_FIELD", 131_072)
    found = read_results(path, StatedOperation())[1]
    assert (len(found.results), len(found.problems)) == (1, 1)
    path = tmp_path / "k.json"
    path.write_text('{"tune_params_keys": ["MWG"], "cache": ' + "[" * 100_000)
    assert len(read_results(path, StatedOperation())[1].problems) == 1
