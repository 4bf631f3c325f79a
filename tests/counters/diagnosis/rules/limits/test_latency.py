"""Where samples of the program counter show what a stall reason means."""

from __future__ import annotations

import pytest

from gemmetry.counters.gates import diagnose
from gemmetry.formats.counters.launches import StallSamples


@pytest.fixture
def waiting(counter_launches):
    def of(reason, samples=(), tensor=40.0, **info):
        stalls = {reason: 0.7, "wait": 0.0} | (
            {"long_scoreboard": 0.0} if "long" not in reason else {}
        )
        values = counter_launches.metrics({"sm__pipe_tensor_cycles_active": tensor}, stalls)
        values["smsp__inst_executed_op_tma_ld.sum"] = 1e5
        return diagnose(counter_launches.launch(values, samples=tuple(samples), **info)).verdict

    return of


def _sample(instruction, **counts):
    return StallSamples(16, instruction, counts)


def test_a_barrier_on_hopper_may_be_a_wait_for_the_tensor_cores(waiting):
    assert waiting("barrier").confidence == "low"
    multiply = [_sample("@P0 WARPGROUP.DEPBAR.LE gsb0, 0x0", barrier=90),
                _sample("BAR.SYNC.DEFER_BLOCKING 0x0", barrier=10)]  # fmt: skip
    assert (waiting("barrier", multiply).id, waiting("barrier", multiply).confidence) == (
        "latency_gmma", "high",
    )  # fmt: skip
    real = waiting("barrier", [_sample("BAR.SYNC.DEFER_BLOCKING 0x0", barrier=100)])
    assert (real.id, real.confidence) == ("latency_barrier", "high")


def test_a_scoreboard_may_be_a_copy_of_a_tile(waiting):
    samples = [_sample("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3", long_scoreboard=80),
               _sample("LDG.E R2, [R4]", long_scoreboard=20)]  # fmt: skip
    assert waiting("long_scoreboard", samples).id == "latency_tma"
    assert waiting("long_scoreboard").id == "latency_long_scoreboard"


def test_samples_have_other_names_for_some_reasons(waiting):
    samples = [_sample("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8]", warpgroup_arrive=100)]
    assert waiting("gmma", samples).id == "latency_gmma"
