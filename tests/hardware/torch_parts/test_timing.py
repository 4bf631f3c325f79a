"""The GPU's clock with a simulated ``torch.cuda``, whose device works through what was
submitted."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from gemmetry.domain.errors import LaunchError  # noqa: E402
from gemmetry.hardware import torch_timing  # noqa: E402
from gemmetry.hardware.torch_timing import StreamTimer  # noqa: E402


class FakeCuda:
    """A device with a clock in ns. Work on the current stream moves it; work on other streams does
    not show in events, but in the time until the device is done."""

    def __init__(self):
        self.clock_ns = self.others_ns = 0.0
        self.slept_ns: list[float] = []
        self.recording: FakeGraph | None = None
        self.stream_now: object = "default"
        self.fails_at_end = False
        self.pools = 0
        self.waited_at = 0.0

    def launch(self, duration_ns, *, others=False, fill=None):
        """What a kernel's launch does."""
        if others:
            self.others_ns += duration_ns
        elif self.recording is not None:
            self.recording.nodes.append((duration_ns, fill))
            return
        else:
            self.clock_ns += duration_ns
        if fill is not None:
            fill()

    def Event(self, enable_timing):  # noqa: N802  # torch's name
        assert enable_timing
        return FakeEvent(self)

    def CUDAGraph(self):  # noqa: N802
        return FakeGraph(self)

    def Stream(self, index):  # noqa: N802
        return f"side of {index}"

    def current_stream(self, _index):
        return self.stream_now

    def set_stream(self, stream):
        self.stream_now = stream

    @contextmanager
    def stream(self, stream):
        before, self.stream_now = self.stream_now, stream
        yield
        self.stream_now = before  # like torch's, not where the body raised

    def graph_pool_handle(self):
        self.pools += 1
        return self.pools

    def _sleep(self, cycles):
        self.slept_ns.append(cycles * 0.5)
        self.clock_ns += cycles * 0.5

    def synchronize(self, _index):
        time.sleep(self.others_ns / 1e9)
        self.others_ns = 0.0


class FakeEvent:
    def __init__(self, cuda):
        self.cuda, self.at = cuda, 0.0

    def record(self):
        self.at = self.cuda.clock_ns

    def synchronize(self):
        self.cuda.waited_at = max(self.cuda.waited_at, self.at)

    def elapsed_time(self, end):
        return (end.at - self.at) / 1e6


class FakeGraph:
    def __init__(self, cuda):
        self.cuda = cuda
        self.nodes: list[tuple[float, object]] = []

    def capture_begin(self, pool):
        assert pool == self.cuda.pools
        assert self.cuda.stream_now != "default"
        self.cuda.recording = self

    def capture_end(self):
        self.cuda.recording = None
        if self.cuda.fails_at_end:
            raise RuntimeError("CUDA error: operation failed due to a previous error\nmore")

    def replay(self):
        for duration_ns, fill in self.nodes:
            self.cuda.launch(duration_ns, fill=fill)


@pytest.fixture
def cuda():
    return FakeCuda()


