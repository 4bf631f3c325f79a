from __future__ import annotations

import pytest

from gemmetry.traces.collectives.alignment import Matched
from gemmetry.traces.collectives.summary import Group

FOUR = Group("0", (0, 1, 2, 3), 4)


def matched(*members, group=FOUR):
    return Matched(group=group, members=tuple(enumerate(members)))


@pytest.fixture
def ranks(collective):
    """Four ranks that start at 0, 30, 80 and 20 us and end at 100, 101, 103 and 99 us."""
    starts, ends = (0, 30_000, 80_000, 20_000), (100_000, 101_000, 103_000, 99_000)
    return matched(
        *(
            collective(start_ns=start, duration_ns=end - start, group=FOUR)
            for start, end in zip(starts, ends, strict=True)
        )
    )


def test_skews_waits_and_latency(ranks):
    assert ranks.skews_ns() == (80_000, 4_000)
    assert ranks.last_rank() == 2
    assert ranks.waits_ns() == {0: 80_000, 1: 50_000, 2: 0, 3: 60_000}
    assert ranks.latency_ns == 23_000
    assert ranks.start_ns == 0


def test_offsets_of_clocks_are_added(ranks):
    offsets = {1: 60_000, 3: 0}
    assert ranks.skews_ns(offsets) == (90_000, 62_000)
    assert ranks.last_rank(offsets) == 1
    assert ranks.waits_ns(offsets) == {0: 90_000, 1: 0, 2: 10_000, 3: 70_000}
    assert ranks.skews_ns() == (80_000, 4_000)


def test_of_ranks_that_start_together_the_lowest_is_last(collective):
    assert matched(collective(), collective()).last_rank() == 0


def test_bandwidths_of_a_large_all_reduce(collective):
    size = 1 << 28
    recorded = {"elements": size, "group": FOUR}
    one = matched(
        collective(duration_ns=4_000_000, **recorded), collective(duration_ns=5_000_000, **recorded)
    )
    assert one.bytes == 1 << 30
    assert one.algorithm_bandwidth == pytest.approx((1 << 30) / 4e6)
    assert one.bus_bandwidth == pytest.approx((1 << 30) / 4e6 * 1.5)


@pytest.mark.parametrize(
    ("op", "factor"),
    [("broadcast", 1), ("reduce", 1), ("gather", 0.75), ("scatter", 0.75), ("all_gather", 0.75),
     ("reduce_scatter", 0.75), ("all_to_all", 0.75), ("all_reduce", 1.5)],
)  # fmt: skip
def test_bus_bandwidth_of_every_operation(collective, op, factor):
    recorded = {"op": op, "elements": 4000, "in_elements": 4000, "out_elements": 4000}
    one = matched(*(collective(**recorded, group=FOUR, duration_ns=1000) for _ in range(4)))
    assert one.algorithm_bandwidth == pytest.approx(16.0)
    assert one.bus_bandwidth == pytest.approx(16.0 * factor)


def test_a_send_and_its_receive_are_one_of_two_ranks(collective):
    one = matched(
        collective(op="send", in_elements=500, elements=500, group=FOUR),
        collective(op="recv", out_elements=500, elements=500, group=FOUR),
    )
    assert (one.op, one.group_size) == ("send_recv", 2)
    assert one.algorithm_bandwidth == one.bus_bandwidth == pytest.approx(20.0)


def test_an_all_to_all_with_unequal_parts(collective):
    group = Group("0", (0, 1), 2)
    # Rank 0 sends 90 of 100 to rank 1 and gets 20 of 30 from it; 4 bytes each.
    first = collective(op="all_to_all", elements=100, in_elements=100, out_elements=30,
                       in_splits=(10, 90), out_splits=(10, 20), group=group)  # fmt: skip
    second = collective(op="all_to_all", elements=120, in_elements=50, out_elements=120,
                        in_splits=(20, 30), out_splits=(90, 30), group=group)  # fmt: skip
    one = matched(first, second, group=group)
    assert one.elements == 120
    assert one.algorithm_bandwidth == pytest.approx(120 * 4 / 100)
    assert one.bus_bandwidth == pytest.approx(90 * 4 / 100)


def test_nothing_is_invented_where_size_or_group_are_not_recorded(collective):
    unknown = matched(collective(elements=None), collective(elements=None))
    assert (unknown.bytes, unknown.algorithm_bandwidth, unknown.bus_bandwidth) == (None, None, None)
    alone = matched(collective(group=None), collective(group=None), group=None)
    assert alone.algorithm_bandwidth == pytest.approx(40.0)
    assert alone.bus_bandwidth is None
    strange = matched(collective(dtype="Float2_future"), collective(dtype="Float2_future"))
    assert strange.bytes is None


def test_kernels_that_share_an_operators_sizes_have_no_bandwidth(collective):
    assert matched(collective(is_shared=True), collective()).algorithm_bandwidth is None


@pytest.mark.parametrize(("ins", "outs", "size"), [(16, 64, 4), (16, 65, None), (0, 64, None)])
def test_the_size_of_a_group_out_of_input_and_output(collective, ins, outs, size):
    recorded = {"op": "all_gather", "in_elements": ins, "out_elements": outs, "group": None}
    assert matched(collective(**recorded), collective(**recorded), group=None).group_size == size


def test_one_rank_records_what_another_does_not(collective):
    one = matched(collective(op=None, dtype=None, elements=None), collective())
    assert (one.op, one.dtype, one.elements) == ("all_reduce", "Float", 1000)
