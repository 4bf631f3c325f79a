from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.counters.reading import read_counters
from gemmetry.domain.errors import RequestError

DATA = Path(__file__).parent.parent / "data" / "counters"
RAW = DATA / "h200_cublas_bf16_4096_raw.csv.gz"


def test_the_raw_page_of_a_full_report():
    table = read_counters(RAW)
    (launch,) = table
    assert launch.info.device == "NVIDIA H200"
    assert launch.info.grid == (2, 66, 1)
    assert launch.info.cluster == (2, 1, 1)
    assert launch.duration_ns == 180_992
    assert launch.unit("gpu__time_duration.sum") == "ns"
    assert launch.value("sm__ops_path_tensor_src_bf16_dst_fp32.sum") == 2 * 4096**3
    assert launch.value("dram__cycles_elapsed.avg.per_second") == pytest.approx(3.2e9, rel=1e-3)
    assert launch.value("sass__inst_executed_register_spilling_mem_local") is None
    assert launch.text("launch__cluster_scheduling_policy") == "PolicySpread"
    assert table.problems == []


def test_only_some_metrics():
    (launch,) = read_counters(RAW, ["gpu__time_duration.sum"])
    assert launch.metrics() == {"gpu__time_duration.sum": 180_992}


def test_a_file_that_is_no_report(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(RequestError, match="no report of hardware counters") as error:
        read_counters(file)
    assert error.value.hint
