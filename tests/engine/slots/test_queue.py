from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gemmetry.engine.process import RunStopped
from gemmetry.engine.slots import Group, GroupQueue

PATIENCE_S = 60


class One:
    """What a queue reads of a candidate."""

    def __init__(self, operation_name):
        self.operation_name = operation_name


def _group(*operations):
    return [One(name) for name in operations]


def _queue(*groups):
    return GroupQueue(iter(groups), threading.Event())


def _next(queue, slot):
    """The next group of a slot that has finished those it had."""
    for _ in range(len(queue._held.get(slot, ()))):
        queue.finish(slot)
    return queue.take(slot)


def _nothing(group: Group) -> Iterator[Group]:
    yield from ()


def test_groups_go_to_whoever_asks_in_plan_order():
    a, b, c = _group("a"), _group("b"), _group("c")
    queue = _queue(a, b, c)
    assert _next(queue, "1") is a
    assert _next(queue, "2") is b
    assert _next(queue, "2") is c
    queue.leave("2", _nothing)
    assert _next(queue, "1") is None


def test_all_groups_of_an_operation_go_to_one_device():
    first, second, other = _group("a"), _group("a"), _group("b")
    queue = _queue(first, second, other)
    assert _next(queue, "1") is first
    assert _next(queue, "2") is other, "the second part waits for the device that has the first"
    assert _next(queue, "1") is second


def test_a_device_waits_rather_than_draw_a_huge_operation_for_another():
    groups = [_group("a") for _ in range(5)]
    drawn = []

    def draw():
        for number, group in enumerate([*groups, _group("b")]):
            drawn.append(number)
            yield group

    queue = GroupQueue(draw(), threading.Event())
    assert _next(queue, "1") is groups[0]
    found = []
    waiting = threading.Thread(target=lambda: found.append(_next(queue, "2")))
    waiting.start()
    for group in groups[1:]:
        assert _next(queue, "1") is group
        assert len(drawn) <= 6
    waiting.join(PATIENCE_S)
    assert [one.operation_name for one in found[0]] == ["b"]


def test_what_a_lost_device_left_goes_to_another_that_waits_for_it():
    a, rest = _group("a", "a"), _group("a")
    queue = _queue(a)
    assert _next(queue, "1") is a
    found = []
    waiting = threading.Thread(target=lambda: found.append(_next(queue, "2")))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive(), "the first device may still return its group"
    assert queue.leave("1", lambda group: [rest])
    waiting.join(PATIENCE_S)
    assert found == [rest]


def test_waiting_parts_of_an_operation_continue_elsewhere_when_their_device_is_lost():
    first, second, other = _group("a"), _group("a"), _group("b")
    queue = _queue(first, second, other)
    _next(queue, "1")
    _next(queue, "2")
    queue.leave("1", lambda group: [group])
    assert _next(queue, "2") is first
    assert _next(queue, "2") is second
    assert _next(queue, "2") is None


def test_the_last_device_that_leaves_is_known():
    queue = _queue(_group("a"))
    _next(queue, "1")
    assert not queue.leave("1", lambda group: [group])


def test_a_run_that_is_being_ended_ends_the_waiting():
    queue = _queue(_group("a"))
    _next(queue, "1")
    queue._stop.set()
    with pytest.raises(RunStopped):
        _next(queue, "2")
