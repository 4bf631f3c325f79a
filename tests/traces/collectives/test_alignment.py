from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats.events import MISSING
from gemmetry.traces.collectives.alignment import Entries, agree, align


def entries(ends, properties=None, *, together=True):
    ends = np.array(ends, np.int64)
    kinds = [0] * len(ends) if properties is None else properties
    kinds = np.array(kinds, np.int64).reshape(len(ends), 1)
    return Entries(ends, kinds, np.full(len(ends), together))


def pairs(left, right):
    found = align(left, right)
    return list(zip(found.left.tolist(), found.right.tolist(), strict=True))


def test_what_is_not_recorded_agrees_with_everything():
    left = np.array([[1, 2], [MISSING, 2], [1, 3]])
    right = np.array([[1, MISSING], [7, 2], [1, 2]])
    assert agree(left, right).tolist() == [True, True, False]


def test_what_disagrees_is_left_out_and_the_rest_continues():
    ends = [1000, 2000, 3000, 4000, 5000]
    left, right = entries(ends, [1, 1, 2, 1, 1]), entries(ends, [1, 1, 3, 1, 1])
    assert pairs(left, right) == [(0, 0), (1, 1), (3, 3), (4, 4)]
    # Same times everywhere: only the operations show where an entry is missing.
    left, right = entries([7] * 5, [1, 2, 3, 4, 5]), entries([7] * 4, [1, 2, 4, 5])
    assert pairs(left, right) == [(0, 0), (1, 1), (3, 2), (4, 3)]
    assert pairs(left, entries([])) == pairs(entries([]), right) == []


def test_very_different_lengths_are_fast_and_right():
    rng = np.random.default_rng(6)
    ends = np.cumsum(rng.integers(1_000_000, 9_000_000, 20_000))
    part = slice(9_000, 9_400)
    found = align(entries(ends), entries(ends[part] + rng.integers(0, 3000, 400)))
    assert found.left.tolist() == list(range(9_000, 9_400))


def test_one_late_collective_does_not_change_the_order():
    # The last rank begins #7 by 40 ms later, and ends it so much later.
    ends = np.arange(1, 21) * 1_000_000
    late = ends.copy()
    late[7] += 40_000_000
    assert pairs(entries(ends), entries(late)) == [(i, i) for i in range(20)]


def test_different_losses_at_the_same_place():
    # Each side lacks a different one of two neighbours: times decide, unless they need not end
    # together.
    rng = np.random.default_rng(8)
    ends = np.cumsum(rng.integers(1_000_000, 9_000_000, 30))
    left, right = np.delete(ends, [10, 20]), np.delete(ends, 11)
    assert len(pairs(entries(left), entries(right))) == 27
    some = entries(left, together=False), entries(right, together=False)
    assert len(pairs(*some)) == 28


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(28, 60),
    lost=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    window=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    offset=st.sampled_from([0, 5_000, -40_000_000, 3_000_000_000]),
    kinds=st.integers(1, 3),
)
def test_losses_windows_and_clocks_do_not_mix_up_collectives(
    seed, count, lost, window, offset, kinds
):
    """Collectives that end together within 3 us and are 1 to 9 ms apart; both sides begin late
    and lose entries at random, with one that both have between losses of different sides."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.integers(1_000_000, 9_000_000, count))
    properties = rng.integers(0, kinds, (count, 1))
    sides = []
    for number, (losses, begin) in enumerate(zip(lost, window, strict=True)):
        places = np.arange(4 + 2 * number, count, 4)
        kept = np.setdiff1d(np.arange(begin, count), rng.choice(places, min(losses, len(places))))
        noise = rng.integers(0, 3000, len(kept)) + (offset if number else 0)
        sides.append((kept, entries(ends[kept] + noise, properties[kept])))
    (left_kept, left), (right_kept, right) = sides
    found = align(left, right)
    truth = np.intersect1d(left_kept, right_kept)
    assert left_kept[found.left].tolist() == truth.tolist()
    assert right_kept[found.right].tolist() == truth.tolist()


@settings(max_examples=60)
@given(
    left=st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 2)), max_size=12),
    right=st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 2)), max_size=12),
)
def test_pairs_rise_and_agree_whatever_the_sequences(left, right):
    one = entries([end for end, _ in sorted(left)], [kind for _, kind in sorted(left)])
    other = entries([end for end, _ in sorted(right)], [kind for _, kind in sorted(right)])
    found = align(one, other)
    assert (np.diff(found.left) > 0).all()
    assert (np.diff(found.right) > 0).all()
    assert agree(one.properties[found.left], other.properties[found.right]).all()
