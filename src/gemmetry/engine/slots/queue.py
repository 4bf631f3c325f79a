"""The queue of groups from which the slots of a target take work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.workers.process import RunStopped
from gemmetry.store.experiment import Experiment

Group: TypeAlias = list[Candidate]

MOST_WAITING = 2
"""The groups of one operation that may wait for the slot that measures it before another slot, in
search of the next operation, waits too."""

_POLL_S = 0.5


def unfinished(experiment: Experiment, group: Group) -> Iterator[Group]:
    """What remains of `group` for another device: the dispatches without a record, and each that
    ran when its device was lost alone."""
    open_ = experiment.without_record([candidate.id for candidate in group])
    suspects = experiment.device_losses()
    others = [one.afresh(alone=False) for one in group if one.id in open_ - suspects.keys()]
    if others:
        yield others
    for one in group:
        if one.id in open_ and one.id in suspects:
            yield [one.afresh(alone=True)]


class GroupQueue:
    """Hands groups to slots, each of which has a key. All groups of an operation go to one slot, so
    that its candidates are compared on one device; a group that a slot could not finish goes to
    another."""

    def __init__(self, groups: Iterator[Group], stop: threading.Event) -> None:
        """`groups` in plan order; `stop` ends the waiting of :meth:`take`."""
        self._groups = groups
        self._stop = stop
        self._changed = threading.Condition()
        self._is_drawn = False
        self._returned: deque[Group] = deque()
        self._waiting: dict[str, deque[Group]] = {}
        self._held: dict[str, deque[Group]] = {}
        self._last: tuple[str, str] = ("", "")
        """The operation of the group that was handed out last, and the slot that has it."""

    @property
    def is_done(self) -> bool:
        """Whether every group has been measured."""
        with self._changed:
            return self._is_drawn and not (
                self._returned or any(self._held.values()) or any(self._waiting.values())
            )

    def groups(self, slot: str) -> Iterator[Group]:
        """The groups of `slot`, each of which is finished when the next one is requested.

        Raises:
            RunStopped: the run is being ended.
        """
        while (group := self.take(slot)) is not None:
            yield group
            self.finish(slot)

    def finish(self, slot: str) -> None:
        """Note that `slot` has measured the oldest group that it holds."""
        with self._changed:
            self._held[slot].popleft()
            self._changed.notify_all()

    def take(self, slot: str, *, waits: bool = True) -> Group | None:
        """The next group of `slot`; None when all groups are measured. Waits while another slot may
        still return one, unless `waits` is False.

        Raises:
            RunStopped: the run is being ended.
        """
        with self._changed:
            held = self._held.setdefault(slot, deque())
            mine = self._waiting.setdefault(slot, deque())
            while True:
                if self._stop.is_set():
                    raise RunStopped
                group = mine.popleft() if mine else self._next(slot)
                if group is not None:
                    held.append(group)
                    self._changed.notify_all()
                    return group
                if not waits or (self._is_drawn and not any(self._held.values())):
                    return None
                self._changed.wait(_POLL_S)

    def leave(self, slot: str, remains: Callable[[Group], Iterable[Group]]) -> bool:
        """Hand no more groups to `slot`. What `remains` of the one that it has goes to others, as
        do those that wait for it. Returns whether another slot is there."""
        with self._changed:
            for group in self._held.pop(slot, ()):
                self._returned.extend(remains(group))
            self._returned.extend(self._waiting.pop(slot, ()))
            self._changed.notify_all()
            return bool(self._held)

    def _next(self, slot: str) -> Group | None:
        """A returned group or the next one; None if there is none now."""
        if self._returned:
            return self._returned.popleft()
        while not self._is_drawn:
            operation, owner = self._last
            if owner != slot and len(self._waiting.get(owner, ())) >= MOST_WAITING:
                return None
            group = next(self._groups, None)
            if group is None:
                self._is_drawn = True
            elif group[0].operation_name == operation and owner in self._waiting and owner != slot:
                self._waiting[owner].append(group)
                self._changed.notify_all()
            else:
                self._last = (group[-1].operation_name, slot)
                return group
        return None
