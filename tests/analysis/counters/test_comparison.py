from __future__ import annotations

import numpy as np
import pytest

from gemmetry.counters.comparison import CounterReport, compare_counters, variants_of
from gemmetry.counters.gates import diagnose

SHIFT = np.linspace(-0.004, 0.004, 40)


@pytest.fixture
def report(counter_launches):
    def make(label, durations, **values):
        launches = [
            counter_launches.launch(
                counter_launches.metrics(**values, gpu__time_duration___sum=float(one))
            )
            for one in durations
        ]
        diagnoses = [diagnose(one) for one in launches]
        return CounterReport(label, f"{label}.csv", variants_of(launches, diagnoses))

    return make


def _change(first, second, metric="duration", **options):
    (kernel,) = compare_counters([first, second], **options).kernels
    return next(one for one in kernel.metrics if one.metric == metric)


def test_many_launches_have_a_verdict_from_their_interval(report):
    base = report("A", 1e5 * (1 + SHIFT))
    slower = _change(base, report("B", 1.2e5 * (1 + SHIFT)))
    assert slower.verdict == "higher"
    assert slower.interval[0] > 1.01
    assert slower.ratio == pytest.approx(1.2)
    same = _change(base, report("B", 1e5 * (1 + SHIFT)))
    assert same.verdict == "no difference shown"
    assert same.interval[0] <= 1 <= same.interval[1]
    assert _change(report("A", 1.2e5 * (1 + SHIFT)), base).verdict == "lower"
    alone = _change(report("A", [1e5]), report("B", [2e5]))
    assert (alone.verdict, alone.interval, alone.difference) == ("undecided", None, 1e5)


NAME = "dram__bytes_read.sum"


def test_what_one_side_never_counts_differs_without_a_ratio(report):
    zero = report("A", [1e5] * 6, dram__bytes_read___sum=0.0)
    some = report("B", [1e5] * 6, dram__bytes_read___sum=4e6)
    change = _change(zero, some, NAME, metrics=[NAME])
    assert (change.verdict, change.ratio, change.difference) == ("higher", None, 4e6)
    assert change.interval is None
    assert _change(some, zero, NAME, metrics=[NAME]).verdict == "lower"


@pytest.mark.parametrize(("launches", "first"), [(5, 0.0), (6, -1.0)])
def test_few_launches_and_negative_values_are_undecided(report, launches, first):
    few = report("A", [1e5] * launches, dram__bytes_read___sum=first)
    some = report("B", [1e5] * launches, dram__bytes_read___sum=4e6)
    change = _change(few, some, NAME, metrics=[NAME])
    assert (change.verdict, change.interval) == ("undecided", None)


def test_what_follows_from_the_launch_has_no_noise(report):
    """A metric of one side only has no verdict."""
    name = "registers_per_thread"
    without = report("A", [1e5])
    first, second = (report(label, [1e5], launch__registers_per_thread=registers)
                     for label, registers in (("A", 64.0), ("B", 128.0)))  # fmt: skip
    change = _change(without, first, name)
    assert (change.first, change.second, change.verdict) == (None, 64.0, "")
    assert _change(first, second, name).verdict == "higher"
    assert _change(first, first, name).verdict == "same"


def test_findings_that_come_and_go(counter_launches):
    launch, metrics = counter_launches.launch, counter_launches.metrics
    launches = [launch(metrics()), launch(metrics({"dram__cycles_active": 92.0}))]
    first, second = (
        CounterReport(label, "", variants_of([one], [diagnose(one)]))
        for label, one in zip("AB", launches, strict=True)
    )
    (kernel,) = compare_counters([first, second]).kernels
    assert kernel.second.diagnosis.verdict.id == "dram_roof"
    assert "dram_roof" in kernel.new
    assert "latency_long_scoreboard" in kernel.gone


def test_other_work_is_noted(report):
    bf16 = "sm__ops_path_tensor_src_bf16_dst_fp32___sum"
    first, second = (report(label, [1e5], **{bf16: value})
                     for label, value in (("A", 1e9), ("B", 4e9)))  # fmt: skip
    (kernel,) = compare_counters([first, second]).kernels
    assert "1e+09 and 4e+09" in kernel.note
