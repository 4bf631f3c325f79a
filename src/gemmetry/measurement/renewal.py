"""Inputs that change between rounds: a timed launch must follow what its buffers hold now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gemmetry.domain.contracts import Device, HostArray
from gemmetry.domain.operation import Conv2dShape, Operation
from gemmetry.measurement.buffers import SENTINEL, BufferSet
from gemmetry.numerics.changes import ChangeKind, InputChange, edits, undoing
from gemmetry.numerics.drawing import draw_change
from gemmetry.numerics.editing import prepared_edits

WATCHED = 2
"""Sets whose inputs change in a round: one finds its result before in the output, one a sentinel.
More would tell nothing new, and what a kernel does for new inputs is to show in few samples."""


class LeftOutput(NamedTuple):
    """What a launch left behind, and on what."""

    label: str
    array: HostArray
    change: InputChange | None
    """Of the operation's inputs, that the launch found; None: it found them as they are."""


class Renewal:
    """Changes inputs in place and changes them back.

    One line of A or of B is negated, at a place that follows from the seed and the round: every
    element of a line of the result is another one then, and nobody can know which. What changes is
    so little that caches stay as cold as they were. It is written right between untimed launches
    and timed ones, so that what was computed for untimed ones is no answer.

    Args:
        inputs: host arrays of ``operation.inputs``, which the sets hold copies of.
    """

    def __init__(
        self, device: Device, operation: Operation, inputs: Sequence[HostArray], seed: int
    ) -> None:
        self._device = device
        self._operation = operation
        self._inputs = inputs
        self._entropy = [seed % 2**64, *operation.matmul_shape]
        self._changed: list[BufferSet] = []
        self._rounds = 0

    def undo(self) -> None:
        """Give the sets back what they held, before whatever is launched next."""
        for one in self._changed:
            if one.change is not None:
                for edit in self._prepared(one, one.change, back=True):
                    edit()
            # What it left was of other inputs than it has now, unless it is launched on again.
            one.change, one.launched = None, False
        self._changed = []

    def prepare(
        self, candidates: Sequence[BufferSet], *, fills: bool, latest: bool = False
    ) -> list[Callable[[], object]]:
        """What changes the inputs of some of the sets when it is called, in order and without
        waiting; they count as changed from now on. :meth:`undo` comes before the next time.

        Args:
            candidates: each is launched on again after the calls.
            fills: fill the output of one of them with the sentinel.
            latest: the last candidate must be among them.
        """
        if not candidates:
            return []
        self._rounds += 1
        rng = np.random.default_rng([*self._entropy, self._rounds])
        chosen = rng.choice(len(candidates), min(WATCHED, len(candidates)), replace=False).tolist()
        if latest and len(candidates) - 1 not in chosen:
            chosen[0] = len(candidates) - 1
        # A line of a convolution's A is a whole image, whose answer takes long to find.
        place = 1 if isinstance(self._operation.shape, Conv2dShape) else int(rng.integers(2))
        change = draw_change(self._operation, self._inputs, ChangeKind.NEGATED, place, rng)
        calls: list[Callable[[], object]] = []
        for number, index in enumerate(chosen):
            one = candidates[index]
            calls += self._prepared(one, change)
            if fills and number == 0:
                calls.append(_filling(self._device, one))
            one.change, one.poisoned = change, True
            self._changed.append(one)
        return calls

    def _prepared(
        self, one: BufferSet, change: InputChange, *, back: bool = False
    ) -> list[Callable[[], None]]:
        operation = self._operation
        wanted = undoing(operation, self._inputs, change) if back else edits(operation, change)
        return prepared_edits(self._device, operation.inputs, one.inputs, wanted)


def _filling(device: Device, one: BufferSet) -> Callable[[], object]:
    return lambda: device.fill_bytes(one.output, SENTINEL)
