"""The rules of causes, one by one; ``histories.txt`` has them at work. A line of ``causes.txt`` has
facts of one change, with words for shifts and for shares of other dispatches."""

from __future__ import annotations

import pytest

from gemmetry.history.changes import CAUSES, ChangeCause, ChangeFacts, LevelShift, MovedShare, judge
from gemmetry.statistics.comparison import verdict_of


def shift(ratio, width=0.01):
    interval = None if width is None else (ratio - width, ratio + width)
    return LevelShift(ratio, interval, verdict_of(interval, 0.02))


WORDS = {
    "slow": shift(1.1), "slower_still": shift(1.3), "fast": shift(0.9), "same": shift(1.0),
    "open": shift(1.05, 0.2), "slow_of_few_runs": shift(1.1, None),
    "all": MovedShare(19, 20), "some": MovedShare(10, 20), "few": MovedShare(1, 20),
    "alone": MovedShare(1, 1),
}  # fmt: skip


def test_each_rule(case):
    ((_, _, given),) = case.calls()
    facts = {}
    for name, value in given.items():
        if isinstance(value, list):
            facts[name] = tuple(WORDS.get(one, one) for one in value)
        else:
            facts[name] = WORDS.get(value, value) if isinstance(value, str) else value
    cause, reasons = judge(ChangeFacts(**facts))
    case.check([str(cause), *(f"  {one}" for one in reasons)])


def test_every_cause_is_explained():
    assert set(CAUSES) == set(ChangeCause)


@pytest.mark.parametrize(
    ("moved", "of", "is_all", "is_few"),
    [(8, 10, True, False), (7, 10, False, False), (3, 10, False, False), (2, 10, False, True),
     (2, 2, False, False), (0, 2, False, False)],
)  # fmt: skip
def test_a_share_of_few_dispatches_is_no_share(moved, of, is_all, is_few):
    share = MovedShare(moved, of)
    assert (share.is_all, share.is_few) == (is_all, is_few)
