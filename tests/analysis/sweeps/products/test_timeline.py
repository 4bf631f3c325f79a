"""How the time of GPUs is divided at each point, over its ranks."""

from __future__ import annotations

from gemmetry.documents.sweep_files import ProductPoint, timeline_tables
from gemmetry.sweeps.rows import SweepConfiguration


def point(channels, *busy, **chosen):
    """A point whose ranks compute for these times in ms, and are busy with nothing else."""
    return ProductPoint(
        configuration=SweepConfiguration(256, channels),
        repeat=None,
        timelines={
            rank: {
                "computation_time": (ms, 100 * ms / 8),
                "busy_time": (ms, 100 * ms / 8),
                "total_time": (8.0, 100.0),
            }
            for rank, ms in enumerate(busy)
        },
        **chosen,
    )


MISSING = point(16, outcome="no_traces", reason="no trace in torch_profiler/")


def rows(table):
    return {tuple(record[key] for key in ("full_config", "type") if key in record): record
            for record in table.records()}  # fmt: skip


def test_means_spread_and_the_slowest_rank():
    data, *_ = timeline_tables([point(4, 2.0, 7.0, 3.0), point(8, 4.0)])
    found = rows(data)["256thread_4ch", "busy_time"]
    assert (found["time ms"], found["percent"], found["num_ranks"]) == (4.0, 50.0, 3)
    assert (found["median ms"], found["min ms"], found["max ms"]) == (3.0, 2.0, 7.0)
    assert (found["spread ms"], found["max rank"], found["zero ranks"]) == (5.0, 1, 0)
    assert data.names[:9] == (
        "full_config", "threads_num", "thread_config", "channels_num", "channel_config",
        "num_ranks", "type", "time ms", "percent",
    )  # fmt: skip


def test_a_point_without_traces_is_empty_and_not_zero():
    data, time, percent, summary = timeline_tables([point(4, 2.0), MISSING])
    assert {record["full_config"] for record in data.records()} == {"256thread_4ch"}
    for pivot in (time, percent):
        assert pivot.names == ("type", "256thread_4ch", "256thread_16ch")
        assert {record["256thread_16ch"] for record in pivot.records()} == {None}
    last = summary.records()[-1]
    assert (last["full_config"], last["num_ranks"], last["busy_time_ms"]) == (
        "256thread_16ch", 0, None,
    )  # fmt: skip
    assert (last["outcome"], last["reason"]) == ("no_traces", MISSING.reason)
