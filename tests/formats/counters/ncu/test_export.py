from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.domain.errors import EnvironmentFailure
from gemmetry.formats.counters.ncu_report import read_by_export
from gemmetry.hardware.doctor import tool_path

DATA = Path(__file__).parents[3] / "data"
LARGER = Path(os.environ.get("GEMMETRY_TRACES", "") or DATA.parents[2] / "shared" / "data")

RAW = '"ID","Kernel Name","a"\\n"","","us"\\n"0","k","2"\\n'


@pytest.fixture
def ncu(tmp_path):
    """Makes a stand-in for ``ncu`` that runs a Python program."""

    def make(program):
        file = tmp_path / "ncu"
        file.write_text(f"#!{sys.executable}\nimport sys\n{program}\n")
        file.chmod(0o755)
        return file

    return make


def test_the_raw_page_of_a_report(ncu, tmp_path):
    report = tmp_path / "a.ncu-rep"
    executable = ncu(f"assert sys.argv[1:3] == ['--import', {str(report)!r}]\n"
                     f"assert sys.argv[3:] == '--page raw --csv --print-units base'.split()\n"
                     f"print('==PROF== noise')\nsys.stdout.write('{RAW}')")  # fmt: skip
    table = read_by_export(report, executable)
    assert [one.metrics() for one in table] == [{"a": 2000}]
    assert table.source == report


@pytest.mark.parametrize(
    "program",
    ["print('==ERROR== newer file version'); sys.exit(1)", "print('==ERROR== newer file version')"],
)
def test_a_report_that_it_cannot_export(program, ncu, tmp_path):
    with pytest.raises(EnvironmentFailure, match="newer file version") as error:
        read_by_export(tmp_path / "a.ncu-rep", ncu(program))
    assert "gemmetry[counters]" in error.value.hint


def test_what_a_real_ncu_exports_is_what_the_raw_page_has():
    executable = tool_path("ncu")
    if executable is None:
        pytest.skip("Nsight Compute is not installed")
    report = LARGER / "counters_h200" / "cublas_bf16_4096.ncu-rep"
    if not report.is_file():
        pytest.skip(f"{report.name} is not in {LARGER} (GEMMETRY_TRACES names another folder)")
    exported = read_by_export(report, Path(executable))[0]
    raw = read_counters(DATA / "counters" / "h200_cublas_bf16_4096_raw.csv.gz")[0]
    assert exported.name == raw.name
    assert set(exported.metrics()) == set(raw.metrics())
    assert exported.metrics() == pytest.approx(raw.metrics(), rel=1e-2, abs=1e-2)
