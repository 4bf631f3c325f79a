from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement.marks import summarize
from gemmetry.measurement.stopping import Round

STEADY = tuple(1e6 + i for i in range(40))


def _marks(samples=STEADY, telemetry=None, settings=None, **how):
    taken = Round(samples_ns=tuple(samples), method="wall_clock", telemetry=telemetry or {}, **how)
    target = Target(TargetKind.CPU)
    return summarize(
        [taken],
        stop_reason="interval",
        regime="burst",
        target=target,
        settings=settings or RunSettings(),
    ).marks


def test_a_quiet_measurement_has_no_mark():
    assert _marks(overhead_ns=100.0, telemetry={"load_average": 0.9}) == ()


def test_a_quick_look_is_marked():
    [mark] = _marks(settings=RunSettings(quick=True))
    assert mark.startswith("quick: ")
    assert "without --quick" in mark


def test_noise_is_reported_with_both_widths():
    [mark] = _marks([1e6 * (1 + 0.01 * i) for i in range(40)])
    assert mark.startswith("noisy: interval ±5.4")
    assert "requested ±2 %" in mark
    assert "--time-budget" in mark


def test_exact_repetitions_promise_no_width():
    noisy = [1e6 * (1 + 0.01 * i) for i in range(40)]
    assert _marks(noisy, settings=RunSettings(repetitions=40)) == ()
    wild = [1e6 * (1 + 40 * (i % 2)) for i in range(40)]
    assert _marks(wild, settings=RunSettings(repetitions=40))[0].startswith("noisy: interval ±")
    requested = RunSettings(repetitions=40, interval_width=0.01)
    assert _marks(noisy, settings=requested)[0].startswith("noisy")


def test_few_samples_name_the_option_that_limits_them():
    [mark] = _marks([1.0, 1.0, 1.0])
    assert mark.startswith("few samples: 3 ")
    assert "--time-budget" in mark
    [mark] = _marks([1.0, 1.0, 1.0], settings=RunSettings(repetitions=3))
    assert "--benchmark-repetitions" in mark
    [mark] = _rounds([1e6, 1.1e6, 1.2e6])
    assert mark.startswith(
        "few samples: 15 in 3 rounds that differ are not enough for a 95 % interval of the median"
    )


def test_throttling_is_reported_with_the_clock_and_what_to_do():
    [mark] = _marks(telemetry={"throttle_reasons": ("sw_power_cap",), "sm_clock_hz": 1.41e9})
    assert mark.startswith("throttled: sw_power_cap at 1410 MHz; ")
    assert "--regime sustained" in mark


def test_clocks_that_a_user_has_set_are_not_a_fault():
    assert _marks(telemetry={"throttle_reasons": ("applications_clocks_setting",)}) == ()


def test_an_unknown_reason_is_still_reported():
    [mark] = _marks(telemetry={"throttle_reasons": ("sync_boost",)})
    assert mark.startswith("throttled: sync_boost; ")


@pytest.mark.parametrize(("load", "marked"), [(1.0, False), (1.5, False), (3.1, True)])
def test_load_of_neighbours(load, marked):
    marks = _marks(telemetry={"load_average": load})
    assert bool(marks) is marked
    if marked:
        assert marks[0].startswith("load average 3.1 per core while measuring")


@pytest.mark.parametrize(("share", "marked"), [(0.0, False), (0.1, False), (0.31, True)])
def test_programs_that_compete_for_the_processors(share, marked):
    marks = _marks(telemetry={"others_cpu_share": share, "load_average": 1.0})
    assert bool(marks) is marked
    if marked:
        assert marks[0].startswith("busy: other programs took 31 % of the processors")


def test_one_mark_reports_competing_programs():
    telemetry = {"others_cpu_share": 0.5, "load_average": 3.0}
    assert [mark.partition(":")[0] for mark in _marks(telemetry=telemetry)] == ["busy"]


def test_harness_overhead_counts_per_timed_sample():
    [mark] = _marks(overhead_ns=20_000.0)
    assert mark.startswith("harness: timing an empty call takes 20 µs, 2 % of a sample")
    assert _marks(overhead_ns=20_000.0, launches_per_sample=10) == ()


def test_two_modes_are_reported_with_their_shares():
    fast, slow = [1.0e6 + i for i in range(30)], [1.3e6 + i for i in range(10)]
    marks = _marks([*slow, *fast], settings=RunSettings(interval_width=1.0))
    [mark] = [mark for mark in marks if mark.startswith("two modes")]
    assert mark.startswith("two modes: 1 ms (75 %) and 1.3 ms (25 %)")


def test_a_second_mode_is_reported_alongside_neighbours():
    samples = [*(1.0e6 + i for i in range(30)), *(1.3e6 + i for i in range(10))]
    marks = _marks(samples, {"others_cpu_share": 0.5}, settings=RunSettings(interval_width=1.0))
    assert [mark.partition(":")[0] for mark in marks] == ["busy", "two modes"]


