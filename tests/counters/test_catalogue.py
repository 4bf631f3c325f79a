from __future__ import annotations

import gzip

import pytest

from gemmetry.counters.catalogue import (
    _METRICS,
    AMD_FACTS,
    CAPABILITIES,
    check_metric,
    chip_of,
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


def _value(launch, concept):
    reading = reading_of(launch, concept)
    assert value_of(launch, concept) == (reading and reading.value)
    return reading and f"{reading.value:g} {reading.unit}: {reading.source}"


FUNCTIONS = {
    "chip": lambda name: chip_of(str(name)),
    "concept": concept_of,
    "metric": has_metric,
    "checked": check_metric,
    "expression": expression_on,
    "flags": lambda chip, *concepts: flags_for(concepts, chip),
}


def test_what_is_found(case, counter_launches) -> None:
    found = []
    for what, names, values in case.calls():
        try:
            if what == "value":
                found.append(str(_value(counter_launches.launch(values), *names)))
            else:
                found.append(str(FUNCTIONS[what](*names)))
        except UnknownNameError as error:
            found.append(f"error: {error.message}; {error.hint}")
    case.check(found)


def test_the_file_of_metrics_states_how_it_was_made() -> None:
    assert b"docs/generate/nvidia_metrics.py" in gzip.decompress(_METRICS.read_bytes())
    assert _METRICS.stat().st_size < 200_000
