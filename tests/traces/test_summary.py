"""The summary against arithmetic written in another way: sets of nanoseconds, one by one."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.steps import find_steps
from gemmetry.traces.summary import (
    KEYS,
    TIMES,
    microseconds,
    step_entry,
    summarize,
    summarize_steps,
    summary_document,
    summary_entry,
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
    for what, start, duration, stream in events:
        if what in ("memcpy", "memset"):
            getattr(made, what)(start, duration, stream=stream)
        else:
            name = {"gemm": GEMM, "add": ADD, "comm": NCCL}[what]
            made.kernel(name, start, duration, stream=stream)
    return made


def expected(events, low=-1, high=10**6):
    """By sets of the nanoseconds in which something runs, within [low, high)."""

    def time(*kinds):
        return {
            moment
            for what, start, duration, _ in events
            if what in kinds
            for moment in range(max(start, low), min(start + duration, high))
        }

    comm, compute = time("comm"), time("gemm", "add", "memset")
    busy = time(*WHAT)
    if low < 0:
        ends = [start + duration for _, start, duration, _ in events]
        window = max(ends) - min(start for _, start, _, _ in events) if events else 0
    else:
        window = high - low
    count = Counter(what for what, start, _, _ in events if low <= start < high)
    total = Counter()
    for what, start, duration, _ in events:
        if low <= start < high:
            total[what] += duration
    return {
        "kernels": count["gemm"] + count["add"] + count["comm"],
        "gemm_kernels": count["gemm"],
        "comm_kernels": count["comm"],
        "gemm_kernel_ns": total["gemm"],
        "comm_kernel_ns": total["comm"],
        "window_ns": window,
        "busy_ns": len(busy),
        "compute_union_ns": len(compute),
        "comm_union_ns": len(comm),
        "memcpy_union_ns": len(time("memcpy")),
        "comm_compute_overlap_ns": len(comm & compute),
        "exposed_comm_ns": len(comm - compute),
        "gemm_comm_overlap_ns": len(time("gemm") & comm),
        "idle_ns": window - len(busy),
    }


def told(summary):
    names = ["kernels", "gemm_kernels", "comm_kernels", *(f"{name}_ns" for name in TIMES)]
    return {name: getattr(summary, name) for name in names}


@given(_events)
@settings(deadline=None, max_examples=150)
def test_every_time_is_the_count_of_its_nanoseconds(recording, events):
    assert told(summarize(add(recording(), events).trace())) == expected(events)


@given(_events, st.integers(0, 60), st.integers(1, 60))
@settings(deadline=None, max_examples=80)
def test_a_steps_times_are_those_within_its_window(recording, events, start, length):
    made = recording()
    made.mark("ProfilerStep#3", start, length, gpu=True)
    (step,) = summarize_steps(add(made, events).trace())
    assert told(step) == expected(events, start, start + length)


def test_times_with_three_decimals_of_a_microsecond_are_exact(recording):
    # 52 days after the clock began, in float64 µs these starts would be 0.5 ns off.
    base = 4_500_000_000_000_001
    made = recording()
    made.kernel(GEMM, base, 333)
    made.kernel(ADD, base + 334, 333)
    summary = summarize(made.trace())
    assert (summary.window_ns, summary.busy_ns, summary.idle_ns) == (667, 666, 1)


def test_the_ten_gemms_with_the_most_time(recording):
    made = recording()
    for size in range(12):
        for repeat in range(2):
            made.kernel(f"volta_sgemm_{size}x64_tn", 1000 * size + 100 * repeat, size + repeat)
    made.kernel(ADD, 0, 10**6)
    top = summarize(made.trace()).top_gemms
    assert len(top) == 10
    assert (top[0].name, top[0].count) == ("volta_sgemm_11x64_tn", 2)
    assert (top[0].sum_ns, top[0].min_ns, top[0].max_ns) == (23, 11, 12)
    assert [gemm.sum_ns for gemm in top] == [2 * size + 1 for size in range(11, 1, -1)]


def test_a_trace_without_gpu_events(recording):
    made = recording()
    made.operator("aten::mm", 0, 10)
    summary = summarize(made.trace())
    assert set(told(summary).values()) == {0}
    assert summary.events == 1
    assert summary.top_gemms == ()


def test_the_documents_keys_and_numbers(recording):
    made = recording()
    made.kernel(GEMM, 1000, 1_234_567)
    trace = made.trace("folder/a.json")
    document = summary_document([summarize(trace)], errors={"b.json": "no trace"})
    (entry,) = document["files"]
    assert tuple(entry) == KEYS
    assert entry["file"] == "folder/a.json"
    text = msgspec.json.Encoder(decimal_format="number").encode(document).decode()
    assert '"gemm_kernel_us":1234.567' in text
    assert '"idle_us":0.000' in text
    assert document["errors"] == [{"file": "b.json", "error": "no trace"}]
    assert document["partial"] == []
    assert "steps" not in document


@given(st.integers(0, 2**62))
@settings(deadline=None, max_examples=100)
def test_microseconds_lose_nothing(ns):
    assert microseconds(ns) * 1000 == ns
    assert str(microseconds(ns)) == f"{ns // 1000}.{ns % 1000:03d}"
    assert isinstance(microseconds(ns), Decimal)


def test_a_steps_entry_names_the_step(recording):
    made = recording()
    made.mark("ProfilerStep#3", 0, 100, gpu=True)
    made.kernel(GEMM, 50, 100)
    trace = made.trace()
    (step,) = summarize_steps(trace)
    entry = step_entry(step)
    assert (entry["step"], entry["window_from"]) == (3, "gpu")
    assert entry["gemm_kernels"] == 1
    assert entry["busy_us"] == Decimal("0.050")
    assert entry["gemm_kernel_us"] == Decimal("0.100")
    assert step.step == find_steps(trace)[0]
    assert "top_gemms" not in entry
    assert "top_gemms" in summary_entry(step)
