"""The rules, one by one; ``test_changes.py`` sees them at work."""

from __future__ import annotations

import pytest

from gemmetry.history.changes import CAUSES, LevelShift, MovedShare, judge
from gemmetry.history.changes import ChangeCause as Cause
from gemmetry.history.changes import ChangeFacts as Facts
from gemmetry.statistics.comparison import verdict_of


def shift(ratio, width=0.01):
    interval = None if width is None else (ratio - width, ratio + width)
    return LevelShift(ratio, interval, verdict_of(interval, 0.02))


SLOW, FAST, SAME, OPEN = shift(1.1), shift(0.9), shift(1.0), shift(1.05, 0.2)
ALL, FEW, SOME = MovedShare(19, 20), MovedShare(1, 20), MovedShare(10, 20)
TORCH = ("torch 2.9.0 → 2.10.0",)

CASES = {
    "only this one moved": (
        Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW, provider=FEW), Cause.KERNEL),
    "faster, only this one": (
        Facts(own=FAST, relative=FAST, reference=SAME, others=FEW, provider=FEW), Cause.KERNEL),
    "everything moved, and this one more": (
        Facts(own=shift(1.3), relative=SLOW, reference=SLOW, others=ALL, provider=ALL),
        Cause.KERNEL),
    "everything moved with its reference": (
        Facts(own=SLOW, relative=SAME, reference=SLOW, others=ALL, provider=ALL), Cause.HOST),
    "with its reference, and the clock fell": (
        Facts(own=SLOW, relative=SAME, reference=SLOW, others=SOME, clock=1 / 1.1), Cause.HOST),
    "with its reference, and the clock rose": (
        Facts(own=SLOW, relative=SAME, reference=SLOW, others=SOME, clock=1.1), Cause.UNDECIDED),
    "its reference moved, it did not": (
        Facts(own=SAME, relative=SLOW, reference=FAST, others=FEW), Cause.BASELINE),
    "it is the reference, and moved alone": (
        Facts(own=FAST, is_reference=True, others=FEW, provider=FEW), Cause.BASELINE),
    "without a reference, alone": (Facts(own=SLOW, others=FEW, provider=FEW), Cause.KERNEL),
    "without a reference, half of them": (
        Facts(own=SLOW, others=SOME, provider=SOME), Cause.UNDECIDED),
    "without a reference or others": (Facts(own=SLOW), Cause.UNDECIDED),
    "the provider moved with a new version": (
        Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW, provider=ALL,
             environment=TORCH), Cause.ENVIRONMENT),
    "everything moved with a new driver": (
        Facts(own=SLOW, relative=SAME, reference=SLOW, others=ALL, provider=ALL,
             environment=("driver 580 → 590",)), Cause.ENVIRONMENT),
    "the provider moved, and nothing else changed": (
        Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW, provider=ALL), Cause.KERNEL),
    "one moved with a new version": (
        Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW, provider=FEW,
             environment=TORCH), Cause.KERNEL),
    "the only one of its provider moved with a new version": (
        Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW, provider=MovedShare(1, 1),
             environment=TORCH), Cause.UNDECIDED),
    "a setting of the method changed": (
        Facts(own=SLOW, relative=SAME, reference=SLOW, others=ALL, provider=ALL,
             method=("verification_level standard → paranoid",)), Cause.METHOD),
    "it is timed in another way": (
        Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW,
             own_method="timed by graph instead of events"), Cause.METHOD),
    "the level returned": (
        Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW, returned=5), Cause.NOISE),
    "too small to count": (Facts(own=SAME, relative=SAME, reference=SAME), Cause.NOISE),
    "too few runs since": (Facts(own=shift(1.1, None)), Cause.UNDECIDED),
    "its ratio varies too much": (
        Facts(own=SLOW, relative=OPEN, reference=OPEN, others=FEW), Cause.UNDECIDED),
    "the ratio shows it where times do not": (
        Facts(own=OPEN, relative=SLOW, reference=OPEN, adjusted=(SLOW, SAME)), Cause.KERNEL),
    "the ratio shows its reference": (
        Facts(own=OPEN, relative=SLOW, reference=OPEN, adjusted=(SAME, FAST)), Cause.BASELINE),
    "the ratio shows neither": (
        Facts(own=OPEN, relative=SLOW, reference=OPEN, adjusted=(OPEN, OPEN)), Cause.UNDECIDED),
    "slower, and its reference even more": (
        Facts(own=SLOW, relative=FAST, reference=shift(1.3), others=ALL), Cause.HOST),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_rule(name):
    facts, expected = CASES[name]
    cause, reasons = judge(facts)
    assert cause is expected, reasons
    assert reasons[0]


def test_what_changed_in_that_run_is_listed_with_every_cause():
    facts = Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW, provider=FEW,
                        environment=TORCH, hints=("throttled since: power",))  # fmt: skip
    cause, reasons = judge(facts)
    assert cause is Cause.KERNEL
    assert reasons[1:] == (f"changed in that run: {TORCH[0]}", "throttled since: power")


def test_a_share_of_few_dispatches_is_no_share():
    assert MovedShare(8, 10).is_all
    assert not MovedShare(7, 10).is_all
    assert MovedShare(2, 10).is_few
    assert not MovedShare(3, 10).is_few
    assert not MovedShare(2, 2).is_all
    assert not MovedShare(0, 2).is_few


def test_every_cause_is_explained():
    assert set(CAUSES) == set(Cause)
