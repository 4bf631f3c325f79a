"""Changes inputs between rounds, and returns what launches left behind: a timed launch must compute
on the current contents of its buffers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from gemmetry.domain.contracts import Buffer, Device, DigestingDevice, EditableDevice, HostArray
from gemmetry.domain.operation import Conv2dShape, Operation
from gemmetry.measurement.launches import SENTINEL, BufferSet
from gemmetry.numerics.inputs import (
    ChangeKind,
    InputChange,
    draw_change,
    edits,
    negates_result,
    negative,
    prepared_edits,
    result_edits,
    take_lines,
    undoing,
)
from gemmetry.numerics.references import to_logical

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


@dataclass(eq=False)
class KeptResults:
    """Results of randomly chosen launches, while they were timed: one copy of each kind, for
    verification afterwards. At most `most` results that differ are kept: the first, and a random
    choice of the others."""

    device: Device
    operation: Operation
    label: str
    most: int
    seen: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random()
        self._kept: list[tuple[BufferSet, LeftOutput]] = []
        self._different = 0

    def look_at(self, one: BufferSet, result: Buffer) -> None:
        """Keep a copy of `result`, which a launch on the inputs of `one` has just returned or
        written, unless an equal one is known."""
        device, operation = self.device, self.operation
        self.seen += 1
        seen = BufferSet((), result, change=one.change)
        if any(_are_equal(device, operation, seen, *other) for other in self._kept):
            return
        self._different += 1
        place = len(self._kept)
        if place == self.most:
            place = 1 + self._chance.randrange(self._different)  # the first one is what others are
            if place >= self.most:
                return
        if device.free_memory_bytes() < 3 * operation.output.bytes:
            return
        array = device.download(result, operation.output)
        left = LeftOutput(f"{self.label} {self.seen}", array, one.change)
        copy = BufferSet((), device.clone(result), change=one.change)
        self._kept[place : place + 1] = [(copy, left)]

    def left(self, right: str = "") -> list[LeftOutput]:
        """Kept outputs, as :func:`left_outputs` returns them; first the results of unchanged
        inputs."""
        found = [
            left
            for one, left in self._kept
            if not is_known(self.device, self.operation, one.output, one.change, right)
        ]
        return sorted(found, key=lambda left: left.change is not None)

    def right_result(self, right: str) -> HostArray | None:
        """The result of unchanged inputs that the device finds to be the one with the digest
        `right`; None if none was kept."""
        found = (
            left.array
            for one, left in self._kept
            if not one.change and is_known(self.device, self.operation, one.output, None, right)
        )
        return next(found, None)


def left_outputs(
    device: Device, operation: Operation, sets: Sequence[BufferSet], right: str = ""
) -> list[LeftOutput]:
    """The outputs that the last round's launches wrote into `sets`, equal ones once, and without
    those that the device finds to be the output with the digest `right`, which was verified.

    An output of unchanged inputs and one of inputs with a negated line count as equal if they
    differ only in the sign of that line, as they should.
    """
    judged = [(i, s) for i, s in enumerate(sets) if s.launched and s.poisoned]
    # Where everything is wrong, an output of unchanged inputs shows it most clearly.
    judged.sort(key=lambda pair: pair[1].change is not None)
    kept: list[tuple[BufferSet, LeftOutput]] = []
    for index, one in judged:
        if is_known(device, operation, one.output, one.change, right):
            continue
        if not any(_are_equal(device, operation, one, *other) for other in kept):
            array = device.download(one.output, operation.output)
            kept.append((one, LeftOutput(f"output {index} after timing", array, one.change)))
    return [output for _, output in kept]


def is_known(
    device: Device, operation: Operation, output: Buffer, change: InputChange | None, right: str
) -> bool:
    """Whether the device's digest of `output` is `right`, "" for none, except for the sign of the
    lines that `change` negates."""
    if not right or not isinstance(device, DigestingDevice):
        return False
    if change is None:
        return device.digest(output) == right
    if not negates_result(operation, change):
        return False
    # Only the places of the lines count.
    logical = np.broadcast_to(np.int8(0), operation.output.shape)
    places = result_edits(operation, change, take_lines(operation, logical, change))
    return device.digest(output, [edit.index for edit in places]) == right


def _are_equal(
    device: Device, operation: Operation, one: BufferSet, other: BufferSet, left: LeftOutput
) -> bool:
    """Whether the output of `one` equals that of `other`, held by `left`, except for the sign that
    the change of `one` flips; compared on the device."""
    change = one.change
    if change is other.change:
        return device.same_bytes(one.output, other.output)
    if change is None or other.change is not None or not negates_result(operation, change):
        return False
    if not isinstance(device, EditableDevice):
        return False  # this would copy the whole output for each line
    lines = take_lines(operation, to_logical(left.array, operation.output), change)
    there, back = (
        prepared_edits(
            device, (operation.output,), (other.output,), result_edits(operation, change, some)
        )
        for some in (negative(lines), lines)
    )
    for edit in there:
        edit()
    is_same = device.same_bytes(one.output, other.output)
    for edit in back:
        edit()
    return is_same


@dataclass(eq=False)
class Renewal:
    """Changes inputs in place and restores them.

    One line of A or of B is negated, at a place that depends on the seed and the round: every
    element of an unpredictable line of the result then changes. The change is so small that caches
    stay as cold as they were. It is written between the untimed and the timed launches, so that
    results of untimed launches are wrong for the timed ones.

    Args:
        inputs: host arrays of ``operation.inputs``, of which the sets hold copies.
    """

    device: Device
    operation: Operation
    inputs: Sequence[HostArray]
    seed: int

    def __post_init__(self) -> None:
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
        rng = np.random.default_rng([self.seed % 2**64, *self.operation.matmul_shape, self._rounds])
        chosen = rng.choice(len(candidates), min(WATCHED, len(candidates)), replace=False).tolist()
        if latest and len(candidates) - 1 not in chosen:
            chosen[0] = len(candidates) - 1
        # A line of a convolution's A is a whole image, whose reference takes long to compute.
        place = 1 if isinstance(self.operation.shape, Conv2dShape) else int(rng.integers(2))
        change = draw_change(self.operation, self.inputs, ChangeKind.NEGATED, place, rng)
        calls: list[Callable[[], object]] = []
        for number, index in enumerate(chosen):
            one = candidates[index]
            calls += self._prepared(one, change)
            if fills and number == 0:
                calls.append(partial(self.device.fill_bytes, one.output, SENTINEL))
            one.change, one.poisoned = change, True
            self._changed.append(one)
        return calls

    def _prepared(
        self, one: BufferSet, change: InputChange, *, back: bool = False
    ) -> list[Callable[[], None]]:
        operation = self.operation
        wanted = undoing(operation, self.inputs, change) if back else edits(operation, change)
        return prepared_edits(self.device, operation.inputs, one.inputs, wanted)
