"""NCCL's own records next to the collectives of traces."""

from __future__ import annotations

import json

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats import nccl as inspector
from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.tuner import tuned_collectives


def write_records(folder, rank, durations, *, size=1 << 24, ranks=2, cut=0):
    """A file of NCCL Inspector with one all-gather per duration in us; `size` is that of the whole
    message."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, duration in enumerate(durations):
        values = {
            "coll": "AllGather", "coll_sn": number, "coll_msg_size_bytes": size // ranks,
            "coll_exec_time_us": duration, "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 0.5,
        }  # fmt: skip
        header = {"id": "0xabc", "rank": rank, "n_ranks": ranks, "nnodes": 1}
        process = {"inspector_output_format_version": "v4.0", "hostname": "a", "pid": 100 + rank}
        lines.append(json.dumps({"header": header, "metadata": process, "coll_perf": values}))
    text = "\n".join(lines) + "\n"
    (folder / f"a-pid{100 + rank}.log").write_text(text[: len(text) - cut])


@pytest.fixture
def point(sweeps, tmp_path):
    """The analysis of a point of 2 ranks, with a function that adds records to it."""
    made = sweeps.MadePoint(steps=2, layers=3, elements=1 << 23, comm_ns=260_000)
    folder = sweeps.write_sweep(tmp_path / "sweep", [made])

    def analyse(*files, place="nccl_inspector", **chosen):
        for rank, durations in enumerate(files):
            write_records(sweeps.point_folder(folder, made) / place, rank, durations, **chosen)
        return analyse_sweep(folder)

    return analyse


def test_latency_is_that_of_the_rank_that_did_not_wait(point):
    """It stands next to that of the traces."""
    found = point([300, 280, 290, 500, 270, 260, 310], [250, 400, 260, 250, 255, 600, 240])
    (kind,) = found.points[0].recorded
    assert (kind.operation, kind.bytes, kind.ranks, kind.count) == ("all_gather", 1 << 24, 2, 7)
    assert kind.is_complete
    assert kind.latencies_us == (250, 280, 260, 250, 255, 260, 240)
    assert (kind.low, kind.latency_us, kind.high) == (240, 255, 280)
    assert kind.busbw_gbps == pytest.approx((1 << 24) / 2 / 255e3)
    assert kind.traced_count == 6
    assert kind.traced_latency_us == pytest.approx(260, rel=0.01)
    assert kind.traced_busbw_gbps == pytest.approx((1 << 24) / 2 / 260e3, rel=0.01)


def test_a_damaged_file_is_a_problem_of_its_point(point):
    found = point([250] * 6, [250] * 6, cut=20)
    assert found.points[0].recorded[0].count == 5
    assert sum("NCCL Inspector" in one for one in found.points[0].problems) == 2


def test_a_file_that_cannot_be_opened_is_a_problem(point, monkeypatch):
    def refuse(path):
        raise RequestError(f"{path} cannot be read: Permission denied")

    monkeypatch.setattr(inspector, "open_decompressed", refuse)
    found = point([250] * 6).points[0]
    assert found.recorded == ()
    assert sum("a-pid100.log cannot be read" in one for one in found.problems) == 1


def test_records_of_nccl_have_precedence_where_every_point_has_them(sweeps, tmp_path):
    made = [
        sweeps.MadePoint(steps=1, layers=3, channels=channels, repeat=repeat, elements=1 << 23)
        for channels in (4, 8) for repeat in (1, 2)
    ]  # fmt: skip
    folder = sweeps.write_sweep(tmp_path / "sweep", made)
    for point in made:
        for rank in range(2):
            durations = [1000 // point.channels + point.repeat] * 5
            write_records(sweeps.point_folder(folder, point) / "nccl", rank, durations)
    (one,) = tuned_collectives(analyse_sweep(folder))
    assert (one.source, one.nodes, one.way.channels) == ("nccl_records", 1, 8)
    assert one.best.mean_ms == pytest.approx((0.126 * 0.127) ** 0.5)
    assert one.best.steps == 10
