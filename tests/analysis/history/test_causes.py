"""The rules, one by one; ``test_changes.py`` sees them at work."""

from __future__ import annotations

from dataclasses import replace

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
OTHERS = MovedShare(0, 0)
"""Of a provider without other dispatches."""
ALONE = Facts(own=SLOW, relative=SLOW, reference=SAME, others=FEW, provider=FEW)
TOGETHER = Facts(own=SLOW, relative=SAME, reference=SLOW, others=ALL, provider=ALL)
WITHOUT = replace(ALONE, relative=None, reference=None)
UNCLEAR = Facts(own=OPEN, relative=SLOW, reference=OPEN)
TORCH = ("torch 2.9.0 → 2.10.0",)
DRIVER = ("driver 580 → 590",)
LEVEL = ("verification_level standard → paranoid",)

CASES = {
    "only this one moved": (ALONE, Cause.KERNEL),
    "faster, only this one": (replace(ALONE, own=FAST, relative=FAST), Cause.KERNEL),
    "everything moved, and this one more": (
        replace(TOGETHER, own=shift(1.3), relative=SLOW), Cause.KERNEL),
    "everything moved with its reference": (TOGETHER, Cause.HOST),
    "with its reference, and the clock fell": (
        replace(TOGETHER, others=SOME, provider=OTHERS, clock=1 / 1.1), Cause.HOST),
    "with its reference, and the clock rose": (
        replace(TOGETHER, others=SOME, provider=OTHERS, clock=1.1), Cause.UNDECIDED),
    "its reference moved, it did not": (
        replace(ALONE, own=SAME, reference=FAST, provider=OTHERS), Cause.BASELINE),
    "it is the reference, and moved alone": (
        replace(WITHOUT, own=FAST, is_reference=True), Cause.BASELINE),
    "without a reference, alone": (WITHOUT, Cause.KERNEL),
    "without a reference, half of them": (
        replace(WITHOUT, others=SOME, provider=SOME), Cause.UNDECIDED),
    "without a reference or others": (Facts(own=SLOW), Cause.UNDECIDED),
    "the provider moved with a new version": (
        replace(ALONE, provider=ALL, environment=TORCH), Cause.ENVIRONMENT),
    "everything moved with a new driver": (
        replace(TOGETHER, environment=DRIVER), Cause.ENVIRONMENT),
    "the provider moved, and nothing else changed": (replace(ALONE, provider=ALL), Cause.KERNEL),
    "one moved with a new version": (replace(ALONE, environment=TORCH), Cause.KERNEL),
    "the only one of its provider moved with a new version": (
        replace(ALONE, provider=MovedShare(1, 1), environment=TORCH), Cause.UNDECIDED),
    "a setting of the method changed": (replace(TOGETHER, method=LEVEL), Cause.METHOD),
    "it is timed in another way": (
        replace(ALONE, provider=OTHERS, own_method="timed by graph"), Cause.METHOD),
    "the level returned": (replace(ALONE, provider=OTHERS, returned=5), Cause.NOISE),
    "too small to count": (Facts(own=SAME, relative=SAME, reference=SAME), Cause.NOISE),
    "too few runs since": (Facts(own=shift(1.1, None)), Cause.UNDECIDED),
    "its ratio varies too much": (
        Facts(own=SLOW, relative=OPEN, reference=OPEN, others=FEW), Cause.UNDECIDED),
    "the ratio shows it where times do not": (
        replace(UNCLEAR, adjusted=(SLOW, SAME)), Cause.KERNEL),
    "the ratio shows its reference": (replace(UNCLEAR, adjusted=(SAME, FAST)), Cause.BASELINE),
    "the ratio shows neither": (replace(UNCLEAR, adjusted=(OPEN, OPEN)), Cause.UNDECIDED),
    "slower, and its reference even more": (
        replace(TOGETHER, relative=FAST, reference=shift(1.3), provider=OTHERS), Cause.HOST),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_rule(name):
    facts, expected = CASES[name]
    cause, reasons = judge(facts)
    assert cause is expected, reasons
    assert reasons[0]


def test_what_changed_in_that_run_is_listed_with_every_cause():
    cause, reasons = judge(replace(ALONE, environment=TORCH, hints=("throttled",)))
    assert cause is Cause.KERNEL
    assert TORCH[0] in reasons[1] and reasons[2] == "throttled"
    assert set(CAUSES) == set(Cause), "every cause is explained"


@pytest.mark.parametrize(
    ("moved", "of", "is_all", "is_few"),
    [(8, 10, True, False), (7, 10, False, False), (3, 10, False, False), (2, 10, False, True),
     (2, 2, False, False), (0, 2, False, False)],
)  # fmt: skip
def test_a_share_of_few_dispatches_is_no_share(moved, of, is_all, is_few):
    share = MovedShare(moved, of)
    assert (share.is_all, share.is_few) == (is_all, is_few)
