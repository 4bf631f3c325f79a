"""NCCL's own records next to the collectives of traces."""

from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.formats import nccl as inspector
from gemmetry.sweeps.points import analyse_sweep


@pytest.fixture
def point(sweeps, tmp_path, records):
    """The analysis of a point of 2 ranks, with a function that adds records to it."""
    made = sweeps.MadePoint(steps=2, layers=3, elements=1 << 23, comm_ns=260_000)
    folder = sweeps.write_sweep(tmp_path / "sweep", [made])

    def analyse(*files, place="nccl_inspector", **chosen):
        for rank, durations in enumerate(files):
            records(sweeps.point_folder(folder, made) / place, rank, durations, **chosen)
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
