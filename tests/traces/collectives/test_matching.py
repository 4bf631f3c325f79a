from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.traces.collectives.matching import describe, match
from gemmetry.traces.collectives.summary import Group
from gemmetry.traces.jobs import group_jobs

OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


def matching(*traces):
    (job,) = group_jobs(traces)
    return match(job)


def numbered(found):
    """Rows of the kernels of each matched collective, by rank."""
    return [{rank: one.row for rank, one in whole.members} for whole in found.matched]


@pytest.fixture
def sequence(collective):
    """Collectives that are 1 ms apart, one for each of the given sizes."""

    def make(*sizes, **recorded):
        return [
            collective(elements=size, start_ns=1_000_000 * i, **recorded)
            for i, size in enumerate(sizes, 1)
        ]

    return make


def test_a_mismatch_is_named_and_the_rest_continues(rank, sequence):
    found = matching(rank(0, sequence(1, 2, 3, 4)), rank(1, sequence(1, 9, 3, 4)))
    assert numbered(found) == [{0: i, 1: i} for i in (0, 2, 3)]
    assert found.unmatched == {0: 1, 1: 1}
    (mismatch,) = found.mismatches
    assert (mismatch.group, mismatch.after) == ("0", 1)
    assert mismatch.what == "rank 0: all_reduce of 2 Float; rank 1: all_reduce of 9 Float"


@pytest.mark.parametrize("other", [{"op": "broadcast"}, {"dtype": "Half"}, {"sequence": 8}])
def test_operation_type_and_number_must_agree(rank, collective, other):
    usual = {"op": "all_reduce", "dtype": "Float", "sequence": 7}
    found = matching(rank(0, [collective(**usual)]), rank(1, [collective(**usual | other)]))
    assert found.matched == ()
    assert found.unmatched == {0: 1, 1: 1}
    assert len(found.mismatches) == 1


def test_what_is_not_recorded_matches_what_is(rank, collective):
    bare = collective(op=None, dtype=None, elements=None)
    found = matching(rank(0, [bare]), rank(1, [collective()]))
    assert [(one.op, one.elements) for one in found.matched] == [("all_reduce", 1000)]


def test_sizes_of_an_all_to_all_may_differ(rank, collective):
    ones = [collective(op="all_to_all", elements=n, in_elements=n) for n in (10, 30)]
    found = matching(rank(0, ones[:1]), rank(1, ones[1:]))
    assert [one.elements for one in found.matched] == [30]


def test_a_rank_outside_of_its_group_matches_nothing(rank, sequence):
    found = matching(*(rank(r, sequence(1, 2)) for r in range(3)))
    assert numbered(found) == [{0: 0, 1: 0}, {0: 1, 1: 1}]
    assert found.unmatched == {0: 0, 1: 0, 2: 2}


def test_three_ranks_of_which_one_lacks_a_collective(rank, sequence):
    three = Group("0", (0, 1, 2), 3)
    traces = [rank(r, sequence(*((1, 3) if r == 1 else (1, 2, 3)), group=three)) for r in range(3)]
    found = matching(*traces)
    assert numbered(found) == [{0: 0, 1: 0, 2: 0}, {0: 2, 1: 1, 2: 2}]
    assert found.unmatched == {0: 1, 1: 0, 2: 1}
    (mismatch,) = found.mismatches
    assert mismatch.what == "all_reduce of 2 Float is missing on rank 1"


def test_recordings_that_end_at_different_places_are_not_a_mismatch(rank, sequence):
    found = matching(rank(0, sequence(*range(5))), rank(1, sequence(*range(3))))
    assert len(found.matched) == 3
    assert found.unmatched == {0: 2, 1: 0}
    assert found.mismatches == ()


def test_every_group_has_an_order_of_its_own(rank, sequence):
    def both(first, second):
        a = sequence(1, 2, group=Group("tp", (0, 1), 2))
        b = sequence(5, 6, group=Group("dp", (0, 1), 2))
        return [*a, *b] if first < second else [*b, *a]

    found = matching(rank(0, both(0, 1)), rank(1, both(1, 0)))
    assert sorted(one.elements for one in found.matched) == [1, 2, 5, 6]


def test_groups_of_the_same_name_on_other_ranks_do_not_mix(rank, sequence):
    pairs = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    found = matching(*(rank(r, sequence(1, 2, group=Group("tp", pairs[r], 2))) for r in range(4)))
    assert [tuple(one) for one in numbered(found)] == [(0, 1), (2, 3)] * 2
    assert found.mismatches == ()


def test_a_group_whose_ranks_differ_is_named(rank, sequence):
    found = matching(
        rank(0, sequence(1, group=Group("0", (0, 1), 2))),
        rank(1, sequence(1, group=Group("0", (0, 1, 2), 3))),
        rank(2, sequence(1, group=Group("0", (0, 1), 2))),
    )
    texts = [one.what for one in found.mismatches]
    assert "its ranks are [0, 1] for some and [0, 1, 2] for others" in texts
    assert "rank 2 takes part, but its ranks are [0, 1]" in texts
    assert found.matched == ()
    assert found.unmatched == {0: 1, 1: 1, 2: 1}


def test_a_missing_rank_is_reported_and_the_others_are_matched(rank, sequence):
    group = Group("0", (0, 1, 2), 3)
    found = matching(rank(0, sequence(1, group=group)), rank(2, sequence(1, group=group)))
    (one,) = found.matched
    assert (dict(one.members).keys(), one.missing, one.group_size) == ({0, 2}, (1,), 3)


def test_a_rank_alone_matches_nothing(rank, sequence):
    found = matching(rank(0, sequence(1, 2), world_size=4))
    assert (found.matched, found.unmatched, found.mismatches) == ((), {0: 2}, ())


