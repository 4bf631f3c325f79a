from __future__ import annotations

import pytest

from gemmetry.traces.collectives.alignment import Matched
from gemmetry.traces.collectives.summary import Group

FOUR = Group("0", (0, 1, 2, 3), 4)


def matched(*members, group=FOUR):
    return Matched(group=group, members=tuple(enumerate(members)))


def test_offsets_of_clocks_are_added(collective):
    times = ((0, 100_000), (30_000, 71_000), (80_000, 23_000), (20_000, 79_000))
    ones = (collective(start_ns=at, duration_ns=lasts, group=FOUR) for at, lasts in times)
    ranks, offsets = matched(*ones, group=FOUR), {1: 60_000, 3: 0}
    assert ranks.skews_ns(offsets) == (90_000, 62_000)
    assert ranks.last_rank(offsets) == 1
    assert ranks.waits_ns(offsets) == {0: 90_000, 1: 0, 2: 10_000, 3: 70_000}
    assert ranks.skews_ns() == (80_000, 4_000)


def test_nothing_is_invented_where_size_or_group_are_not_recorded(collective):
    unknown = matched(collective(elements=None), collective(elements=None))
    assert (unknown.bytes, unknown.algorithm_bandwidth, unknown.bus_bandwidth) == (None, None, None)
    alone = matched(collective(group=None), collective(group=None), group=None)
    assert alone.algorithm_bandwidth == pytest.approx(40.0)
    assert alone.bus_bandwidth is None
    strange = matched(collective(dtype="Float2_future"), collective(dtype="Float2_future"))
    assert strange.bytes is None


@pytest.mark.parametrize(("ins", "outs", "size"), [(16, 64, 4), (16, 65, None), (0, 64, None)])
def test_the_size_of_a_group_out_of_input_and_output(collective, ins, outs, size):
    recorded = {"op": "all_gather", "in_elements": ins, "out_elements": outs, "group": None}
    assert matched(collective(**recorded), collective(**recorded), group=None).group_size == size
