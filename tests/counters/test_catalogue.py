from __future__ import annotations

import gzip
from collections.abc import Mapping

import numpy as np
import pytest

from gemmetry.counters.catalogue import (
    AMD_FACTS,
    CAPABILITIES,
    concept_of,
    concepts,
    expression_on,
    flags_for,
    has_metric,
    metrics_in,
    reading_of,
    value_of,
)
from gemmetry.domain.errors import UnknownNameError
from gemmetry.formats.counters.launches import LaunchInfo, LaunchTable, ProfiledLaunch
from gemmetry.hardware.amd_counters import CHIPS as AMD_CHIPS
from gemmetry.hardware.amd_counters import has_counter


def a_launch(values: Mapping[str, float]) -> ProfiledLaunch:
    return LaunchTable(
        tool="ncu",
        infos=[LaunchInfo(name="kernel")],
        values={name: np.array([value]) for name, value in values.items()},
        units={},
    )[0]


def exists_somewhere(metric: str) -> bool:
    if metric in AMD_FACTS or any(has_metric(chip, metric) for chip in CAPABILITIES.values()):
        return True
    return has_counter(metric)


def test_every_metric_of_the_catalogue_exists_on_a_chip() -> None:
    used = {m for one in concepts() for text in one.expressions for m in metrics_in(text)}
    assert len(used) > 150
    assert [metric for metric in sorted(used) if not exists_somewhere(metric)] == []


def test_every_expression_is_the_choice_on_some_chip_or_a_fallback_in_reports() -> None:
    for one in concepts():
        chips = [*dict.fromkeys(CAPABILITIES.values()), *AMD_CHIPS]
        assert any(expression_on(chip, one) for chip in chips), one.name


NEEDED = {
    "NVIDIA": {"duration", "sm_clock", "tensor_pipe_percent", "memory_percent", "l2_hit_percent",
               "stall_long_scoreboard", "stall_barrier", "occupancy_achieved_percent",
               "shared_conflicts", "shared_wavefronts", "global_load_sectors"},
    "AMD": {"duration", "tensor_pipe_percent", "tensor_ops_bf16", "dram_read_bytes",
            "wait_percent", "dram_write_bytes", "l2_hit_percent"},
}  # fmt: skip


@pytest.mark.parametrize(
    "chip", [*dict.fromkeys(CAPABILITIES.values()), "gfx90a", "gfx942", "gfx950"]
)
def test_each_chip_has_what_a_diagnosis_needs(chip: str) -> None:
    needed = NEEDED["AMD" if chip.startswith("gfx") else "NVIDIA"]
    assert {name for name in needed if expression_on(chip, name) is None} == set()


def test_generations_differ_in_the_metric_of_the_same_concept() -> None:
    assert expression_on("GH100", "dram_read_bytes") == "dram__bytes_read.sum"
    assert expression_on("GB202", "dram_read_bytes") == "dram__bytes_op_read.sum"
    assert expression_on("GB20B", "dram_read_bytes") is None
    assert expression_on("gfx90a", "dram_read_bytes") == "1024 * FETCH_SIZE"
    assert expression_on("GB100", "stall_gmma") is None


def test_the_first_expression_that_the_report_has_gives_the_value() -> None:
    assert value_of(a_launch({"dram__bytes_read.sum": 5, "dram__bytes_op_read.sum": 6}),
                    "dram_read_bytes") == 5  # fmt: skip
    reading = reading_of(a_launch({"dram__sectors_read.sum": 6.0}), "dram_read_bytes")
    assert reading is not None
    assert (reading.value, reading.unit) == (192.0, "byte")
    assert (reading.metric, reading.source) == ("dram_read_bytes", "32 * dram__sectors_read.sum")
    assert value_of(a_launch({}), "dram_read_bytes") is None


def test_a_missing_addend_makes_the_expression_unusable() -> None:
    half = {"sm__ops_path_tensor_src_fp8_sparsity_off.sum": 8.0}
    assert value_of(a_launch(half), "tensor_ops_fp8") is None
    both = {**half, "sm__ops_path_tensor_src_fp8_sparsity_on.sum": 1.0}
    assert value_of(a_launch(both), "tensor_ops_fp8") == 9.0


def test_expressions_follow_precedence_and_parentheses() -> None:
    amd = {"SQ_VALU_MFMA_BUSY_CYCLES": 60.0, "GRBM_GUI_ACTIVE": 80.0, "num_xcc": 8.0,
           "simd_count": 10.0}  # fmt: skip
    assert value_of(a_launch(amd), "tensor_pipe_percent") == 60.0
    vector = {f"smsp__sass_thread_inst_executed_op_f{op}_pred_on.sum": n
              for op, n in (("add", 1.0), ("mul", 2.0), ("fma", 5.0))}  # fmt: skip
    assert value_of(a_launch(vector), "vector_ops_fp32") == 13.0


def test_a_share_of_nothing_has_no_value() -> None:
    none = {"TCC_HIT_sum": 0.0, "TCC_MISS_sum": 0.0}
    assert value_of(a_launch(none), "l2_hit_percent") is None


def test_flags_collect_what_is_missing() -> None:
    assert (
        flags_for(["dram_read_bytes", "stall_wait", "shared_conflicts_gmma"], "GH100")
        == "--section MemoryWorkloadAnalysis_Tables --section WarpStateStats"
        " --metrics l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum"
    )
    assert flags_for(["wait_percent"], "gfx942") == "--pmc SQ_WAIT_ANY SQ_WAVE_CYCLES"
    assert flags_for(["stall_gmma"], "GB100") == ""


def test_an_unknown_concept_suggests_a_similar_one() -> None:
    with pytest.raises(UnknownNameError, match="dram_read_byte") as error:
        concept_of("dram_read_byte")
    assert "dram_read_bytes" in error.value.hint


def test_names_of_concepts_are_unique() -> None:
    names = [one.name for one in concepts()]
    assert len(names) == len(set(names))


def test_the_file_of_metrics_states_how_it_was_made() -> None:
    import gemmetry.counters.catalogue as chips

    text = gzip.decompress(chips._METRICS.read_bytes()).decode()
    assert "docs/generate/nvidia_metrics.py" in text
    assert chips._METRICS.stat().st_size < 200_000
