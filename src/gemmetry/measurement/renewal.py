"""Changes inputs between rounds: a timed launch must compute on the current contents of its
buffers."""

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
"""Number of sets whose inputs change in a round: the output of one holds its earlier result, that
of the other a sentinel. More sets would add no information, and extra work for new inputs should
affect few samples."""


class LeftOutput(NamedTuple):
    """A launch's result and the inputs it had."""

    label: str
    array: HostArray
    change: InputChange | None
    """Change of the operation's inputs at the launch; None: they were unchanged."""


class Renewal:
    """Changes inputs in place and restores them.

    One line of A or of B is negated, at a place that depends on the seed and the round: every
    element of an unpredictable line of the result then changes. The change is so small that caches
    stay as cold as they were. It is written between the untimed and the timed launches, so that
    results of untimed launches are wrong for the timed ones.

    Args:
        inputs: host arrays of ``operation.inputs``, of which the sets hold copies.
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
        """Restore the contents of the sets before the next launch."""
        for one in self._changed:
            if one.change is not None:
                for edit in self._prepared(one, one.change, back=True):
                    edit()
            # Its result belongs to other inputs than it now has, unless it is launched on again.
            one.change, one.launched = None, False
        self._changed = []

    def prepare(
        self, candidates: Sequence[BufferSet], *, fills: bool, latest: bool = False
    ) -> list[Callable[[], object]]:
        """A function that changes the inputs of some of the sets in stream order, without waiting;
        these sets count as changed from now on. :meth:`undo` must be called before the next change.

        Args:
            candidates: sets that are launched on again after the calls.
            fills: fill the output of one of them with the sentinel.
            latest: the last candidate must be among the changed sets.
        """
        if not candidates:
            return []
        self._rounds += 1
        rng = np.random.default_rng([*self._entropy, self._rounds])
        chosen = rng.choice(len(candidates), min(WATCHED, len(candidates)), replace=False).tolist()
        if latest and len(candidates) - 1 not in chosen:
            chosen[0] = len(candidates) - 1
        # A line of a convolution's A is a whole image, whose reference takes long to compute.
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
