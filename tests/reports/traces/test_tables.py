from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from gemmetry.domain.errors import RequestError
from gemmetry.traces.gemms import Gemms, workload
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.gemms import GemmShape
from gemmetry.traces.reading import read_trace
from gemmetry.traces.summary import summarize
from gemmetry.traces.text import (
    notebook_table,
    print_gemms,
    print_summaries,
    print_summary,
    print_workload,
    shape_text,
)

DATA = Path(__file__).parents[2] / "data" / "traces"


@pytest.fixture(scope="module")
def traces():
    names = (
        "h200_fsdp_rank0of4_part.pt.trace.json.gz",
        "v100_resnet50_2021_part.json.gz",
        "mi350_aorta_misc.json.gz",
    )
    return [Trace(DATA / name, read_trace(DATA / name, use_cache=False)) for name in names]


@pytest.fixture
def shown():
    """Runs a printer and returns what a terminal of 80 columns shows."""

    def show(printer, *arguments, **options):
        out = io.StringIO()
        printer(*arguments, Console(file=out, width=80, highlight=False), **options)
        lines = out.getvalue().splitlines()
        assert max(map(len, lines), default=0) <= 80
        return "\n".join(lines)

    return show


def test_every_view_fits_80_columns(traces, shown):
    summaries = [summarize(trace) for trace in traces]
    summary = shown(print_summary, summaries[0])
    assert "exposed" in summary
    assert "overlapping GEMMs" in summary
    assert "v100_resnet50_2021_part.j…" in shown(print_summaries, summaries)
    gemms = shown(print_gemms, Gemms(traces).rows(), top=0)
    assert "GEMM kernels" in gemms
    assert gemms.splitlines()[0].endswith("peak overlap")
    assert "of unknown shape" in shown(print_workload, workload(Gemms(traces).rows()))


def test_a_summary_of_nothing_says_so(shown):
    trace = traces_of_nothing()
    assert "no work on a GPU" in shown(print_summary, summarize(trace))
    assert shown(print_summaries, [summarize(trace)] * 2).count("no work on a GPU") == 2
    assert shown(print_gemms, []) == "no GEMM kernels"


def traces_of_nothing():
    from gemmetry.formats.kineto import read_kineto

    rows = read_kineto(io.BytesIO(b'{"traceEvents": []}'))
    assert rows is not None
    return Trace(Path("a.json"), rows)


def test_shapes_are_formatted():
    assert shape_text(GemmShape(1, 2, 3), "bf16", "tn") == "1x2x3 bf16 tn"
    assert shape_text(GemmShape(1, 2, 3, 4), None, None) == "4x1x2x3"
    assert shape_text(None, "f32", None) == "shape not known f32"


def test_a_notebooks_table_escapes_what_files_are_called(traces):
    html = notebook_table([summarize(traces[0])], {"x": RequestError("<b>no</b>")})
    assert "rank 0 of 4" in html
    assert "&lt;b&gt;no&lt;/b&gt;" in html
