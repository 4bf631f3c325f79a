"""The timed launches: on rotating buffers, grouped into calls of one sample each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gemmetry.domain.contracts import Executable, StreamDevice
from gemmetry.measurement.buffers import BufferSet

Call = Callable[[], object]


class Launches:
    """An endless rotation through the buffer sets, returned piece by piece.

    After :meth:`capture`, samples are replays of graphs that hold `per_sample` launches each and
    together cycle through all sets.
    """

    def __init__(self, executable: Executable, sets: Sequence[BufferSet]) -> None:
        self._executable = executable
        self._sets = sets
        self._each = [self._launch(buffers) for buffers in sets]
        self._replays: list[Call] = []
        self._next = 0
        self.per_sample = 1

    @property
    def is_captured(self) -> bool:
        """True once samples are replays."""
        return bool(self._replays)

    @property
    def submissions(self) -> int:
        """Entries in the device's queue per sample: a replay is one, whatever it holds."""
        return 1 if self._replays else self.per_sample

    def single(self, count: int) -> list[Call]:
        """`count` calls of one launch each, continuing where the last call ended."""
        total = len(self._each)
        start, self._next = self._next, self._next + count
        self._mark(start, count)
        return [self._each[index % total] for index in range(start, self._next)]

    def samples(self, count: int) -> list[Call]:
        """`count` calls of one sample each, continuing where the last call ended."""
        if self.per_sample == 1 and not self._replays:
            return self.single(count)
        self._align()
        start, size = self._next, self.per_sample
        self._next += count * size
        self._mark(start, count * size)
        firsts = range(start, self._next, size)
        if self._replays:
            return [self._replays[first // size % len(self._replays)] for first in firsts]
        return [back_to_back(self._from(first, size)) for first in firsts]

    def last_used(self) -> tuple[Call, BufferSet]:
        """A launch on the set used last, and that set: launching on it again keeps the next sets
        cold."""
        index = (self._next - 1) % len(self._sets)
        return self._each[index], self._sets[index]

    def upcoming(self, samples: int, *, after: int = 0) -> list[BufferSet]:
        """The sets that the next `samples` samples launch on, in the order of their last use.

        Args:
            after: number of samples that come before these.
        """
        if self._replays:
            self._align()
        total, start = len(self._sets), self._next + after * self.per_sample
        end = start + samples * self.per_sample
        return [self._sets[index % total] for index in range(max(start, end - total), end)]

    def replayed_again(self) -> tuple[Call, BufferSet] | None:
        """A replay whose call returns its result, and the set that it launches on last; None where
        nothing was captured."""
        if not self._replays:
            return None
        return self._replays[0], self._sets[(self.per_sample - 1) % len(self._sets)]

    def capture(self, device: StreamDevice, per_sample: int) -> None:
        """Capture graphs of `per_sample` launches each, one for each part of the rotation; the
        number of sets must be a divisor or a multiple of `per_sample`.

        Raises:
            LaunchError: a launch cannot be captured; samples stay as they were.
        """
        count = max(1, len(self._sets) // per_sample)
        if count * per_sample % len(self._sets):
            raise ValueError(f"graphs of {per_sample} launches do not go round {len(self._sets)}")
        replays = [
            device.captured(
                back_to_back(self._from(place * per_sample, per_sample)), keeps_result=place == 0
            )
            for place in range(count)
        ]
        self._replays, self.per_sample, self._next = replays, per_sample, 0

    def clear(self) -> None:
        """Release graphs and buffers."""
        self._replays.clear()
        self._each.clear()

    def _launch(self, buffers: BufferSet) -> Call:
        run, inputs, output = self._executable.run, buffers.inputs, buffers.output

        def launch() -> object:
            return run(inputs, output)

        return launch

    def _from(self, first: int, count: int) -> list[Call]:
        return [self._each[index % len(self._each)] for index in range(first, first + count)]

    def _align(self) -> None:
        """Advance to the next beginning of a graph: graphs begin at fixed places in the
        rotation."""
        if self._replays:
            self._next = math.ceil(self._next / self.per_sample) * self.per_sample

    def _mark(self, start: int, count: int) -> None:
        total = len(self._sets)
        for index in range(start, start + min(count, total)):
            self._sets[index % total].launched = True


def back_to_back(launches: Sequence[Call]) -> Call:
    """One call that makes all the calls in order and returns the result of the last one."""
    if len(launches) == 1:
        return launches[0]

    def sample() -> object:
        result: object = None
        for launch in launches:
            result = launch()
        return result

    return sample