def test_a_few_outliers_are_not_a_mode():
    assert _marks([*STEADY, 2e6, 2e6, 2e6]) == ()


def test_warm_caches_are_reported_unless_they_were_requested():
    small = {"input_sets": 4, "bytes_per_set": 1000, "last_level_cache_bytes": 2**20}
    [mark] = _marks(**small)
    assert mark.startswith("warm cache: 4 sets of buffers take 4 kB")
    assert _marks(**small, settings=RunSettings(cold_cache=False)) == ()


def _rounds(medians=(1e6,) * 12, telemetry=lambda _index: {}, settings=None, **how):
    rounds = [
        Round(
            samples_ns=tuple(median + i for i in range(5)),
            method="wall_clock",
            telemetry=telemetry(index),
            **how,
        )
        for index, median in enumerate(medians)
    ]
    settings = settings or RunSettings(interval_width=1.0)
    return summarize(
        rounds, stop_reason="interval", regime=settings.regime, target=Target(TargetKind.CPU),
        settings=settings,
    ).marks  # fmt: skip


def test_threads_that_waited_for_a_processor_in_many_rounds():
    """A case that others_cpu_share misses: a short measurement in which every barrier waits for a
    slice."""
    [mark] = _rounds(telemetry=lambda index: {"run_delay_share": 0.9 if index % 2 else 0.0})
    assert mark.startswith("busy: in 6 of 12 rounds threads waited for a processor")
    assert "90 % of the time" in mark
    assert _rounds(telemetry=lambda index: {"run_delay_share": 0.9 if index == 3 else 0.0}) == ()


def test_waiting_for_quiet_in_vain_is_reported():
    [mark] = _rounds(telemetry=lambda _index: {"run_delay_share": 0.5}, quiet_wait_s=0.05)
    assert "after 600 ms of waiting for quiet" in mark


def test_run_delay_outweighs_the_load_average():
    telemetry = {"run_delay_share": 0.01, "load_average": 5.0}
    assert _rounds(telemetry=lambda _index: telemetry) == ()


def test_a_falling_clock_is_boost_unless_the_load_was_sustained():
    def clocks(index):
        return {"sm_clock_hz": 1.98e9 - index * 2e7}

    [mark] = _rounds(telemetry=clocks)
    assert mark.startswith("boost: the clock fell from 1980 to 1760 MHz")
    sustained = RunSettings(regime="sustained", interval_width=1.0)
    assert _rounds(telemetry=clocks, settings=sustained, is_settled=True) == ()
    assert _rounds(telemetry=lambda index: {"sm_clock_hz": 1.98e9 - index * 2e6}) == ()


def test_a_load_that_did_not_settle_is_reported():
    settings = RunSettings(regime="sustained", interval_width=1.0)
    how = {"is_settled": False, "unsettled_change": 0.04, "load_s": 6.02}
    [mark] = _rounds(settings=settings, **how)
    assert mark.startswith(
        "not settled: clock or speed still changed by 4 % per second after 6.0 s"
    )


def test_a_power_limit_is_what_a_sustained_load_is_about():
    settings = RunSettings(regime="sustained", interval_width=1.0)
    telemetry = {"throttle_reasons": ("sw_power_cap",)}
    [mark] = _rounds(telemetry=lambda _index: telemetry, settings=settings)
    assert mark.startswith("throttled: sw_power_cap; ")
    assert "--regime sustained" not in mark


def test_drift_needs_thirds_that_leave_each_other_out():
    rising = [1e6 * (1 + 0.01 * index) for index in range(12)]
    [mark] = _rounds(rising)
    assert mark.startswith("drift: the last third of the rounds is 7.88 % slower")
    assert "slower" in mark
    assert _rounds(rising[:6]) == (), "too few rounds to decide"
    assert _rounds([1e6, 1.1e6] * 6) == ()


def test_most_launches_held_up():
    [mark] = _rounds([1e5] + [1e6] * 11)
    assert mark.startswith("stalled: the median is 10.0 times the shortest sample, 100 µs")


def test_results_that_are_kept_between_launches():
    [mark] = _rounds(new_inputs_ratio=3.6)
    assert mark.startswith("remembers: a launch on new inputs takes 3.6 times as")
    assert _rounds(new_inputs_ratio=1.4) == _rounds(new_inputs_ratio=None) == ()


def test_work_that_the_clock_did_not_see():
    [mark] = _rounds(runs_on_s=0.2)
    assert mark.startswith("runs on: threads of the process worked for 200 ms after launches")
    [mark] = _rounds(wall_launch_ns=9e6)
    assert mark.startswith("host work: a launch takes 9 ms by the host's clock and 1 ms on the")
    assert _rounds(wall_launch_ns=1.05e6) == ()


def test_a_graph_that_could_not_be_had():
    [mark] = _rounds(capture_failure="it waits for the device")
    assert mark.startswith("no graph: it waits for the device; timed by events, which add the gaps")
