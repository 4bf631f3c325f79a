from __future__ import annotations

import gzip

import pytest

from gemmetry.counters.catalogue import (
    _METRICS,
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
from gemmetry.hardware.amd_counters import CHIPS as AMD_CHIPS
from gemmetry.hardware.amd_counters import has_counter


def test_every_metric_and_every_expression_of_the_catalogue_has_a_chip() -> None:
    chips = [*dict.fromkeys(CAPABILITIES.values())]
    used = {m for one in concepts() for text in one.expressions for m in metrics_in(text)}
    assert len(used) > 150
    nowhere = [
        metric
        for metric in used - set(AMD_FACTS)
        if not (any(has_metric(chip, metric) for chip in chips) or has_counter(metric))
    ]
    assert nowhere == []
    for one in concepts():
        assert any(expression_on(chip, one) for chip in [*chips, *AMD_CHIPS]), one.name
    names = [one.name for one in concepts()]
    assert len(names) == len(set(names))


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


HALF = {"sm__ops_path_tensor_src_fp8_sparsity_off.sum": 8.0}
VECTOR = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum"


@pytest.mark.parametrize(
    ("concept", "values", "expected"),
    [
        # The first expression that the report has.
        ("dram_read_bytes", {"dram__bytes_read.sum": 5, "dram__bytes_op_read.sum": 6}, 5),
        ("dram_read_bytes", {}, None),
        # A missing addend makes the expression unusable.
        ("tensor_ops_fp8", HALF, None),
        ("tensor_ops_fp8", {**HALF, "sm__ops_path_tensor_src_fp8_sparsity_on.sum": 1.0}, 9.0),
        # Precedence and parentheses.
        ("tensor_pipe_percent", {"SQ_VALU_MFMA_BUSY_CYCLES": 60.0, "GRBM_GUI_ACTIVE": 80.0,
                                 "num_xcc": 8.0, "simd_count": 10.0}, 60.0),
        ("vector_ops_fp32", {VECTOR.format("add"): 1.0, VECTOR.format("mul"): 2.0,
                             VECTOR.format("fma"): 5.0}, 13.0),
        # A share of nothing.
        ("l2_hit_percent", {"TCC_HIT_sum": 0.0, "TCC_MISS_sum": 0.0}, None),
    ],
)  # fmt: skip
def test_values_of_concepts(counter_launches, concept, values, expected) -> None:
    assert value_of(counter_launches.launch(values), concept) == expected


def test_a_reading_names_its_source(counter_launches) -> None:
    launch = counter_launches.launch({"dram__sectors_read.sum": 6.0})
    reading = reading_of(launch, "dram_read_bytes")
    assert (reading.value, reading.unit) == (192.0, "byte")
    assert (reading.metric, reading.source) == ("dram_read_bytes", "32 * dram__sectors_read.sum")


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


def test_the_file_of_metrics_states_how_it_was_made() -> None:
    assert b"docs/generate/nvidia_metrics.py" in gzip.decompress(_METRICS.read_bytes())
    assert _METRICS.stat().st_size < 200_000
