from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement import energy as load
from gemmetry.measurement import sampler as sampler_module
from gemmetry.measurement.sampler import Sampler
from gemmetry.measurement.stopping import MIN_ROUNDS, MOST_ROUNDS, StopPolicy
from gemmetry.numerics.inputs import changed_inputs


class Recorder:
    """An observer that counts its calls."""

    def __init__(self, *reasons):
        self.starts = self.samples = 0
        self.reasons = reasons

    def start(self):
        self.starts += 1

    def sample(self):
        self.samples += 1

    def stop(self):
        return {"power_w": 100.0 + self.samples, "throttle_reasons": self.reasons}


def _made(kit, observers=(), *, on_stream=False, writes_output=True, host_s=None, **how):
    """A device, an executable and a sampler on it that is prepared. `how` has settings and fields
    of the device; the host's clock goes on by `host_s` with each launch."""
    kind = kit.stream_device if on_stream else kit.device
    known = {one.name for one in fields(kind)} & how.keys()
    device = kind(**{name: how.pop(name) for name in known})
    executable = kit.executable(device, writes_output=writes_output)
    if host_s is not None:
        executable.after = lambda _count, _result: kit.pass_host_time(host_s)
    return device, executable, _prepared(kit, executable, observers, **how)


def _prepared(kit, executable, observers=(), **settings):
    settings = RunSettings(**settings)
    sampler = Sampler(executable, kit.operation, kit.inputs, settings, observers)
    sampler.prepare()
    return sampler


@pytest.fixture
def ticking(kit, monkeypatch):
    """The host's clock stands still, but for what tests let pass."""
    now = [0.0]
    monkeypatch.setattr(sampler_module.time, "perf_counter", lambda: now[0])
    kit.pass_host_time = lambda seconds: now.__setitem__(0, now[0] + seconds)


SHORT = {"on_stream": True, "durations_ns": [4000.0], "empty_ns": 1000.0}
"""Launches on a stream that are worth a graph."""
LONG = SHORT | {"durations_ns": [2e6]}


def test_first_launch_is_distinguished_from_the_rest(kit):
    *_, sampler = _made(kit, durations_ns=[5e6, *[2e5] * 1000])
    assert sampler.first_launch_ns == 5e6
    assert sampler.launch_ns == 2e5
    assert set(sampler.sample_round(6).samples_ns) == {2e5}


def test_short_launches_are_gathered_until_the_clock_resolves_them(kit):
    _, executable, sampler = _made(kit, durations_ns=[3000.0])
    assert sampler.launches_per_sample == 34  # 34 · 3 µs is the first length over 100 µs
    before = executable.launches
    result = sampler.sample_round(5)
    assert executable.launches - before == 5 * 34 + 1, "one untimed launch before the round"
    assert result.samples_ns == pytest.approx([3000.0] * 5)
    assert result.launches_per_sample == 34


@pytest.mark.parametrize(("method", "launch_ns", "empty_ns", "expected"), [
    ("simulated", 10.0, 0.0, 1),
    ("wall_clock", 5e5, 0.0, 1),
    ("wall_clock", 1.0, 0.0, sampler_module.MAX_LAUNCHES_PER_SAMPLE),
    ("events", 48_000.0, 2000.0, 4),  # 100 times the overhead of 2 µs, at 50 µs a launch
    ("events", 1000.0, 2000.0, sampler_module.MAX_DEVICE_LAUNCHES_PER_SAMPLE),
    ("graph", 1e6, 2000.0, 1),
])  # fmt: skip
def test_launches_per_sample_follow_the_clock(kit, method, launch_ns, empty_ns, expected):
    *_, sampler = _made(kit, durations_ns=[launch_ns], method=method, empty_ns=empty_ns)
    assert sampler.launches_per_sample == expected


def test_launches_rotate_through_all_sets_across_rounds(kit):
    cache_bytes = 2 * kit.operation.bytes - 1  # four sets exceed twice as much
    how = {"method": "simulated", "launches_per_sample": 7, "last_level_cache_bytes": cache_bytes}
    device, executable, sampler = _made(kit, **how)
    device.timed.clear()
    executable.input_ids.clear()
    assert sampler.sample_round(3).launches_per_sample == 7
    sampler.sample_round(5)
    assert device.timed == [3, 5], "a round is one timed batch"
    ids = executable.input_ids
    assert len(set(ids)) == 4
    assert all(ids[i] == ids[i + 4] for i in range(len(ids) - 4))
    assert len(set(executable.output_ids)) == 4


