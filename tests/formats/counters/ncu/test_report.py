"""Reports of Nsight Compute, with a stand-in for its library, and with the library where it is
installed."""

from __future__ import annotations

import csv
import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.domain.errors import RequestError
from gemmetry.formats.counters.launches import StallSamples, base_unit
from gemmetry.formats.counters.ncu_report import MAGIC, read_ncu_rep

DATA = Path(__file__).parents[3] / "data"
RAW = DATA / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"
LARGER = Path(os.environ.get("GEMMETRY_TRACES", "") or DATA.parents[2] / "shared" / "data")
SAMPLED = "smsp__pcsamp_warps_issue_stalled_"


@pytest.fixture
def report(tmp_path):
    file = tmp_path / "a.ncu-rep"
    file.write_bytes(MAGIC + b",2025.3.1.0 (build 36398880) (public-release)")
    return file


def test_samples_are_read_when_they_are_used(report, ncu_report):
    metrics = {
        f"{SAMPLED}barrier": ncu_report.Metric(5, samples={48: 2, 16: 3}),
        f"{SAMPLED}barrier_not_issued": ncu_report.Metric(5, samples={16: 3}),
        f"{SAMPLED}wait": ncu_report.Metric(1, samples={16: 1, 32: 0}),
        f"{SAMPLED}sleeping": ncu_report.Metric(0),
    }
    launch = ncu_report.Action("k", metrics, sass={16: "  HGMMA", 48: "@P0 BRA"})
    table = read_ncu_rep(report, ncu_report.library([launch]))
    assert launch.disassembled == 0
    samples = table.infos[0].samples
    expected = [StallSamples(16, "HGMMA", {"barrier": 3, "wait": 1}),
                StallSamples(48, "@P0 BRA", {"barrier": 2})]  # fmt: skip
    assert list(samples) == expected
    assert samples[:1] == tuple(expected[:1])
    assert len(samples) == launch.disassembled == 2
    assert pickle.loads(pickle.dumps(samples)) == tuple(expected)  # noqa: S301


def test_a_library_from_before_2023_has_no_rules(report, ncu_report, monkeypatch):
    monkeypatch.delattr(ncu_report.Action, "rule_results_as_dicts")
    launch = ncu_report.Action("k", {"a": ncu_report.Metric(1)})
    assert read_ncu_rep(report, ncu_report.library([launch])).infos[0].rules == ()


@pytest.mark.parametrize("launches", [[], ["empty"]])
def test_a_report_of_which_the_library_reads_nothing(launches, report, ncu_report):
    library = ncu_report.library([ncu_report.Action(name, {}) for name in launches])
    with pytest.raises(RequestError) as error:
        read_ncu_rep(report, library)
    assert str(report) in error.value.message
    assert "2025.3.1" in error.value.message


def test_an_error_of_the_library(report, ncu_report):
    with pytest.raises(RequestError, match="unknown chunk"):
        read_ncu_rep(report, ncu_report.library(error=RuntimeError("unknown chunk")))


def larger(name):
    """A report outside of the repository, where NVIDIA's library can read it."""
    pytest.importorskip("ncu_report")
    file = LARGER / name
    if not file.is_file():
        pytest.skip(f"{name} is not in {LARGER} (GEMMETRY_TRACES names another folder)")
    return file


def test_a_launch_through_two_readers_has_the_same_values():
    table = read_counters(larger("counters_h200/cublas_bf16_4096.ncu-rep"))
    from_csv = read_counters(RAW)
    with gzip.open(RAW, "rt") as file:
        header, units, _ = csv.reader(file)
    # The CSV has two digits after the point, of the unit that it chose for the column.
    scales = {name: base_unit(unit)[1] for name, unit in zip(header, units, strict=True)}
    assert set(from_csv.values) - set(table.values) <= {"launch__kernel_name"}
    numbers = from_csv[0].metrics()
    for name, value in numbers.items():
        expected = pytest.approx(value, abs=0.0051 * scales[name], rel=1e-12)
        assert table[0].value(name) == expected, name
    assert {name for name in table[0].metrics() if name in from_csv.values} == set(numbers)
    assert {name: table[0].text(name) for name in from_csv.texts} == {
        name: from_csv[0].text(name) for name in from_csv.texts
    }
    for field in ("name", "grid", "block", "cluster", "device", "capability", "number", "stream"):
        assert getattr(table.infos[0], field) == getattr(from_csv.infos[0], field)


def test_the_samples_of_a_real_report_are_those_of_its_metrics():
    launch = read_counters(larger("counters_h200/cublas_bf16_4096.ncu-rep"))[0]
    for reason in ("barrier", "long_scoreboard", "warpgroup_arrive"):
        counted = sum(one.counts.get(reason, 0) for one in launch.info.samples)
        assert counted == launch.value(f"{SAMPLED}{reason}") > 0
    by_opcode = {}
    for one in launch.info.samples:
        opcode = one.instruction.removeprefix("@").split()[0]
        by_opcode[opcode] = by_opcode.get(opcode, 0) + one.counts.get("barrier", 0)
    assert by_opcode["WARPGROUP.DEPBAR.LE"] > 0
    assert [one.identifier for one in launch.info.rules][:2] == ["SOLBottleneck",
                                                                "IssueSlotUtilization"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version", "capability", "launches"),
    [
        ("gtx1660s_gemm_naive_full", "2024.1.1", "7.5", 2),
        ("rtx3070_nvtx_3kernels", "2022.3.0", "8.6", 3),
        ("h100pcie_rmsnorm_full", "2025.1.0", "9.0", 3),
        ("gh200_rmsnorm_pytorch", "2025.1.0", "9.0", 1),
    ],
)
def test_reports_of_earlier_versions(name, version, capability, launches):
    table = read_counters(larger(f"counters/ncu/{name}.ncu-rep"))
    assert (table.version, len(table), table.problems) == (version, launches, [])
    for one in table:
        assert one.info.capability == capability
        assert one.info.grid is not None and one.info.block is not None
        assert one.duration_ns > 0
        assert np.isfinite(list(one.metrics().values())).all()
        assert one.unit("gpu__time_duration.sum") == "ns"


def test_a_cut_report(tmp_path):
    whole = larger("counters_h200/cublas_bf16_4096.ncu-rep").read_bytes()
    file = tmp_path / "cut.ncu-rep"
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RequestError, match="no launches that ncu_report"):
        read_counters(file)
