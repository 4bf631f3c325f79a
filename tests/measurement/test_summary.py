from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement.marks import _differing, summarize
from gemmetry.measurement.stopping import Round

CPU = Target(TargetKind.CPU)


def _summarize(*rounds, **changes):
    arguments = {"stop_reason": "interval", "target": CPU, "settings": RunSettings(), **changes}
    return summarize(rounds, **arguments)


def test_statistics_over_all_rounds():
    how = {"method": "events", "first_launch_ns": 50.0, "input_sets": 9}
    first = Round(samples_ns=(1.0, 2.0, 3.0, 4.0, 5.0), **how)
    second = Round(samples_ns=(6.0, 7.0, 8.0, 9.0, 10.0), launches_per_sample=3, **how)
    found = _summarize(
        first, second, stop_reason="max_samples", settings=RunSettings(regime="sustained")
    )
    assert found.median_ns == 5.5
    assert (found.ci_low_ns, found.ci_high_ns) == (None, None), "two rounds that do not overlap"
    assert (found.effective_samples, found.min_ns) == (2.0, 1.0)
    assert found.p95_ns == pytest.approx(9.55)
    assert (found.sample_count, found.rounds, found.input_sets) == (10, 2, 9)
    assert (found.method, found.regime, found.stop_reason) == ("events", "sustained", "max_samples")
    assert (found.first_launch_ns, found.launches_per_sample) == (50.0, 3)


def test_rounds_that_are_alike_count_by_their_samples():
    rounds = [
        Round(samples_ns=tuple(float(start + 4 * i) for i in range(25)), method="graph",
              overhead_ns=700.0)
        for start in range(4)
    ]  # fmt: skip
    found = _summarize(*rounds)
    assert found.effective_samples == 100.0
    assert (found.ci_low_ns, found.ci_high_ns) == (39.0, 60.0)  # order statistics 40 and 61 of 100
    assert found.harness_overhead_ns == 700.0


def test_telemetry_is_the_median_of_rounds_the_union_of_reasons_and_the_last_processors():
    seen = [
        {"power_w": 300.0, "run_delay_share": 0.25, "processors": "0-1"},
        {"power_w": 500.0, "throttle_reasons": ("sw_power_cap",)},
        {"power_w": 400.0, "processors": "0-3"},
    ]
    telemetry = _summarize(
        *(Round(samples_ns=(1.0,) * 5, method="events", telemetry=one) for one in seen)
    ).telemetry
    assert (telemetry.power_w, telemetry.run_delay_share) == (400.0, 0.25)
    assert (telemetry.throttle_reasons, telemetry.processors) == (("sw_power_cap",), "0-3")
    assert telemetry.sm_clock_hz is None


@pytest.mark.parametrize("count", [1, 5])
def test_too_few_samples_have_no_interval_and_equal_ones_no_width(count):
    found = _summarize(*(Round(samples_ns=(7.0,), method="wall_clock") for _ in range(count)))
    assert found.median_ns == 7.0
    assert found.ci_low_ns is found.ci_high_ns is None
    [mark] = found.marks
    assert mark.startswith(f"few samples: {count} are not enough for a 95 % interval of the median")
    found = _summarize(Round(samples_ns=(7.0,) * 6, method="wall_clock"))
    assert found.ci_low_ns == found.median_ns == found.ci_high_ns == 7.0
    assert found.marks == ()
    with pytest.raises(ValueError, match="at least one sample"):
        _summarize(Round(samples_ns=(), method="wall_clock"))


def _in_processes(*rounds):
    """The summary of rounds of a GPU, each with its process and its samples."""
    how = {"target": Target(TargetKind.CUDA, index=0)}
    return _summarize(
        *(Round(samples_ns=tuple(samples), method="graph", process=process)
          for process, samples in rounds), **how,
    )  # fmt: skip


def test_processes_that_differ_widen_the_interval_and_are_marked():
    """Each repeats within 0.2 %, which alone would be a tight interval."""
    three = [(1, [99.9, 100, 100.1]), (2, [100.9, 101, 101.1]), (3, [101.9, 102, 102.1])]
    found = _in_processes(*three * 4)
    assert found.processes == 3
    assert found.process_spread == pytest.approx(0.02, abs=1e-3)
    assert found.ci_low_ns <= 100.0
    assert found.ci_high_ns >= 102.0
    (mark,) = [mark for mark in found.marks if mark.startswith("processes differ")]
    assert "by 1.98 % among 3" in mark
    samples = [99.9 + 0.01 * number for number in range(20)]
    alike = _in_processes(*[(1, samples), (2, samples), (3, samples)] * 4)
    assert (alike.processes, alike.process_spread) == (3, 0.0)
    assert alike.marks == ()
    assert alike.ci_high_ns - alike.ci_low_ns < 0.1


@pytest.mark.parametrize(("processes", "levels"), [
    # A process of one round is not known to be steady.
    ((1, 2, 3), (100, 101, 150)), ((1, 1, 2), (100, 101, 150)), ((1, 2, 2), (100, 101, 150)),
    ((1, 2) * 3, (100, 104, 103, 101, 100, 103)),
])  # fmt: skip
def test_rounds_that_vary_are_not_taken_for_processes_that_differ(processes, levels):
    rounds = [(one, [float(level)] * 5) for one, level in zip(processes, levels, strict=True)]
    found = _in_processes(*rounds)
    assert (found.processes, found.process_spread) == (len(set(processes)), 0.0)
    assert not any(mark.startswith("processes differ") for mark in found.marks)


def test_equal_processes_seem_to_differ_as_seldom_as_the_docs_say():
    runs = np.random.default_rng(5).normal(100.0, 1.0, size=(4000, 3, 4))
    apart = [_differing(run.tolist()) != (0.0, 0.0) for run in runs]
    assert np.mean(apart) == pytest.approx(0.056, abs=0.012)