def test_events_see_each_call_and_no_backlog(cuda):
    timer = StreamTimer(0, cuda)
    calls = [lambda i=i: cuda.launch(1000.0 * (i + 1)) for i in range(100)]
    assert timer.time_calls(calls) == pytest.approx([1000.0 * (i + 1) for i in range(100)])
    # Two to calibrate, and one before each batch.
    assert len(cuda.slept_ns) == 2 + -(-100 // torch_timing._CALLS_PER_BACKLOG)


def test_the_backlog_follows_the_time_that_submitting_takes(cuda, monkeypatch):
    host_ns = [0]
    clock = SimpleNamespace(perf_counter_ns=lambda: host_ns[0])
    monkeypatch.setattr(torch_timing, "time", clock)

    def slowly():
        host_ns[0] += 2_000_000

    timer = StreamTimer(0, cuda)
    timer.time_calls([lambda: None] * 64)
    first = cuda.slept_ns[-1]
    timer.time_calls([lambda: None] * 64)
    assert cuda.slept_ns[-1] < first / 2, "an empty call is submitted faster than assumed"
    timer.time_calls([slowly] * 4)
    slow = cuda.slept_ns[-1] / 4
    timer.time_calls([lambda: None] * 4)
    assert cuda.slept_ns[-1] / 4 == pytest.approx(2 * slow, rel=0.01), "growth is bounded"


def test_a_load_is_led_in_timed_and_left_running(cuda):
    timer = StreamTimer(0, cuda)
    timer.time_calls([lambda: None] * 3)
    cuda.slept_ns.clear()
    done = []

    def call(name, ns):
        return lambda: done.append(name) or cuda.launch(ns)

    lead, calls, tail = [call("lead", 5e6)] * 3, [call("timed", 700.0)] * 2, [call("tail", 9e6)]
    assert timer.time_in_load(lead, calls, tail, 15e6) == pytest.approx([700.0, 700.0])
    assert done == ["lead"] * 3 + ["timed"] * 2 + ["tail"]
    assert cuda.slept_ns == [], "the lead is backlog enough"
    assert cuda.waited_at == pytest.approx(cuda.clock_ns - 9e6), "the tail is not waited for"


def test_calls_that_are_submitted_slowly_get_a_backlog_behind_the_lead(cuda):
    timer = StreamTimer(0, cuda)
    timer.time_calls([lambda: None] * 3)
    cuda.slept_ns.clear()
    slow = lambda: time.sleep(0.002)  # noqa: E731
    timer.time_in_load([slow] * 3, [slow] * 4, [], lead_ns=3000.0)
    [backlog_ns] = cuda.slept_ns
    assert backlog_ns >= 4 * 2e6 * torch_timing._SUBMIT_MARGIN


def test_wall_time_holds_what_events_do_not_see(cuda):
    timer = StreamTimer(0, cuda)

    def call():
        cuda.launch(10.0)
        cuda.launch(2e6, others=True)

    stream_ns, wall_ns = timer.stream_and_wall_ns([call] * 5)
    assert stream_ns == pytest.approx(50.0)
    assert wall_ns >= 1e7


def test_a_captured_call_does_its_work_when_it_is_replayed(cuda):
    timer, output = StreamTimer(0, cuda), torch.zeros(4)

    def call():
        for _ in range(3):
            cuda.launch(700.0, fill=lambda: output.fill_(5.0))
        return output

    replay = timer.captured(call)
    assert cuda.stream_now == "default"
    output.zero_()
    assert timer.time_calls([replay, replay]) == pytest.approx([2100.0, 2100.0])
    assert bool((output == 5.0).all())
    assert replay() is None
    assert timer.captured(call, keeps_result=True)() is output


def test_graphs_share_a_pool_while_one_of_them_lives(cuda):
    """A pool whose graphs are all gone is refused by torch 2.11."""
    timer = StreamTimer(0, cuda)
    kept = timer.captured(lambda: None)
    timer.captured(lambda: None)
    assert cuda.pools == 1
    del kept
    gc.collect()
    timer.captured(lambda: None)
    assert cuda.pools == 2


def test_work_on_another_stream_is_not_captured(cuda):
    output = torch.zeros(4)

    def call():
        cuda.launch(700.0, others=True, fill=lambda: output.fill_(5.0))
        return output

    with pytest.raises(LaunchError, match="writes no result when it is replayed"):
        StreamTimer(0, cuda).captured(call)


@pytest.mark.parametrize(
    "error", [RuntimeError("operation not permitted when stream is capturing"), LaunchError("no")]
)
def test_a_failed_capture_leaves_nothing_behind(cuda, error, monkeypatch):
    # Builds of torch without CUDA lack the function; builds with CUDA need a separate pool.
    reported: list[tuple[int, int]] = []
    monkeypatch.setattr(
        torch._C, "_cuda_endAllocateToPool", lambda *which: reported.append(which), raising=False
    )
    timer = StreamTimer(0, cuda)

    def call():
        cuda.fails_at_end = True
        raise error

    with pytest.raises(LaunchError, match=f"its launches cannot be captured: {error}"):
        timer.captured(call)
    assert reported == [(0, 1)]
    assert cuda.stream_now == "default"
    cuda.fails_at_end = False
    output = torch.zeros(1)

    def works():
        cuda.launch(1.0, fill=lambda: output.fill_(1.0))
        return output

    timer.captured(works)()
    assert output.item() == 1.0
