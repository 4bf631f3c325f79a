from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemmetry.counters.collector import read_counters
from gemmetry.counters.roofline import roofline_of

RAW = Path(__file__).parents[1] / "data" / "counters" / "h200_cublas_bf16_4096_raw.csv.gz"


def test_the_roofs_of_a_recorded_product():
    roofline = roofline_of(read_counters(RAW)[0])
    assert roofline.path == "bf16"
    assert roofline.operations_per_s == pytest.approx(759.4e12, rel=1e-3)
    # 540,672 operations per cycle at 1.553 GHz; at 1.83 GHz they are the datasheet's 989 TFLOP/s.
    assert roofline.clock_peak == pytest.approx(540_672 * 1.553236e9)
    assert roofline.datasheet_peak == pytest.approx(989.4e12)
    assert roofline.operations_per_s / roofline.clock_peak == pytest.approx(0.9036, abs=1e-3)
    assert roofline.attainable == roofline.clock_peak
    memory, l2, shared = roofline.levels
    assert memory.peak_bytes_per_s == pytest.approx(4811e9, rel=1e-3)
    assert memory.bytes_per_s / memory.peak_bytes_per_s == pytest.approx(0.2024, abs=1e-3)
    assert memory.intensity == pytest.approx(2 * 4096**3 / 176_253_440)
    # As busy as its ports to the multiprocessors, 45.1 %, and reads of a multicast count once.
    assert l2.bytes_per_s / l2.peak_bytes_per_s == pytest.approx(0.451, abs=0.02)
    assert shared.bytes_per_s / shared.peak_bytes_per_s == pytest.approx(0.698, abs=0.005)


def test_the_table_of_gpus_gives_what_the_report_does_not(counter_launches):
    values = {
        "gpu__time_duration.sum": 1e6, "dram__bytes_read.sum": 1e9, "dram__bytes_write.sum": 0.0,
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1e9,
    }  # fmt: skip
    roofline = roofline_of(counter_launches.launch(values))
    assert roofline.clock_peak is None
    assert roofline.datasheet_peak == pytest.approx(989.4e12)
    assert roofline.levels[0].source == "datasheet: H200 SXM"
    # One operation per byte is bound by the bandwidth.
    assert roofline.attainable == pytest.approx(4800e9)
    unknown = roofline_of(counter_launches.launch(values, device="A GPU"))
    assert (unknown.datasheet_peak, unknown.attainable) == (None, None)
    assert unknown.levels[0].peak_bytes_per_s is None
    del values["sm__ops_path_tensor_src_bf16_dst_fp32.sum"]
    unknown = roofline_of(counter_launches.launch(values, device="A GPU"))
    assert (unknown.datasheet_peak, unknown.attainable) == (None, None)
    assert roofline_of(counter_launches.launch({})) is None, "without a time"


def test_the_roofline_of_a_launch_on_amd(counter_launches):
    values = json.loads(RAW.with_name("diagnoses.json").read_text("utf-8"))["amd"]
    name = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0"
    roofline = roofline_of(counter_launches.launch(
        values, name, tool="rocprofv3", capability="gfx942", device="AMD Instinct MI300X",
    ))  # fmt: skip
    assert roofline.path == "bf16"
    assert roofline.datasheet_peak == pytest.approx(1307.4e12)
    assert [level.name for level in roofline.levels] == ["device memory", "shared memory"]
    assert roofline.levels[0].peak_bytes_per_s == pytest.approx(5.3e12)
