"""Workers without processes: an executor whose channels hold their messages in memory."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from gemmetry.domain.errors import Stage, Verification
from gemmetry.domain.record import BuildFacts, TraceFacts, Verdict
from gemmetry.engine.protocol import (
    Answered,
    ChannelClosed,
    Close,
    Closed,
    Compile,
    CompileDone,
    Entered,
    Frame,
    Hello,
    Open,
    Opened,
    Ready,
    Sample,
    Sampled,
    WireDispatch,
)
from gemmetry.measurement.stopping import Round
from gemmetry.verification.checks import CheckOutcome, CheckResult
from gemmetry.verification.protocol import CHECKS

PASSED = Verdict(
    status=Verification.PASSED,
    checks=dict.fromkeys(("form", *(check.name for check in CHECKS)), "passed"),
)

_CHANCE = random.Random(0)

Answer = Callable[[Frame], Iterable[Frame]]


def healthy_answers(request: Frame) -> list[Frame]:
    """What a worker answers that finds everything right."""
    match request:
        case Hello():
            return [Ready()]
        case Compile():
            answers = [CompileDone(wire.id, BuildFacts(), None) for wire in request.dispatches]
        case Open():
            answers = [reply for wire in request.dispatches for reply in opened(wire)]
        case Sample():
            answers = [Sampled(key, _round(count), None) for key, count in request.requests]
        case Close():
            check = CheckResult("after_timing", CheckOutcome.PASSED)
            answers = [Closed(key, check, None) for key in request.ids]
        case _:
            return []
    return [*answers, Answered()]


def _round(count: int) -> Round:
    samples = tuple(_CHANCE.uniform(1e8, 1.5e8) for _ in range(count))
    return Round(samples_ns=samples, method="events", seconds=1e-6)


def opened(wire: WireDispatch) -> list[Frame]:
    """The answers about a dispatch that can be opened."""
    facts = TraceFacts(
        folder=wire.trace_folder, files=(), operators=1, kernels=0, input_sha256={},
        output_sha256="",
    )  # fmt: skip
    trace, verdict = facts if wire.trace_folder else None, PASSED if wire.verify else None
    answer = Opened(wire.id, BuildFacts(), verdict, None, "", 1 << 30, trace)
    return [Entered(wire.id, Stage.VERIFY), answer]


class MemoryChannel:
    """Queues what `answer` replies to each request."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.sent: list[Frame] = []
        self.queue: deque[Frame] = deque()
        self.is_closed = False

    def send(self, message: Frame) -> None:
        if self.is_closed:
            raise ChannelClosed
        self.sent.append(message)
        self.queue.extend(self.answer(message))

    def receive(self, timeout_s: float | None = None) -> Any:
        if self.queue:
            return self.queue.popleft()
        raise ChannelClosed if self.is_closed else TimeoutError

    def is_idle(self) -> bool:
        return not self.queue

    def close(self) -> None:
        self.is_closed = True


class MemoryProcess:
    """Runs until it is ended; its exit status is then `status`."""

    pid = 0

    def __init__(self, channel: MemoryChannel) -> None:
        self._channel = channel
        self.status: int | None = None

    def wait(self, seconds: float) -> int | None:
        return self.status

    def end(self) -> None:
        self.status = -9
        self._channel.close()

    def left_running(self) -> list[str]:
        return []

    def memory_shortage(self) -> str:
        return ""

    def was_killed_for_memory(self) -> bool:
        return False


class MemoryExecutor:
    """Starts workers whose channels `make_channel` makes; remembers them all."""

    def __init__(self, make_channel=lambda: MemoryChannel(healthy_answers)):
        self._make_channel = make_channel
        self.starts = []
        self.channels = []
        self.processes = []

    def start(self, *arguments: Any) -> tuple[MemoryChannel, MemoryProcess]:
        self.starts.append(arguments)
        self.channels.append(self._make_channel())
        self.processes.append(MemoryProcess(self.channels[-1]))
        return self.channels[-1], self.processes[-1]
