"""Each mark, by what it begins with, and measurements next to its threshold that have none."""

from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement.marks import summarize
from gemmetry.measurement.stopping import Round

STEADY = [1e6 + i for i in range(40)]
NOISY = [1e6 * (1 + 0.01 * i) for i in range(40)]
WILD = [1e6 * (1 + 40 * (i % 2)) for i in range(40)]
MODES = [*(1.3e6 + i for i in range(10)), *(1e6 + i for i in range(30))]
SMALL = {"input_sets": 4, "bytes_per_set": 1000, "last_level_cache_bytes": 2**20}


def marks(rounds, telemetry=lambda _index: {}, settings=None, stop_reason="interval", **how):
    """The marks of `rounds`, each of samples; `telemetry` by the number of a round."""
    taken = [
        Round(samples_ns=tuple(one), method="wall_clock", telemetry=telemetry(index), **how)
        for index, one in enumerate(rounds)
    ]
    settings = settings or RunSettings()
    return summarize(
        taken, stop_reason=stop_reason, target=Target(TargetKind.CPU),
        settings=settings,
    ).marks  # fmt: skip


def check(found, expected, contained=()):
    assert len(found) == len(expected), found
    assert all(mark.startswith(text) for mark, text in zip(found, expected, strict=True)), found
    assert all(text in found[0] for text in contained), found


@pytest.mark.parametrize(("samples", "settings", "how", "expected", "contained"), [
    (STEADY, {}, {"overhead_ns": 100.0}, [], []),
    (STEADY, {"quick": True}, {}, ["quick: "], ["without --quick"]),
    (NOISY, {}, {}, ["noisy: interval ±5.4"], ["requested ±2 %", "--time-budget"]),
    (NOISY, {}, {"stop_reason": "max_samples"}, ["noisy: "], ["--max-samples"]),
    (NOISY, {}, {"stop_reason": "out_of_reach"}, ["noisy: "], ["--interval-width"]),
    (NOISY, {}, {"stop_reason": "outclassed"}, [], []),  # wide by design
    (WILD, {}, {"stop_reason": "outclassed"}, ["noisy", "two modes", "stalled"], ["--no-race"]),
    (NOISY, {"repetitions": 40}, {}, [], []),  # exact repetitions promise no width
    (NOISY, {"repetitions": 40, "interval_width": 0.01}, {}, ["noisy"], []),
    (WILD, {"repetitions": 40}, {}, ["noisy: interval ±", "two modes", "stalled"], []),
    ([1.0] * 3, {}, {}, ["few samples: 3 "], ["--time-budget"]),
    ([1.0] * 3, {"repetitions": 3}, {}, ["few samples"], ["--benchmark-repetitions"]),
    (STEADY, {}, {"overhead_ns": 20_000.0},
     ["harness: timing an empty call takes 20 µs, 2 % of a sample"], []),
    (STEADY, {}, {"overhead_ns": 20_000.0, "launches_per_sample": 10}, [], []),
    (MODES, {"interval_width": 1.0}, {}, ["two modes: 1 ms (75 %) and 1.3 ms (25 %)"], []),
    ([*STEADY, 2e6, 2e6, 2e6], {}, {}, [], []),  # a few outliers are not a mode
    (STEADY, {}, SMALL, ["warm cache: 4 sets of buffers take 4 kB"], []),
    (STEADY, {"cold_cache": False}, SMALL, [], []),
])  # fmt: skip
def test_marks_of_one_round(samples, settings, how, expected, contained):
    check(marks([samples], settings=RunSettings(**settings), **how), expected, contained)


@pytest.mark.parametrize(("telemetry", "expected", "contained"), [
    ({"throttle_reasons": ("sw_power_cap",), "sm_clock_hz": 1.41e9},
     ["throttled: sw_power_cap at 1410 MHz; "], ["--regime sustained"]),
    ({"throttle_reasons": ("applications_clocks_setting",)}, [], []),  # the user has set it
    ({"throttle_reasons": ("sync_boost",)}, ["throttled: sync_boost; "], []),
    ({"load_average": 1.0}, [], []),
    ({"load_average": 1.5}, [], []),
    ({"load_average": 3.1}, ["load average 3.1 per core while measuring"], []),
    ({"others_cpu_share": 0.1, "load_average": 1.0}, [], []),
    ({"others_cpu_share": 0.31, "load_average": 3.0},
     ["busy: other programs took 31 % of the processors"], []),
])  # fmt: skip
def test_marks_of_telemetry(telemetry, expected, contained):
    check(marks([STEADY], lambda _index: telemetry), expected, contained)
    if expected[:1] == ["busy"]:
        wide = RunSettings(interval_width=1.0)
        found = marks([MODES], lambda _index: telemetry, wide)
        assert [mark.partition(":")[0] for mark in found] == ["busy", "two modes"]


