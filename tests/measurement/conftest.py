"""A device with a clock that only its executables move, and executables on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gemmetry.domain.dispatch import split_dispatch_name
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.record import BuildFacts
from gemmetry.measurement import sampler


@dataclass(kw_only=True)
class FakeDevice:
    """Numpy memory; `durations_ns` is repeated for the launches, an empty call takes `empty_ns`."""

    durations_ns: Sequence[float] = (1000.0,)
    method: str = "wall_clock"
    last_level_cache_bytes: int = 0
    memory_bytes: int = 2**30
    empty_ns: float = 0.0
    clock_ns: float = 0.0
    timed: list[int] = field(default_factory=list)
    clones: int = 0
    releases: int = 0

    def allocate(self, spec):
        return np.zeros(spec.storage_shape, np.float32)

    def upload(self, array, spec):
        return array.copy()

    def write(self, buffer, array, spec):
        buffer[...] = array

    def download(self, buffer, spec):
        return buffer.copy()

    def fill_bytes(self, buffer, pattern):
        buffer.reshape(-1).view(np.uint8).fill(pattern)

    def same_bytes(self, left, right):
        return bool(left.tobytes() == right.tobytes())

    def clone(self, buffer):
        self.clones += 1
        return buffer.copy()

    def synchronize(self): ...

    def time_calls(self, calls):
        self.timed.append(len(calls))
        durations = []
        for call in calls:
            before = self.clock_ns
            call()
            durations.append(self.clock_ns - before + self.empty_ns)
        return durations, self.method

    def free_memory_bytes(self):
        return self.memory_bytes

    def release(self):
        self.releases += 1


@dataclass(kw_only=True)
class FakeStreamDevice(FakeDevice):
    """Events see `seen_share` of the time; a captured call is replayed in half of the time. Waiting
    for the idle device takes `others_ns` longer."""

    method: str = "events"
    seen_share: float = 1.0
    others_ns: float = 0.0
    refusal: str = ""
    neighbour_ns: float = 700.0
    captures: int = 0
    checked: list[int] = field(default_factory=list)
    leads_ns: list[float] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def time_in_load(self, lead, calls, tail, lead_ns):
        self.leads_ns.append(lead_ns)
        durations, _ = self.time_calls([*lead, *calls, *tail])
        return durations[len(lead) : len(lead) + len(calls)]

    def neighbour(self):
        def small_kernel():
            self.clock_ns += self.neighbour_ns
            self.order.append("neighbour")

        return small_kernel

    def captured(self, call, *, keeps_result=False):
        if self.refusal:
            raise LaunchError(self.refusal)
        self.captures += 1

        def replay():
            before = self.clock_ns
            result = call()
            self.clock_ns -= (self.clock_ns - before) / 2
            return result if keeps_result else None

        return replay

    def stream_and_wall_ns(self, calls):
        self.checked.append(len(calls))
        durations, _ = self.time_calls(calls)
        return sum(durations) * self.seen_share, sum(durations) + self.others_ns


class FakeExecutable:
    """A float32 matmul that remembers which buffers it was given."""

    facts = BuildFacts()

    def __init__(self, device, *, writes_output=True):
        self.device = device
        self.writes_output = writes_output
        self.launches = 0
        self.input_ids: list[int] = []
        self.output_ids: list[int] = []
        self.after: Callable[[int, Any], None] | None = None

    def run(self, inputs, output):
        durations = self.device.durations_ns
        self.device.clock_ns += durations[self.launches % len(durations)]
        self.launches += 1
        getattr(self.device, "order", []).append("launch")
        self.input_ids.append(id(inputs[0]))
        self.output_ids.append(id(output))
        result = output if self.writes_output else np.empty_like(output)
        np.matmul(inputs[0], inputs[1], out=result)
        if self.after is not None:
            self.after(self.launches, result)
        return result

    def close(self): ...


@pytest.fixture(autouse=True)
def no_chance_tries(monkeypatch):
    """New inputs come again only where a test wants them: they would change what it counts."""
    monkeypatch.setattr(sampler, "_TRIED_AGAIN", 0.0)


@pytest.fixture
def operation():
    return split_dispatch_name("matmul_8x4x16_f32t_f32t_f32t")[0]


@pytest.fixture
def host_inputs(operation):
    generator = np.random.default_rng(7)
    return tuple(
        generator.random(spec.storage_shape, dtype=np.float32) for spec in operation.inputs
    )


@pytest.fixture
def kit(operation, host_inputs):
    """A product with its inputs, and what makes devices and executables of it."""
    return SimpleNamespace(
        operation=operation, inputs=host_inputs, device=FakeDevice,
        stream_device=FakeStreamDevice, executable=FakeExecutable,
    )  # fmt: skip