@pytest.mark.parametrize(("later_ns", "sampled_ns", "launches"), [
    ([4e6] * 3 + [1.2e6], 1.2e6, 4 + 5),  # a quiet one goes untimed as well
    ([2e6], 2e6, 15 + 5),  # 30 ms of settling are 15 launches of 2 ms
])  # fmt: skip
def test_a_round_begins_when_the_neighbours_are_quiet_or_never_get_so(
    kit, later_ns, sampled_ns, launches
):
    device, executable, sampler = _made(kit, durations_ns=[1e6])
    before = executable.launches
    device.durations_ns = [0.0] * before + later_ns + later_ns[-1:] * 100
    assert set(sampler.sample_round(5).samples_ns) == {sampled_ns}
    assert executable.launches - before == launches


def test_a_launch_longer_than_the_budget_gives_few_samples(kit, ticking):
    how = {"durations_ns": [60e9], "host_s": 60.0, "time_budget_s": 100.0}
    _, executable, sampler = _made(kit, **how)
    assert executable.launches == 2, "the first launch, and what the budget allows of the warm-up"
    result = sampler.sample_round(10)
    assert len(result.samples_ns) == 2
    assert result.seconds == 120.0


def test_observers_see_each_round(kit):
    observer = Recorder("sw_power_cap")
    *_, sampler = _made(kit, [observer], durations_ns=[30e6], method="events")
    result = sampler.sample_round(4)
    assert (observer.starts, observer.samples) == (1, 4)
    assert result.telemetry == {"power_w": 104.0, "throttle_reasons": ("sw_power_cap",)}


def test_a_load_comes_before_the_rounds_of_a_regime_and_before_the_first_as_a_warm_up(kit, ticking):
    how = {"durations_ns": [1e6], "host_s": 1e-3}
    *_, sampler = _made(kit, **how, regime="sustained")
    first = sampler.sample_round(3)
    assert first.is_settled, "each launch takes as long as the other"
    assert first.load_s >= load.SETTLED_WINDOWS * load.LOAD_WINDOW_S
    assert first.seconds == pytest.approx(3e-3)
    assert load.RELOAD_S <= sampler.sample_round(3).load_s < 2 * load.RELOAD_S
    *_, sampler = _made(kit, **how, warmup_s=0.7)
    loads_s = [sampler.sample_round(1).load_s for _ in range(2)]
    assert loads_s == [pytest.approx(0.7, abs=0.05), 0.0]


def test_warm_launch_of_a_round_is_not_on_the_next_timed_set(kit):
    _, executable, sampler = _made(kit, durations_ns=[1e6])
    executable.input_ids.clear()
    sampler.sample_round(1)
    warm, timed = executable.input_ids
    assert warm != timed


def test_recheck_gives_equal_outputs_once(kit):
    *_, sampler = _made(kit)
    sampler.sample_round(4)
    (output,) = sampler.recheck()
    assert output.label.endswith("after timing")
    _assert_right(kit, output)


def _product(kit, change):
    a, b = _inputs(kit, change)
    return a @ b


def _assert_right(kit, output):
    """The output is the product of the inputs with the change that it names, not without it."""
    np.testing.assert_allclose(output.array, _product(kit, output.change), rtol=1e-5)
    if output.change is not None:
        assert np.abs(output.array - _product(kit, None)).max() > 0.1


def test_recheck_shows_an_output_that_went_wrong_while_timed(kit):
    _, executable, sampler = _made(kit, method="simulated")
    last = executable.launches + 4

    def falsify(launch, result):
        result[0, 0] += launch == last

    executable.after = falsify
    sampler.sample_round(4)
    wrong = [one.array[0, 0] != _product(kit, one.change)[0, 0] for one in sampler.recheck()]
    assert any(wrong)