SUSTAINED = {"regime": "sustained"}
UNSETTLED = {"is_settled": False, "unsettled_change": 0.04, "load_s": 6.02}
RISING = [1e6 * (1 + 0.01 * index) for index in range(12)]


def clocks(step_hz):
    return lambda index: {"sm_clock_hz": 1.98e9 - index * step_hz}


def delays(chosen):
    return lambda index: {"run_delay_share": 0.9 if index in chosen else 0.0}


@pytest.mark.parametrize(("medians", "telemetry", "settings", "how", "expected"), [
    ([1e6, 1.1e6, 1.2e6], {}, {}, {},
     "few samples: 15 in 3 rounds that differ are not enough for a 95 % interval"),
    (None, delays(range(1, 12, 2)), {}, {},
     "busy: in 6 of 12 rounds threads waited for a processor for 90 % of the time"),
    (None, delays([3]), {}, {}, ""),
    (None, {"run_delay_share": 0.01, "load_average": 5.0}, {}, {}, ""),
    (None, clocks(2e7), {}, {}, "boost: the clock fell from 1980 to 1760 MHz"),
    (None, clocks(2e6), {}, {}, ""),
    (None, clocks(2e7), SUSTAINED, {"is_settled": True}, ""),
    (None, {}, SUSTAINED, UNSETTLED,
     "not settled: clock or speed still changed by 4 % per second after 6.0 s"),
    (RISING, {}, {}, {}, "drift: the last third of the rounds is 7.88 % slower"),
    (RISING[:6], {}, {}, {}, ""),
    ([1e6, 1.1e6] * 6, {}, {}, {}, ""),
    ([1e5] + [1e6] * 11, {}, {}, {},
     "stalled: the median is 10.0 times the shortest sample, 100 µs"),
    (None, {}, {}, {"new_inputs_ratio": 3.6}, "remembers: a launch on new inputs takes 3.6"),
    (None, {}, {}, {"new_inputs_ratio": 1.4}, ""),
    (None, {}, {}, {"new_inputs_ratio": None}, ""),
    (None, {}, {}, {"runs_on_s": 0.2},
     "runs on: threads of the process worked for 200 ms after launches"),
    (None, {}, {}, {"wall_launch_ns": 9e6},
     "host work: a launch takes 9 ms by the host's clock and 1 ms on the"),
    (None, {}, {}, {"wall_launch_ns": 1.05e6}, ""),
    (None, {}, {}, {"capture_failure": "it waits for the device"},
     "no graph: it waits for the device; timed by events, which add the gaps"),
])  # fmt: skip
def test_marks_of_many_rounds(medians, telemetry, settings, how, expected):
    rounds = [[median + i for i in range(5)] for median in medians or [1e6] * 12]
    seen = telemetry if callable(telemetry) else lambda _index: telemetry
    wide = RunSettings(interval_width=1.0, **settings)
    check(marks(rounds, seen, wide, **how), [expected] if expected else [])


def test_a_mark_says_what_was_tried_already():
    rounds = [STEADY[:5]] * 12
    [mark] = marks(rounds, lambda _index: {"run_delay_share": 0.5}, quiet_wait_s=0.05)
    assert "after 600 ms of waiting for quiet" in mark
    sustained = RunSettings(interval_width=1.0, regime="sustained")
    capped = {"throttle_reasons": ("sw_power_cap",)}
    [mark] = marks(rounds, lambda _index: capped, sustained)
    assert mark.startswith("throttled: sw_power_cap; ") and "--regime sustained" not in mark


@pytest.mark.parametrize("reasons", [(), ("sw_power_cap",), ("applications_clocks_setting",)])
def test_a_quiet_machine_is_advised_only_where_no_limit_moves_the_clock(reasons):
    found = marks([NOISY], lambda _index: {"throttle_reasons": reasons})
    (noisy,) = (mark for mark in found if mark.startswith("noisy"))
    assert ("quiet machine" in noisy) == ("sw_power_cap" not in reasons)
