from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import Environment
from gemmetry.engine.planning import LaneProvider
from gemmetry.engine.process import RunStopped
from gemmetry.engine.schema import Lane, StoredRound
from gemmetry.engine.slots import GroupQueue, Slot, device_id, serving_devices
from gemmetry.measurement.stopping import Round
from gemmetry.providers.registry import load_provider


def _lanes(*targets):
    options = {"devices": 3}
    provider = load_provider("null", options)
    return [
        LaneProvider(Lane(number, "null", options, target), provider, None)
        for number, target in enumerate(targets, 1)
    ]


NULL = [Target(TargetKind.NULL, "", index) for index in range(3)]


def test_named_devices_and_all_of_the_kind():
    lanes = _lanes(NULL[0])
    assert serving_devices((), lanes) == []
    assert serving_devices(["null:2", "null:1", "null:2"], lanes) == [NULL[2], NULL[1]]
    assert serving_devices(["all"], lanes) == NULL
    assert serving_devices(["null:1"], lanes) == [NULL[1]], "the plan's own need not take part"


def test_what_cannot_serve_is_refused_with_what_can():
    compiled = Target(TargetKind.CUDA, "sm_90", None)
    assert serving_devices(["cuda-sm_90"], _lanes(compiled)) == []
    with pytest.raises(RequestError, match="null:7") as refused:
        serving_devices(["null:7"], _lanes(NULL[0]))
    assert "null:0, null:1, null:2" in refused.value.hint
    for name, targets, words in (
        ("cpu", NULL[:1], "cpu that can serve null"), ("all", NULL[:2], "one target"),
        ("all", [compiled], "only compiles"),
    ):  # fmt: skip
        with pytest.raises(RequestError, match=words):
            serving_devices([name], _lanes(*targets))


PATIENCE_S = 60


def _group(*operations):
    """What a queue reads of candidates."""
    return [SimpleNamespace(operation_name=name) for name in operations]


def _queue(*groups):
    return GroupQueue(iter(groups), threading.Event())


def _waiting(queue, slot):
    """A thread in which the slot waits for its next group, and what it has found."""
    found = []
    thread = threading.Thread(target=lambda: found.append(_next(queue, slot)))
    thread.start()
    return thread, found


def _next(queue, slot):
    """The next group of a slot that has finished those it had."""
    for _ in range(len(queue._held.get(slot, ()))):
        queue.finish(slot)
    return queue.take(slot)


def test_groups_go_to_whoever_asks_in_plan_order():
    a, b, c = _group("a"), _group("b"), _group("c")
    queue = _queue(a, b, c)
    assert _next(queue, "1") is a
    assert _next(queue, "2") is b
    assert _next(queue, "2") is c
    queue.leave("2", lambda group: [])
    assert _next(queue, "1") is None


def test_all_groups_of_an_operation_go_to_one_device():
    first, second, other = _group("a"), _group("a"), _group("b")
    queue = _queue(first, second, other)
    assert _next(queue, "1") is first
    assert _next(queue, "2") is other, "the second part waits for the device that has the first"
    assert _next(queue, "1") is second


def test_a_device_waits_rather_than_draw_a_huge_operation_for_another():
    groups, drawn = [_group("a") for _ in range(5)], []
    drawing = (drawn.append(group) or group for group in [*groups, _group("b")])
    queue = GroupQueue(drawing, threading.Event())
    assert _next(queue, "1") is groups[0]
    waiting, found = _waiting(queue, "2")
    for group in groups[1:]:
        assert _next(queue, "1") is group
        assert len(drawn) <= 6
    waiting.join(PATIENCE_S)
    assert [one.operation_name for one in found[0]] == ["b"]


def test_what_a_lost_device_left_goes_to_another_that_waits_for_it():
    a, rest = _group("a", "a"), _group("a")
    queue = _queue(a)
    assert _next(queue, "1") is a
    waiting, found = _waiting(queue, "2")
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


def test_the_last_device_that_leaves_is_known_and_a_run_that_is_being_ended_ends_the_waiting():
    queue = _queue(_group("a"))
    _next(queue, "1")
    assert not queue.leave("1", lambda group: [group])
    queue = _queue(_group("a"))
    _next(queue, "1")
    queue._stop.set()
    with pytest.raises(RunStopped):
        _next(queue, "2")


CUDA = Target(TargetKind.CUDA, "sm_90", 1)


def _environment(visible=None, ids=("GPU-aa", "GPU-bb", "GPU-cc")):
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return Environment(hostname="node7", device_ids=ids, variables=variables)


@pytest.mark.parametrize(("target", "environment", "expected"), [
    (CUDA, _environment(), "GPU-bb"),
    (CUDA, _environment(visible="2,0"), "GPU-aa"),
    (CUDA, _environment(visible="GPU-cc,GPU-b"), "GPU-bb"),
    (CUDA, _environment(visible="2"), "node7/cuda:1"),
    (CUDA, _environment(ids=()), "node7/cuda:1"),
    (Target(TargetKind.CPU), _environment(), "node7/cpu"),
    (Target(TargetKind.NULL, "", 3), _environment(), "node7/null:3"),
])  # fmt: skip
def test_a_device_differs_from_others_of_its_kind(target, environment, expected):
    assert device_id(target, environment) == expected


@pytest.mark.parametrize(("environment", "device", "continues"), [
    ("env", "mine", True), ("env", "", True), ("env", "another", False), ("other", "mine", False),
])  # fmt: skip
def test_rounds_continue_only_where_they_were_taken(environment, device, continues):
    slot = Slot(CUDA, "mine", context=None)
    taken = Round(samples_ns=(1.0,), method="simulated", device_id=device)
    rounds = [StoredRound(1, 0, taken, environment)]
    assert slot.continues(rounds, ["env"]) is continues