def test_groups_of_one_rank_have_no_other_side(rank, sequence):
    alone = sequence(1, 2, group=Group("own", (0,), 1))
    found = matching(rank(0, [*alone, *sequence(3)]), rank(1, sequence(3)))
    assert len(found.matched) == 1
    assert found.unmatched == {0: 0, 1: 0}


def test_no_collectives_at_all(rank):
    found = matching(rank(0), rank(1))
    assert (found.matched, found.unmatched, found.mismatches) == ((), {0: 0, 1: 0}, ())


def test_a_rank_without_a_recorded_group_in_a_job_with_one_group(rank, sequence):
    found = matching(rank(0, sequence(1, 2)), rank(1, sequence(1, 2, group=None)))
    assert len(found.matched) == 2


def test_without_any_group_streams_distinguish_sequences(rank, sequence):
    def streams():
        return [*sequence(1, 2, group=None, stream=7), *sequence(3, 4, group=None, stream=9)]

    found = matching(rank(0, streams()), rank(1, streams()[2:] + streams()[:2]))
    assert sorted(one.elements for one in found.matched) == [1, 2, 3, 4]


def test_sends_match_receives_by_both_ends(rank, collective):
    group = Group("pp", (0, 1, 2), 3)

    def send(peer, size):
        return collective(op="send", peer=peer, elements=size, group=group)

    def recv(peer, size):
        return collective(op="recv", peer=peer, elements=size, group=group)

    found = matching(
        rank(0, [send(1, 10), recv(2, 30)]),
        rank(1, [recv(0, 10), send(2, 20)]),
        rank(2, [recv(1, 20), send(0, 30)]),
    )
    ends = {one.elements: tuple(dict(one.members)) for one in found.matched}
    assert ends == {10: (0, 1), 20: (1, 2), 30: (0, 2)}
    assert found.unmatched == {0: 0, 1: 0, 2: 0}


def test_a_send_without_a_peer_in_a_group_of_two(rank, collective):
    found = matching(rank(0, [collective(op="send")]), rank(1, [collective(op="recv")]))
    assert [one.op for one in found.matched] == ["send_recv"]


def test_missing_ranks_come_from_the_group_of_that_name(rank, sequence):
    found = matching(rank(0, sequence(1)), rank(1, sequence(1, group=Group("0", (), 2))))
    assert len(found.matched) == 1


def test_descriptions(collective):
    assert describe(collective()) == "all_reduce of 1000 Float"
    assert describe(collective(op=None, elements=None, dtype=None)) == "a collective"
    assert describe(collective(sequence=4)) == "all_reduce of 1000 Float (number 4)"


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), world=st.integers(2, 6), count=st.integers(16, 50),
    edge=st.integers(0, 3),
)  # fmt: skip
def test_known_skews_come_back(rank, collective, seed, world, count, edge):
    """Every rank arrives at random; all end within 3 us of each other. Recordings begin up to
    `edge` collectives late. What comes out is computed here from the truth, not from kernels."""
    rng = np.random.default_rng(seed)
    group = Group("0", tuple(range(world)), world)
    arrival = np.cumsum(rng.integers(2_000_000, 9_000_000, count))[:, None] + rng.integers(
        0, 1_500_000, (count, world)
    )
    ends = arrival.max(axis=1)[:, None] + 200_000 + rng.integers(0, 3000, (count, world))
    ops = [OPS[k] for k in rng.integers(0, len(OPS), count)]
    begins = rng.integers(0, edge + 1, world)
    traces = [
        rank(
            r,
            [
                collective(op=ops[i], elements=int(1000 + i % 3), group=group,
                           start_ns=int(arrival[i, r]), duration_ns=int(ends[i, r] - arrival[i, r]))
                for i in range(int(begins[r]), count)
            ],
        )
        for r in range(world)
    ]  # fmt: skip
    found = matching(*traces)
    common = range(int(begins.max()), count)
    assert len(found.matched) == len(common)
    for whole, i in zip(found.matched, common, strict=True):
        starts = arrival[i]
        assert whole.skews_ns() == (int(np.ptp(starts)), int(np.ptp(ends[i])))
        assert whole.last_rank() == int(np.argmax(starts))
        assert whole.waits_ns() == {r: int(starts.max() - starts[r]) for r in range(world)}
        assert whole.latency_ns == int((ends[i] - starts).min())
    assert found.unmatched == {r: int(begins.max() - begins[r]) for r in range(world)}
    assert found.mismatches == ()


@pytest.mark.parametrize(
    ("group", "world_size", "complete", "size"),
    [
        (Group("0", (0, 1), 2), None, True, 2),
        (Group("0", (0, 1, 2), 3), None, False, 3),
        (Group("0", (), 2), 8, True, 2),
        (Group("0", (), 64), 128, False, 64),
        # No trace records the group: it is that of all ranks, if all are there.
        (Group("0"), 2, True, 2),
        (None, 2, True, 2),
        (None, 3, False, None),
        (None, None, False, None),
    ],
)
def test_a_group_is_complete_if_every_rank_of_it_has_a_file(
    rank, collective, group, world_size, complete, size
):
    found = matching(*(rank(r, [collective(group=group)], world_size=world_size) for r in (0, 1)))
    (one,) = found.matched
    assert (one.is_complete, one.group_size) == (complete, size)
    assert one.is_group_inferred == (complete and (group is None or not group.size))


def test_a_send_is_complete_with_its_receive(rank, collective):
    pair = Group("0", (0, 1), 2)
    ends = [collective(op="send", peer=1, group=pair), collective(op="recv", peer=0, group=pair)]
    (one,) = matching(*(rank(r, [ends[r]]) for r in (0, 1))).matched
    assert one.is_complete and not one.is_group_inferred
