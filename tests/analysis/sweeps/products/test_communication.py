"""The table of the collectives of all points."""

from __future__ import annotations

from gemmetry.documents.sweep_files import (
    MASTER,
    SOURCE,
    ProductPoint,
    master_table,
    operation_size,
)
from gemmetry.documents.tracelens import BY_NAME
from gemmetry.domain.tables import Table
from gemmetry.sweeps.rows import SweepConfiguration

# The columns of process_comms.py of ROCm/aorta 7eeb04e.
OLD = [
    "operation_id", "operation_name", "Full msg size (MB)", "In msg nelems", "threads_num",
    "thread_config", "channels_num", "channel_config", "full_config", "Collective name", "dtype",
    "Group size", "count", "comm_latency_mean", "comm_latency_median", "comm_latency_min",
    "comm_latency_max", "Total comm latency (ms)", "algo bw (GB/s)_mean",
    "algo bw (GB/s)_median", "algo bw (GB/s)_min", "algo bw (GB/s)_max", "bus bw (GB/s)_mean",
    "bus bw (GB/s)_median", "bus bw (GB/s)_min", "bus bw (GB/s)_max", "skew in start time_mean",
    "skew in start time_median", "skew in start time_min", "skew in start time_max",
    "skew in end time_mean", "skew in end time_median", "skew in end time_min",
    "skew in end time_max", "Process Group Name", "source_file",
]  # fmt: skip


def sheet(*operations):
    """The sheet of a point with these (name, size in MB) pairs."""
    columns = BY_NAME[SOURCE].columns
    records = [{"Collective name": name, "Full msg size (MB)": size, "dtype": "Float"}
               for name, size in operations]  # fmt: skip
    return Table(SOURCE, columns, [[one.get(c.name) for c in columns] for one in records])


def point(threads, channels):
    return ProductPoint(configuration=SweepConfiguration(threads, channels), repeat=None)


def test_columns_of_the_old_script_come_first():
    names = [column.name for column in MASTER]
    assert names[: len(OLD)] == OLD
    assert names[len(OLD) :] == ["axes", "repeat"]


def test_operations_of_one_size_have_numbers_of_their_own():
    gathered, reduced = ("allgather", 32.0), ("allreduce", 32.0)
    table = master_table([
        (point(256, 28), "collective_28ch.xlsx", sheet(reduced, gathered, ("broadcast", 0.001))),
        (point(256, 4), "collective_4ch.xlsx", sheet(gathered, ("send", None))),
    ])  # fmt: skip
    found = [(one["operation_id"], one["Collective name"], one["channels_num"])
             for one in table.records()]  # fmt: skip
    assert found == [
        ("OP_01", "broadcast", 28), ("OP_02", "allgather", 4), ("OP_02", "allgather", 28),
        ("OP_03", "allreduce", 28), ("OP_04", "send", 4),
    ]  # fmt: skip
    assert table.records()[1]["source_file"] == "collective_4ch.xlsx"


def test_sizes_have_the_old_words_and_right_units():
    assert operation_size(1 / 1024) == "tiny_1.000KB"
    assert operation_size(32.0) == "medium_32.00MB"
    assert operation_size(768.1406) == "large_768.14MB"
    assert operation_size(None) == "unknown"