def test_recheck_shows_launches_that_wrote_nothing(kit):
    executable = kit.executable(kit.device(method="simulated"))
    run, pretends = executable.run, []
    executable.run = lambda inputs, output: output if pretends else run(inputs, output)
    sampler = _prepared(kit, executable)
    sampler.sample_round(2)
    pretends.append(True)
    sampler.sample_round(2)
    array = sampler.recheck()[0].array
    assert np.isnan(array).all(), "results of the round before must not count"


def test_recheck_launches_again_where_the_output_is_the_executables_own(kit):
    _, executable, sampler = _made(kit, writes_output=False)
    sampler.sample_round(2)
    launches = executable.launches
    timed, again = sampler.recheck()
    assert executable.launches == launches + 1
    assert None not in (timed.change, again.change)
    for output in (timed, again):
        _assert_right(kit, output)


def test_close_drops_the_buffers(kit):
    device, _, sampler = _made(kit)
    sampler.close()
    assert device.releases == 1
    assert not sampler._sets


@pytest.mark.parametrize(
    ("launches", "event_ns", "graphs"), [("apart", 0.0, 2), ("back_to_back", 1000.0, 1)]
)
def test_short_launches_are_replayed_from_graphs(kit, launches, event_ns, graphs):
    device, _, sampler = _made(kit, **SHORT, launches=launches)
    captures = device.captures
    first, second = sampler.sample_round(3), sampler.sample_round(3)
    assert (first.method, second.method) == ("graph", "graph")
    assert first.launches_per_sample == 40, "200 times an event pair of 1 µs, at 5 µs a launch"
    # A replay takes half of 40 launches of 4 µs, and the event pair 1 µs, which is subtracted
    # together with the neighbours.
    assert first.samples_ns == pytest.approx([(40 * 2000.0 + event_ns) / 40] * 3)
    assert first.launches == launches
    assert device.captures == captures == graphs, "graphs are kept from round to round"


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    launch_ns=st.floats(1e3, 1e6), neighbour_ns=st.floats(10.0, 2e4),
    settings=st.fixed_dictionaries(
        {"timing_method": st.sampled_from(["graph", "events"])},
        optional={"launches_per_sample": st.integers(1, 9)},
    ),
)  # fmt: skip
def test_what_runs_between_launches_is_in_no_sample(kit, launch_ns, neighbour_ns, settings):
    how = SHORT | {"durations_ns": [launch_ns], "neighbour_ns": neighbour_ns} | settings
    device, executable, sampler = _made(kit, **how)
    device.order.clear()
    executable.launches = 0
    taken = sampler.sample_round(3)
    share = 0.5 if settings["timing_method"] == "graph" else 1.0
    assert taken.samples_ns == pytest.approx([share * launch_ns] * 3, rel=1e-3)
    assert "launch, launch" not in ", ".join(device.order)


@pytest.mark.parametrize(("timing_method", "launch_ns", "expected"), [
    ("auto", 4e6, "events"), ("graph", 4e6, "graph"), ("events", 4e3, "events"),
])  # fmt: skip
def test_the_method_follows_the_settings_and_the_launch(kit, timing_method, launch_ns, expected):
    how = SHORT | {"durations_ns": [launch_ns], "timing_method": timing_method}
    *_, sampler = _made(kit, **how)
    assert sampler.sample_round(2).method == expected


def test_launches_that_cannot_be_captured_are_timed_by_events(kit):
    *_, sampler = _made(kit, **SHORT, refusal="it waits")
    result = sampler.sample_round(2)
    assert (result.method, result.capture_failure) == ("events", "it waits")
    # The queue takes one neighbour for each launch.
    assert result.launches_per_sample == sampler_module.MAX_DEVICE_LAUNCHES_PER_SAMPLE // 2


def test_graphs_go_round_all_sets_evenly(kit):
    how = SHORT | {"last_level_cache_bytes": 50 * kit.operation.bytes}  # 101 sets
    device, executable, sampler = _made(kit, **how)
    assert device.captures == 3 + 1, "and the neighbours alone"
    executable.input_ids.clear()
    assert sampler.sample_round(3).input_sets == 120
    ids = executable.input_ids
    assert len(ids) > 600
    assert len(ids) % 40 == 0
    assert len(set(ids)) == 120
    assert all(len(set(ids[i : i + 120])) == 120 for i in range(0, 600, 40)), "evenly"


