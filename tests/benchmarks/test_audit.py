"""The audit of released kernels: classes of texts, the draw, and a run with stand-ins for built
kernels."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
from collections.abc import Sequence

import audit
import pytest
import table
from classify import CLASSES, Kernel, classify

from gemmetry.cli.main import run

F16 = "using Atom = SM80_16x8x16_F16F16F16F16_TN; // F32F16F16F32\n"
F32 = "/* f16: F16F16F16F16 */ using ElementAccumulator = float;\n"
READS = "launch(a.data_ptr(), b_col_major.data_ptr(), c.data_ptr());\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (F16, "f16"),
        (F32, "f32"),
        (F16 + F32, "both"),
        ("", "unknown"),
        ("wmma::fragment<wmma::accumulator, 16, 16, 16, half> c;", "f16"),
        ("fragment<accumulator, 16, 16, 16, float> c;", "f32"),
        ('asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 ...");', "f16"),
        ('asm("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 ...");', "f32"),
        ("template <class T, typename AccumulatorType = cutlass::half_t>", "f16"),
        ("using ElementAccumulator = half_truth;", "unknown"),
        (F32 + "cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);", "own stream"),
        (F32 + "int split_k = 4; half *partial_buf;", "f16 partials"),
        (F32 + "half *output;", "f32"),
    ],
)
def test_a_class_is_what_the_text_shows(text: str, kind: str) -> None:
    assert classify("64_96_128", text + READS).kind == kind


def test_operand_and_padding_follow_the_text() -> None:
    name = "64_96_128"
    assert classify(name, READS).operation("f16") == "matmul_64x96x128_f16t_f16n_f16t_accf16"
    assert classify(name, "b.data_ptr()").operand == "t"
    assert classify(name, "b.data_ptr(); b_col_major.data_ptr()").operand == ""
    for n, is_padded in ((48, False), (64, True)):
        tile = f"auto BM = Int<64>{{}}; auto BN = Int<{n}>{{}}; auto BK = Int<32>{{}};"
        assert classify(name, tile).padded is is_padded


def test_a_draw_is_usable_repeatable_and_within_classes() -> None:
    kernels = [Kernel(f"{m}_8_8", kind, "n" if m % 3 else "", m % 5 == 0, "")
               for kind in CLASSES for m in range(1, 40)]  # fmt: skip
    counts = dict.fromkeys(CLASSES, 7) | {"unknown": 100}
    drawn = audit.draw(kernels, counts, 1)
    assert drawn == audit.draw(reversed(kernels), counts, 1) != audit.draw(kernels, counts, 2)
    assert all(one.operand and not one.padded for one in drawn)
    usable = sum(bool(one.operand) and not one.padded for one in kernels) // len(CLASSES)
    found = {kind: sum(one.kind == kind for one in drawn) for kind in CLASSES}
    assert found == dict.fromkeys(CLASSES, 7) | {"unknown": usable}


STAND_IN = """
#include <stdint.h>
int launch(SUM *unused, void *b, _Float16 *c, int64_t m, int64_t n, int64_t k, void *s, char *r)
{
    _Float16 *left = (_Float16 *)unused, *right = b;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            SUM sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum = (SUM)(sum + (SUM)left[i * k + p] * (SUM)right[j * k + p]);
            c[i * n + j] = (_Float16)sum;
        }
    return CRASH;
}
"""


_run_process = audit._run


def in_this_process(command: Sequence[str], seconds: float) -> audit.Output:
    """What a command of gemmetry prints, without a process that first imports everything."""
    if command[1:3] != ["-m", "gemmetry"]:
        return _run_process(command, seconds)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        run(list(command[3:]))
    return audit.Output(printed.getvalue(), json.loads(printed.getvalue()))


def test_rows_show_the_accumulator_the_crash_and_the_missing_build(tmp_path, monkeypatch) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler with _Float16")
    work, sources = tmp_path / "work", tmp_path / "kernels"
    (work / "built").mkdir(parents=True)
    sources.mkdir()
    source = tmp_path / "stand_in.c"
    source.write_text(STAND_IN)
    for name, total, ending in (
        ("16_24_256", "_Float16", "0"), ("16_16_16", "float", "*(volatile int *)0"),
        ("16_16_32", "", ""),
    ):  # fmt: skip
        (sources / f"{name}.cu").write_text(F32 + READS)
        command = [compiler, "-O2", "-shared", "-fPIC", f"-DSUM={total}", f"-DCRASH={ending}",
                   str(source), "-o", str(work / "built" / f"{name}.so")]  # fmt: skip
        if total and subprocess.run(command, check=False).returncode:
            pytest.skip("the C compiler has no _Float16")
    output = tmp_path / "rows.json"
    monkeypatch.setattr(audit, "_run", in_this_process)
    audit.main(
        [str(sources), "--cutlass", str(tmp_path), "--work", str(work), "--device", "cpu",
         "--rivals", "torch", "--jobs", "1", "-o", str(output)]
    )  # fmt: skip
    rows = {row["name"]: row for row in json.loads(output.read_text())}
    assert {name: table.verdict(row) for name, row in rows.items()} == {
        "16_24_256": "right at f16 only",
        "16_16_16": "did not run",
        "16_16_32": "not built",
    }
    assert rows["16_24_256"]["f16"]["accuracy_class"] == "fp16-accumulated"
    assert (table.speed(rows["16_24_256"], "torch") or 0) > 0
    assert "user" not in rows["16_16_16"]
    text = table.page(list(rows.values()), "a CPU")
    assert "| f32 | 3 |  | 1 |  |  | 1 | 1 |  |" in text
    assert "Here 2 of them" in text.replace("\n", " ")


def test_the_page_has_the_stored_rows() -> None:
    rows = json.loads(table.ROWS.read_text())
    assert table.page(rows, table.DEVICE) == (table.ROWS.parents[2] / "docs/audit.md").read_text()
    judged = [row for row in rows if table.verdict(row) not in ("not built", "not reached")]
    assert len({row["name"] for row in judged}) == len(judged) >= 60
