"""Records of NCCL Inspector, written as its sources write them."""

from __future__ import annotations

import gzip
import json

import pytest

from gemmetry.formats.nccl import inspector_files, inspector_records, is_inspector_file

HEADER = {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1,
          "comm_name": "DP Group 0"}  # fmt: skip
METADATA = {
    "inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "profiler_plugin",
    "dump_timestamp_us": 1748030377748202, "hostname": "example-hostname", "pid": 1639453,
}  # fmt: skip
REDUCE = {
    "coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184,
    "coll_exec_time_us": 61974, "coll_algobw_gbs": 277.210914, "coll_busbw_gbs": 485.119099,
}  # fmt: skip
SCATTER = {
    "coll": "ReduceScatter", "coll_sn": 1231, "coll_msg_size_bytes": 2147483648,
    "coll_exec_time_us": 41057, "coll_timing_source": "kernel_gpu",
    "coll_algobw_gbs": 418.439467, "coll_busbw_gbs": 366.134533,
    "event_trace_ts": {
        "coll_start_ts": 1752867229235059, "coll_stop_ts": 1752867229235064,
        "kernel_events": [
            {"channel_id": channel, "kernel_start_ts": 1752867229235181 - channel,
             "kernel_stop_ts": 1752867229275811 - channel, "kernel_record_ts": 1752867229275811}
            for channel in (0, 1)
        ],
    },
}  # fmt: skip
SEND = {
    "p2p": "Send", "p2p_sn": 3, "p2p_peer": 1, "p2p_msg_size_bytes": 4096, "p2p_exec_time_us": 12,
    "p2p_timing_source": "kernel_gpu", "p2p_algobw_gbs": 0.34, "p2p_busbw_gbs": 0.34,
}  # fmt: skip


def _line(**perf):
    return json.dumps({"header": HEADER, "metadata": METADATA, **perf}) + "\n"


def read(path):
    """Records and problems of a file."""
    problems = []
    return list(inspector_records(path, problems)), problems


@pytest.fixture
def log(tmp_path):
    def write(text, name="node1-pid12.log"):
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def test_an_all_reduce_and_a_send(log):
    (record, sent), _ = read(log(_line(coll_perf=REDUCE) + _line(p2p_perf=SEND)))
    assert (sent.operation, sent.peer, sent.bytes, sent.name) == ("send", 1, 4096, "DP Group 0")
    assert (record.operation, record.bytes, record.sequence) == ("all_reduce", 1 << 34, 1407)
    assert (record.rank, record.ranks, record.nodes) == (2, 8, 1)
    assert (record.duration_us, record.timing, record.channels) == (61974, "", None)
    assert (record.algorithm_bandwidth, record.bus_bandwidth) == (277.210914, 485.119099)
    assert (record.host, record.pid) == ("example-hostname", 1639453)


def test_a_reduce_scatter_records_the_part_of_one_rank(log):
    """The recorded bandwidth is that of the whole message: 8 ranks of 2 GiB in 41057 us."""
    ((record,), _) = read(log(_line(coll_perf=SCATTER)))
    assert record.bytes == 8 * 2147483648
    expected = record.bytes / record.duration_us / 1e3
    assert record.algorithm_bandwidth == pytest.approx(expected, rel=1e-6)
    assert record.bus_bandwidth == pytest.approx(expected * 7 / 8, rel=1e-6)
    assert (record.channels, record.start_us, record.end_us) == (
        2, 1752867229235180, 1752867229275811,
    )  # fmt: skip


def test_damaged_lines_are_counted_and_cost_nothing_else(log):
    text = _line(coll_perf=REDUCE) + "{}\n\n" + _line(coll_perf=SCATTER)[:200]
    records, (problem,) = read(log(text))
    assert len(records) == 1
    assert "2 lines" in problem and problem.endswith("2")


def test_compressed_and_cut(log):
    path = log(_line(coll_perf=REDUCE) * 100, "node1-pid12.log.gz")
    assert len(read(path)[0]) == 100
    path.write_bytes(path.read_bytes()[:-20])
    records, problems = read(path)
    assert records and problems


def test_files_are_found_by_name(log, tmp_path):
    good = log(_line(coll_perf=REDUCE))
    log("epoch 1\n", "train-pid3.log")
    log("", "empty-pid3.log")
    (tmp_path / "deep").mkdir()
    deep = tmp_path / "deep" / "node2-pid9.log"
    deep.write_text(_line(p2p_perf=SEND))
    (tmp_path / "other.log").write_text(_line(p2p_perf=SEND))
    found = list(inspector_files(tmp_path))
    assert {deep, good} <= set(found)
    assert {path for path in found if is_inspector_file(path)} == {deep, good}
