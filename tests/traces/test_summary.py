"""The summary compared with an independent computation: sets of nanoseconds, one by one."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.summary import (
    TopGemm,
    outside_steps,
    summarize,
    summarize_steps,
)

GEMM = "volta_sgemm_64x64_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)"
WHAT = ("gemm", "add", "comm", "memcpy", "memset")

_events = st.lists(
    st.tuples(st.sampled_from(WHAT), st.integers(0, 80), st.integers(0, 25), st.integers(0, 3)),
    max_size=25,
)


def add(made, events):
    """Work that is linked to the calls 1, 2 ..., where there are such."""
    for number, (what, start, duration, stream) in enumerate(events, 1):
        args = {"stream": stream, "correlation": number}
        if what in ("memcpy", "memset"):
            getattr(made, what)(start, duration, **args)
        else:
            name = {"gemm": GEMM, "add": ADD, "comm": NCCL}[what]
            made.kernel(name, start, duration, **args)
    return made


def moments(events, *kinds):
    """The nanoseconds in which something of these kinds runs."""
    return {
        moment
        for what, start, duration, _ in events
        if what in kinds
        for moment in range(start, start + duration)
    }


def expected(events, others=()):
    """By sets of nanoseconds: of `events`, and of everything that runs alongside (`others`)."""
    begin = min((start for _, start, _, _ in events), default=0)
    end = max((start + duration for _, start, duration, _ in events), default=0)
    window = set(range(begin, end))
    comm, busy = moments(events, "comm"), moments(events, *WHAT)
    everything = [*events, *others]
    computing = moments(everything, "gemm", "add", "memset")
    running = window & moments(everything, *WHAT)
    count = Counter(what for what, _, _, _ in events)
    total = Counter()
    for what, _, duration, _ in events:
        total[what] += duration
    return {
        "kernels": count["gemm"] + count["add"] + count["comm"],
        "gemm_kernels": count["gemm"],
        "comm_kernels": count["comm"],
        "gemm_kernel_ns": total["gemm"],
        "comm_kernel_ns": total["comm"],
        "window_ns": end - begin,
        "busy_ns": len(busy),
        "compute_union_ns": len(moments(events, "gemm", "add", "memset")),
        "comm_union_ns": len(comm),
        "memcpy_union_ns": len(moments(events, "memcpy")),
        "comm_compute_overlap_ns": len(comm & computing),
        "exposed_comm_ns": len(comm - computing),
        "gemm_comm_overlap_ns": len(moments(everything, "gemm") & comm),
        "idle_ns": len(window) - len(running),
        "others_ns": len(running - busy),
    }


def times_of(summary):
    times = [key.replace("_us", "_ns") for key in summary.record() if key.endswith("_us")]
    names = {"kernels", "gemm_kernels", "comm_kernels", "others_ns", *times} - {"mark_ns"}
    return {name: getattr(summary, name, 0) for name in names}


@given(_events)
@settings(max_examples=60)
def test_every_time_is_the_count_of_its_nanoseconds(recording, events):
    assert times_of(summarize(add(recording(), events).trace())) == expected(events)


@given(_events, st.lists(st.integers(0, 3), min_size=25, max_size=25))
@settings(max_examples=50)
def test_a_steps_times_are_those_of_its_work(recording, events, of_step):
    """Steps 1 and 2 lie anywhere on the device; 0 and 3 are none."""
    made = recording()
    made.mark("ProfilerStep#1", 100, 100)
    made.mark("ProfilerStep#2", 200, 100)
    for number, step in enumerate(of_step, 1):
        made.call(number, 100 * step + number)
    trace = add(made, events).trace()
    parts = {step: [] for step in range(4)}
    for event, step in zip(events, of_step, strict=False):
        parts[step].append(event)
    steps = summarize_steps(trace)
    assert {one.step.number: times_of(one) for one in steps} == {
        step: expected(parts[step], [e for other in parts if other != step for e in parts[other]])
        for step in (1, 2)
        if parts[step]
    }
    outside = outside_steps(trace)
    for name in ("kernels", "gemm_kernels", "comm_kernels"):
        inside = sum(getattr(one, name) for one in steps)
        assert inside + getattr(outside, name) == getattr(summarize(trace), name)
    assert outside.unlinked == 0


@given(st.integers(0, 2**52))
@settings(max_examples=100)
def test_microseconds_lose_nothing(ns):
    gemm = TopGemm(name="", count=1, sum_ns=ns, min_ns=0, max_ns=0)
    assert Decimal(str(gemm.record()["sum_us"])) * 1000 == ns
