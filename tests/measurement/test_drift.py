"""The interval of a time contains what a device's clock does while it is sampled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement.marks import summarize
from gemmetry.measurement.stopping import Round

WORK_CYCLES = 3.3e6
TARGET = Target(TargetKind.CUDA, "sm_90", 0, product="NVIDIA H100")


def drifting(course, rounds, noise, seed):
    """Rounds of five samples at the clock that a card has then. The clock follows `course`, a
    function of the share of the run that is over."""
    random = np.random.default_rng(seed)
    taken = []
    for number in range(rounds):
        hz = 1.4e9 * (1 + course(number / (rounds - 1)))
        samples_ns = tuple(WORK_CYCLES / hz * 1e9 * (1 + noise * random.random(5)))
        how = {"telemetry": {"sm_clock_hz": hz, "throttle_reasons": ("sw_power_cap",)}}
        taken.append(Round(samples_ns=samples_ns, method="events", turn=number + 1, **how))
    return taken


def measured(rounds):
    return summarize(rounds, stop_reason="interval", target=TARGET, settings=RunSettings())


COURSES = {
    "falls": lambda share: -share,
    "rises": lambda share: share,
    "steps late": lambda share: -1.0 if share > 0.8 else 0.0,
    "swings": lambda share: math.sin(2 * math.pi * share),
}


@given(
    course=st.sampled_from(sorted(COURSES)), drift=st.floats(0.005, 0.1),
    rounds=st.integers(12, 60), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_the_interval_holds_the_beginning_the_middle_and_the_end(course, drift, rounds, seed):
    taken = drifting(lambda share: drift * COURSES[course](share), rounds, 1e-4, seed)
    m = measured(taken)
    assert m.ci_low_ns < m.ci_high_ns
    for start, end in ((0, 1), (1, 2), (2, 3)):
        part = taken[rounds * start // 3 : rounds * end // 3]
        median = np.median(np.concatenate([one.samples_ns for one in part]))
        assert m.ci_low_ns <= median <= m.ci_high_ns


@settings(max_examples=40)
@given(rounds=st.integers(12, 60), seed=st.integers(0, 2**32))
def test_a_steady_clock_keeps_the_interval_narrow(rounds, seed):
    m = measured(drifting(lambda share: 0.0, rounds, 1e-3, seed))
    assert (m.ci_high_ns - m.ci_low_ns) / m.median_ns < 1e-3, "the noise of one sample"


def test_the_order_of_the_rounds_decides():
    """The same samples, as a drift and mixed: only what lasts is a drift."""
    taken = drifting(lambda share: -0.05 * share, 36, 1e-3, 7)
    mixed = list(np.random.default_rng(3).permutation(np.array(taken, dtype=object)))
    widths = [one.ci_high_ns - one.ci_low_ns for one in (measured(taken), measured(mixed))]
    assert widths[0] > 1.5 * widths[1]
    assert measured(taken).median_ns == pytest.approx(measured(mixed).median_ns)
