from __future__ import annotations

import pytest

from gemmetry.domain.errors import UnknownNameError
from gemmetry.hardware.amd_counters import (
    CHIPS,
    GUI_ACTIVE,
    METRICS,
    NEED_TIME,
    REGISTERS,
    check_chip,
    events_of,
    overfull,
    passes_of,
)

SQ = [
    "SQ_WAVES", "SQ_WAVE_CYCLES", "SQ_BUSY_CU_CYCLES", "SQ_INSTS_VALU", "SQ_INSTS_LDS",
    "SQ_INSTS_MFMA", "SQ_WAIT_ANY", "SQ_INSTS_SALU", "SQ_INSTS_SMEM", "SQ_INSTS_VMEM",
]  # fmt: skip


@pytest.mark.parametrize(("counter", "events"), [
    ("SQ_WAVES", ("SQ_WAVES",)),
    ("TCC_HIT_sum", ("TCC_HIT",)),
    ("MfmaUtil", ("SQ_VALU_MFMA_BUSY_CYCLES", "GRBM_GUI_ACTIVE")),
    ("MeanOccupancyPerCU", ("SQ_LEVEL_WAVES", "SQ_ACCUM_PREV_HIRES", "GRBM_GUI_ACTIVE")),
    ("FetchSize", ("TCC_BUBBLE", "TCC_EA0_RDREQ", "TCC_EA0_RDREQ_32B")),
])  # fmt: skip
def test_derived_counters_are_expanded(counter, events):
    assert sorted(events_of(counter, "gfx942")) == sorted(events)


def test_counters_differ_between_chips():
    assert events_of("FETCH_SIZE", "gfx90a") == ("TCC_EA_RDREQ_32B", "TCC_EA_RDREQ")
    assert events_of("SQ_INSTS_VALU_MFMA_MOPS_F6F4") == events_of(
        "SQ_INSTS_VALU_MFMA_MOPS_F6F4", "gfx950"
    )
    with pytest.raises(UnknownNameError, match="counter of gfx942"):
        events_of("SQ_INSTS_VALU_MFMA_MOPS_F6F4", "gfx942")
    with pytest.raises(UnknownNameError) as error:
        passes_of(["SQ_WAVE"], "gfx942")
    assert "SQ_WAVES" in error.value.hint
    with pytest.raises(UnknownNameError, match="gfx94"):
        check_chip("gfx94")


def test_a_pass_has_as_many_events_as_registers():
    assert overfull(SQ[:8]) == {}
    assert overfull(SQ) == {"SQ": 10}
    # SQC is a part of SQ; the two forms of one event need one register.
    assert overfull([*SQ[:8], "SQC_ICACHE_HITS"]) == {"SQ": 9}
    assert overfull(["TCC_HIT_sum", "TCC_HIT_avr", "TCC_MISS_sum", "TCC_REQ_sum",
                     "TCC_READ_sum"]) == {}  # fmt: skip


def test_counters_are_spread_over_passes_with_the_time_in_each_that_needs_it():
    passes = passes_of([*SQ, "TCC_HIT_sum", GUI_ACTIVE], "gfx942", companions=NEED_TIME)
    assert [len([c for c in one if c.startswith("SQ_")]) for one in passes] == [8, 2]
    # Other blocks use the room of the first pass.
    assert "TCC_HIT_sum" in passes[0]
    assert all(overfull(one, "gfx942") == {} for one in passes)
    assert [GUI_ACTIVE in one for one in passes] == [True, False]
    counters = [*SQ[3:], "SQ_INSTS_BRANCH", "SQ_BUSY_CU_CYCLES"]
    _, second = passes_of(counters, "gfx942", companions=NEED_TIME)
    assert second == [GUI_ACTIVE, "SQ_BUSY_CU_CYCLES"]
    assert passes_of([GUI_ACTIVE]) == [[GUI_ACTIVE]]
    assert passes_of([]) == []


@pytest.mark.parametrize("chip", CHIPS)
def test_the_counters_of_every_metric_exist_and_the_registers_of_every_block(chip):
    every = ["SPI_CSN_BUSY", "CPC_CPC_STAT_BUSY", "CPF_CPF_STAT_BUSY", "TA_TA_BUSY_sum",
             "TD_TD_BUSY_sum", "TCP_TOTAL_READ_sum"]  # fmt: skip
    assert len(passes_of(every, chip)) == 1
    assert set(REGISTERS) >= {"SQ", "TCC", "GRBM"}
    for metric in METRICS if chip != "gfx908" else ():
        for counter in filter(None, (*metric.counters, metric.collected_as)):
            assert events_of(counter, chip)