def test_samples_stand_in_the_middle_of_a_load(kit):
    device, executable, sampler = _made(kit, **LONG)
    launches = executable.launches
    sampler.sample_round(5)
    assert device.leads_ns == [25 * 2.001e6], "with the events"
    assert executable.launches - launches == 35
    assert sum(one.launched and one.poisoned for one in sampler._sets) == len(sampler._sets)


@pytest.mark.parametrize(
    ("reasons", "leading"), [((), 8), (("hw_slowdown",), 8), (("sw_power_cap",), 25)]
)
def test_a_device_below_its_power_limit_needs_a_short_lead(kit, reasons, leading):
    device, _, sampler = _made(kit, [Recorder(*reasons)], **LONG)
    for lead in (25, leading):  # 50 ms of launches of 2 ms before, at first, and 10 ms after
        device.timed.clear()
        assert len(sampler.sample_round(5).samples_ns) == 5
        assert device.timed == [lead + 5 + 3 + 5]


def test_work_that_the_events_do_not_see_is_refused_unless_it_is_another_programs(kit):
    how = SHORT | {"durations_ns": [1e6]}
    with pytest.raises(LaunchError):
        _made(kit, **how, seen_share=0.5)
    *_, sampler = _made(kit, **how, others_ns=3e6)
    assert sampler.sample_round(5).samples_ns


def test_each_round_judges_its_own_launches_and_no_set_that_never_ran(kit):
    how = {"last_level_cache_bytes": 4 * kit.operation.bytes, "method": "simulated"}
    *_, sampler = _made(kit, **how)
    for count in (1, 9, 2):
        sampler.sample_round(count)
        assert sum(one.launched and one.poisoned for one in sampler._sets) == count
        assert not any(np.isnan(output.array).any() for output in sampler.recheck())


def test_inputs_are_as_they_were_before_each_round(kit):
    how = {"last_level_cache_bytes": 20 * kit.operation.bytes, "method": "simulated"}
    *_, sampler = _made(kit, **how)
    found = set()
    for _ in range(4):
        sampler.sample_round(30)
        changed = [number for number, one in enumerate(sampler._sets) if one.change is not None]
        assert len(changed) == 2
        found.add(tuple(changed))
        for one in sampler._sets:
            for buffer, array in zip(one.inputs, _inputs(kit, one.change), strict=True):
                np.testing.assert_array_equal(buffer, array)
    assert len(found) > 1, "other sets each time"


def test_changes_come_between_untimed_and_timed_launches(kit):
    """A kernel that computes only the launches after a pause is wrong in timed ones."""
    device, _, sampler = _made(kit, **LONG)
    time_in_load, seen = device.time_in_load, []

    def look():
        pairs = [zip(one.inputs, kit.inputs, strict=True) for one in sampler._sets]
        seen.append(all(np.array_equal(*pair) for of_one in pairs for pair in of_one))

    def watched(lead, calls, tail, lead_ns):
        look()
        for call in lead[:-1]:
            call()
        look()
        lead[-1]()
        look()
        return time_in_load([], calls, tail, lead_ns)

    device.time_in_load = watched
    sampler.sample_round(5)
    assert seen == [True, True, False]


def test_replays_are_judged_where_results_are_returned(kit):
    how = SHORT | {"durations_ns": [1e3], "writes_output": False}
    _, executable, sampler = _made(kit, **how)
    assert sampler._launches.is_captured
    sampler.sample_round(5)
    launches = executable.launches
    [again] = sampler.recheck()
    assert executable.launches == launches + sampler.launches_per_sample, "a replay, not a launch"
    _assert_right(kit, again)


def _inputs(kit, change):
    return kit.inputs if change is None else changed_inputs(kit.operation, kit.inputs, change)


def _sampled(sampler, settings, target):
    """Rounds as the engine takes them, until the policy has enough."""
    policy, rounds, spent = StopPolicy(settings, target), [], 0.0
    while count := policy.next_count(rounds, spent, sampler.sample_s):
        rounds.append(sampler.sample_round(count))
        spent += rounds[-1].seconds
    return rounds


