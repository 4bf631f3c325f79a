from __future__ import annotations

import dataclasses
import zlib

import numpy as np
import pytest

from gemmetry.dispatches.ladder import Expectation, LadderPhase, LadderStep, build_ladder
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.record import BuildFacts, ResultSet
from gemmetry.statistics.comparison import Difference

SMALL = "matmul_512x512x512_bf16t_bf16n_bf16t"
LARGE = "matmul_4096x4096x4096_bf16t_bf16n_bf16t"
PROVIDERS = {"default": "torch", "cublaslt": "torch", "best": "cublaslt"}
STEPS = tuple(
    LadderStep(number, f"r{number:02d}_step", "more", "cuda", f"r{number:02d}")
    for number in range(5)
)
PHASES = (
    LadderPhase("first", 0, 2, (100.0, 200.0)),
    LadderPhase("second", 2, 3, (2.0, 3.0)),
    LadderPhase("third", 3, 4, (5.0, 10.0)),
)


@pytest.fixture
def ladder(make_record):
    """ladder({operation: {configuration: GFLOP/s}}, other records) -> the ladder of 12 rounds with
    a noise of 0.1 %."""

    def build(speeds, *others):
        def rounds(record):
            if record.measurement is None:
                return {}
            noise = np.random.default_rng(zlib.crc32(record.dispatch.encode())).normal(1, 1e-3, 12)
            level = record.measurement.median_ns
            return {turn: [level * noise[turn]] * 5 for turn in range(12)}

        records = [
            make_record(
                operation, configuration, gflops=gflops, target="cuda-sm_90", device="cuda:0",
                provider=PROVIDERS.get(configuration, "cuda"),
                facts=BuildFacts(algorithms_tried=8 if configuration == "best" else None),
            )
            for operation, found in speeds.items()
            for configuration, gflops in found.items()
        ]  # fmt: skip
        result_set = ResultSet(title="x", records=[*records, *others], rounds=rounds)
        return build_ladder(result_set, STEPS, PHASES, "torch", "cublaslt:best")

    return build


def test_a_gain_is_over_the_rung_before_on_the_same_problem(ladder):
    found = ladder({SMALL: {"r00": 0.2, "r01": 20.0, "r02": 30.0}, LARGE: {"r02": 40, "r03": 100}})
    gains = [
        (one.record.operation, one.step.number, one.gain.over, round(one.gain.ratio, 1))
        for one in found.rungs if one.gain
    ]  # fmt: skip
    assert gains == [
        (SMALL, 1, "r00_step", 100.0), (SMALL, 2, "r01_step", 1.5), (LARGE, 3, "r02_step", 2.5),
    ]  # fmt: skip
    assert [one.step.number for one in found.rungs] == [0, 1, 2, 2, 3]
    assert all(one.gain.verdict is Difference.FASTER for one in found.rungs if one.gain)


def test_interval_and_verdict_agree(ladder):
    found = ladder({LARGE: {"r02": 40.0, "r03": 40.01, "r04": 30.0}})
    same, slower = (one.gain for one in found.rungs if one.gain)
    assert same.interval[0] < 1 < same.interval[1]
    assert same.verdict is Difference.NONE_SHOWN
    assert slower.interval[1] < 1 and slower.verdict is Difference.SLOWER
    assert slower.interval[0] < slower.ratio < slower.interval[1]


def test_the_fastest_configurations_of_rung_and_library_count(ladder):
    found = ladder(
        {LARGE: {"default": 700.0, "cublaslt": 800.0, "r02_a": 300.0, "r02_b": 400.0, "r03": 600.0}}
    )
    first, second = found.rungs
    assert first.record.configuration == "r02_b"
    assert second.gain.ratio == pytest.approx(1.5, rel=0.01)
    assert second.of_library.ratio == pytest.approx(0.75, rel=0.01)
    assert second.of_library.over == "torch:cublaslt"
    assert found.libraries[LARGE].configuration == "cublaslt"
    assert second.tflops == pytest.approx(0.6)
    low, high = second.tflops_interval
    assert low < 0.6 < high


def test_a_rung_that_failed_is_kept_and_passed_over(ladder, make_record):
    wrong = make_record(
        LARGE, "r03", provider="cuda", target="cuda-sm_90", device="cuda:0",
        outcome=Outcome.WRONG, stage=Stage.VERIFY, reason="an element is wrong",
    )  # fmt: skip
    found = ladder({LARGE: {"r02": 40.0, "r04": 80.0}}, wrong)
    _, failed, last = found.rungs
    assert failed.record.outcome is Outcome.WRONG
    assert (failed.tflops, failed.tflops_interval, failed.gain) == (None, None, None)
    assert last.gain.over == "r02_step"
    assert [one.phase.name for one in found.phases] == []


def test_phases_are_compared_with_what_was_planned(ladder):
    found = ladder({SMALL: {"r00": 0.2, "r01": 20.0, "r02": 30.0},
                    LARGE: {"r02": 40.0, "r03": 200.0, "r04": 600.0}})  # fmt: skip
    assert [(one.phase.name, one.expectation) for one in found.phases] == [
        ("first", Expectation.AS_EXPECTED), ("second", Expectation.MORE),
        ("third", Expectation.LESS),
    ]  # fmt: skip
    edge = ladder({LARGE: {"r02": 40.0, "r03": 80.0}}).phases[0]
    assert edge.gain.interval[0] < 2.0 < edge.gain.interval[1]
    assert edge.expectation is Expectation.UNDECIDED
    unknown = dataclasses.replace(edge, gain=dataclasses.replace(edge.gain, interval=None))
    assert unknown.expectation is Expectation.UNDECIDED


def test_without_samples_a_gain_is_undecided(make_record):
    records = [make_record(LARGE, f"r0{n}", provider="cuda", gflops=100.0 * n) for n in (2, 3)]
    found = build_ladder(ResultSet(title="x", records=records), STEPS, PHASES, "torch")
    gain = found.rungs[1].gain
    assert gain.ratio == pytest.approx(1.5) and gain.interval is None
    assert gain.verdict is Difference.UNDECIDED
    assert found.rungs[1].of_library is None and found.libraries == {}
