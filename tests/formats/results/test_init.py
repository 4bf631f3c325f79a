"""A format of results is one file: what is in ``formats/results`` is found, read and listed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats import benchmarks as results
from gemmetry.formats.benchmarks import StatedOperation, read_results, result_formats

LINES = """
from gemmetry.formats.benchmarks import ForeignResult, ResultFormat

FORMATS = [ResultFormat(
    name="lines", summary="lines of times", recognises=lambda text: text.startswith("TIMES"),
    rows=lambda text: enumerate(text.splitlines()[1:], 2),
    result=lambda row, stated, path: ForeignResult(
        operation=stated.whole(), configuration="line", time_ns=float(row)
    ),
)]
"""


def test_a_file_in_the_folder_is_a_format(tmp_path, monkeypatch) -> None:
    (tmp_path / "lines_of_times.py").write_text(LINES)
    monkeypatch.setattr(results, "__path__", [*results.__path__, str(tmp_path)])
    result_formats.cache_clear()
    try:
        path = tmp_path / "t.txt"
        path.write_text("TIMES\n5\nx\n7\n")
        form, found = read_results(path, StatedOperation("matmul_8x8x8_f32t_f32t_f32t"))
        assert form.name == "lines"
        assert [one.time_ns for one in found.results] == [5, 7]
        (problem,) = found.problems
        assert problem.startswith("t.txt:3: ")
    finally:
        result_formats.cache_clear()
        sys.modules.pop("gemmetry.formats.benchmarks.lines_of_times", None)


@pytest.mark.parametrize("name", ["nvbench.csv", "iree_benchmark.json", "triton_do_bench.csv"])
def test_results_that_do_not_state_the_product_are_refused(name) -> None:
    path = Path(__file__).parents[2] / "data" / "reports" / "23" / name
    with pytest.raises(RequestError) as caught:
        read_results(path, StatedOperation("f16t_f16t_f16t"))
    assert name in caught.value.message


@pytest.mark.parametrize("content", [b"", b"a,b,c\n1,2,3\n", b"{}", b"\x7fELF\x00\xff"])
def test_other_files_are_refused_with_what_is_supported(tmp_path, content) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    with pytest.raises(RequestError, match="no results of a known format") as caught:
        read_results(path, StatedOperation())
    for name in (
        "cutlass_profiler",
        "hipblaslt-bench",
        "tritonbench",
        "FlashInfer-Bench",
        "Kernel Tuner",
    ):
        assert name in caught.value.hint