def test_no_round_holds_what_is_cold(kit, monkeypatch, ticking):
    """Launches are 20 times as long at first, for longer than the few launches of every warm-up.
    The host's clock stands still, so that a busy host ends no round early."""
    monkeypatch.setattr(sampler_module.QuietGate, "wait", lambda _gate: 0.0)
    settings = RunSettings()
    *_, sampler = _made(kit, durations_ns=[5e6, *[749e3] * 8, *[37e3] * 100_000])
    rounds = _sampled(sampler, settings, Target(TargetKind.CPU))
    assert len(rounds) == MIN_ROUNDS
    for item in rounds:
        assert item.samples_ns == pytest.approx([37e3] * (settings.max_samples // MOST_ROUNDS))


@pytest.mark.parametrize(("write_s", "count", "around"), [
    (0.0, 30, 3), (0.04, MIN_ROUNDS, 2),  # or rounds of 10 ms
])  # fmt: skip
def test_the_budget_buys_samples_whatever_happens_around_them(kit, ticking, write_s, count, around):
    """570 µs on a GPU with 300 ms, where writing a line of the inputs takes 40 ms of the host."""
    settings = {"time_budget_s": 0.3, "interval_width": 1e-9}
    durations_ns = [570e3 * (0.9 + i / 500) for i in range(101)]
    how = settings | {"on_stream": True, "durations_ns": durations_ns, "host_s": 570e-6}
    device, _, sampler = _made(kit, **how)
    write = device.write

    def slowly(*arguments):
        kit.pass_host_time(write_s)
        write(*arguments)

    device.write = slowly
    rounds = _sampled(sampler, RunSettings(**settings), Target(TargetKind.CUDA, "sm_90"))
    launches = sum(len(item.samples_ns) * item.launches_per_sample for item in rounds)
    assert launches == pytest.approx(0.3 / 570e-6, rel=0.1)
    assert sum(item.seconds for item in rounds) == pytest.approx(0.3, rel=0.1)
    assert len(rounds) == pytest.approx(count, abs=around)
    usual_s = np.median([item.renewal_s for item in rounds])
    assert usual_s == pytest.approx(4 * write_s), "two sets, there and back"
    assert any(output.change is not None for output in sampler.recheck())


def test_launches_that_compute_on_the_host_count_in_full(kit, ticking):
    *_, sampler = _made(kit, on_stream=True, durations_ns=[1e6], host_s=0.5)
    assert sampler.sample_round(3).seconds == pytest.approx(3 * 0.5)


@pytest.mark.parametrize(("slow_ns", "taken"), [(5e6, 5), (5e5, 40)])
def test_a_round_that_is_held_up_ends_early(kit, slow_ns, taken):
    """Samples of 0.2 ms, expected 8 ms in all: of 5 ms each, as many as are between two looks."""
    device, _, sampler = _made(kit, durations_ns=[2e5])
    device.durations_ns = [slow_ns]
    assert len(sampler.sample_round(40).samples_ns) == taken
    promising = _prepared(kit, kit.executable(device), min_samples=40)
    assert len(promising.sample_round(40).samples_ns) == 40


@pytest.mark.parametrize("writes_output", [True, False])
def test_a_launch_that_goes_wrong_in_the_midst_of_timing_is_kept(kit, writes_output):
    """All launches but those of the first round and the last are wrong."""
    _, executable, sampler = _made(kit, durations_ns=[2e5], writes_output=writes_output)
    for after in (None, *[lambda _number, result: result.fill(7)] * 20, None):
        executable.after = after
        sampler.sample_round(8)
    kept = [left.array for left in sampler.kept_results()]
    assert any((array == 7).all() for array in kept)
    assert not any((left.array == 7).all() for left in sampler.recheck())
    assert len(kept) <= 6


def test_new_inputs_come_again_in_later_rounds(kit, monkeypatch):
    monkeypatch.setattr("gemmetry.measurement.sampler._TRIED_AGAIN", 1 / 6)
    *_, sampler = _made(kit, durations_ns=[2e5])
    tried = sampler._kept_new.seen
    assert tried == 1
    for _ in range(100):
        sampler.sample_round(2)
    assert tried < sampler._kept_new.seen <= tried + 4
