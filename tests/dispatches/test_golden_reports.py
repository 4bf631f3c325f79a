"""What every report shows of invented experiments: golden outputs, one file for each experiment."""

from __future__ import annotations

import dataclasses
import errno
import os

import pytest

from gemmetry.dispatches.page import render_html, render_notebook_table
from gemmetry.dispatches.results import format_block, to_csv, to_junit, to_markdown
from gemmetry.dispatches.show import show_dispatch
from gemmetry.dispatches.terminal import print_results
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.record import (
    BuildFacts,
    Environment,
    ResultSet,
)

pytest.importorskip("plotly")

MIXED = [5000.0, 5200.0, 4900.0] * 20
MEMORY = Environment(memory_bytes=33_711_083_520, device_memory_bytes=(85_520_809_984, None))
CASES = ("marks", "common_marks", "intervals", "one_sample", "no_difference", "devices", "reasons",
         "hostile", "unapplied", "facts", "kinds", "some_in_common", "left_out", "no_library",
         "nothing")  # fmt: skip
FIELDS = {
    "marks": {"path": "my runs/a"},
    "one_sample": {"samples": lambda _: [5000.0]},
    "no_difference": {"samples": lambda _: MIXED},
    "devices": {"environments": {"a1": MEMORY, "b2": Environment(hostname="x")}},
}


@pytest.fixture
def texts_of(console_text, page_text, page_data, dumped):
    """Everything that is shown of results."""

    def texts(results, baseline=None):
        page = render_html(results, baseline=baseline)
        data = page_data(page)
        figures = {kind: found for kind, found in data["figures"].items() if kind != "samples"}
        return (
            console_text(lambda console: print_results(results, console, baseline=baseline)),
            to_markdown(results),
            to_junit(results).decode(),
            page_text(page),
            page_text(render_notebook_table(results)),
            dumped(data["palette"]["places"], *data["derived"]),
            *(kind + dumped(*found) for kind, found in figures.items()),
            format_block(results.records),
            to_csv(results, ["dispatch-profiler"]),
        )

    return texts


@pytest.fixture
def show(console_text):
    """What ``gemmetry show`` prints of the dispatches that a pattern matches."""

    def run(results, pattern="*", width=80):
        return console_text(lambda console: show_dispatch(results, pattern, console), width)

    return run


@pytest.mark.parametrize("case", CASES)
def test_an_experiment(case, records_of, texts_of, show, golden):
    results = ResultSet(title=case, records=records_of(case), **FIELDS.get(case, {}))
    shown = [show(results, f"{one.provider}:{one.dispatch}") for one in results.records[:2]]
    golden(f"report_{case}", "\f\n".join([*texts_of(results), *shown]))


@pytest.mark.parametrize("baseline", [None, "iree", "iree:default", "cublaslt:best"])
def test_baselines(baseline, small_result_set, records_of, texts_of, golden):
    more = records_of("small, with a default and the best of several algorithms")
    results = dataclasses.replace(small_result_set, records=[*small_result_set.records, *more])
    name = f"report_baseline_{baseline}".replace(":", "_")
    golden(name, "\f\n".join(texts_of(results, baseline)))
    for wrong in ("iree:defaut", "torhc"):
        with pytest.raises(UnknownNameError, match=r"default|torch"):
            texts_of(results, wrong)


def test_a_wrong_dispatch(small_result_set, records_of, result_set, texts_of, show, golden):
    failed = dataclasses.replace(small_result_set, records=records_of("wrong"), path="run")
    wrong = show(result_set, "matmul_512x512x512_f32t_f32t_f32t_wrong")
    parts = [*texts_of(failed), show(failed), wrong,
             show(result_set, "257x129x65"), show(result_set, "*crashes"),
             show(result_set, "iree:matmul_512x512x512_f32t_f32t_f32t_tile_64x64_32")]  # fmt: skip
    golden("report_wrong", "\f\n".join(parts))


def test_files_are_quoted(result_set, make_record, tmp_path, show, golden):
    """The part of the machine code with most products, and the dispatch's own function."""
    lines = [f"\tmov.b32 %r{i}, 0;" for i in range(100)]
    lines[70:74] = ["\tmma.sync.aligned.m16n8k16 {%r1};"] * 4
    (tmp_path / "a.ptx").write_text("\n".join(lines))
    record = make_record("matmul_64x64x64_f32t_f32t_f32t", facts=BuildFacts(
        assembly_path="a.ptx", tool_output_path="a.log", matrix_instruction="mma.sync",
        source_path="a.mlir", registers=64,
    ))  # fmt: skip
    source = "".join(f"line {i}\n" for i in range(40))
    results = dataclasses.replace(result_set, records=[record], path=str(tmp_path))
    texts = []
    for text in (source, f"func.func @other(\n  other\n}}\n{source}\nfunc.func "
                         f"@{record.dispatch}(\n  own body\n}}\n"):  # fmt: skip
        (tmp_path / "a.mlir").write_text(text)
        texts.append(show(results, width=200))
    for name in ("a.ptx", "a.mlir"):
        (tmp_path / name).unlink()
    texts.append(show(results, width=200))
    text = "\f\n".join(texts).replace(str(tmp_path), "{here}")
    golden("show_files", text.replace(os.strerror(errno.ENOENT), "{no such file}"))
