"""The folder of a sweep: points, ranks, what is missing."""

from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.folder import analysis_folder, read_sweep


@pytest.fixture
def point(sweeps):
    """A point as small as can be."""

    def make(**chosen):
        return sweeps.MadePoint(**{"steps": 1, "layers": 1, **chosen})

    return make


def test_further_recordings_of_a_rank_belong_to_its_trace(tmp_path, sweeps, point):
    sweeps.write_sweep(tmp_path, [point()])
    folder = tmp_path / "256thread/nccl_8channels/torch_profiler/rank1"
    first = folder / "trace.pt.trace.json.gz"
    for number in (10, 2):
        (folder / f"trace_{number}.pt.trace.json.gz").write_bytes(first.read_bytes())
    traces = read_sweep(tmp_path).points[0].traces
    assert [trace.rank for trace in traces] == [0, 1]
    assert traces[0].more == ()
    assert traces[1].path == first
    assert [path.name for path in traces[1].more] == [
        "trace_2.pt.trace.json.gz", "trace_10.pt.trace.json.gz"
    ]  # fmt: skip


def test_a_damaged_document_is_a_problem(tmp_path, sweeps, point):
    sweeps.write_sweep(tmp_path, [point()])
    (tmp_path / "sweep.json").write_text("{")
    (tmp_path / "256thread/nccl_8channels/point.json").write_text("[]")
    found = read_sweep(tmp_path)
    assert [p.outcome for p in found.points] == ["ok"]
    assert len(found.problems) == 2
    assert all("is ignored" in problem for problem in found.problems)


def test_a_folder_without_points_is_refused_with_the_sweeps_in_it(tmp_path, sweeps, point):
    with pytest.raises(RequestError, match="does not exist"):
        read_sweep(tmp_path / "no")
    sweeps.write_sweep(tmp_path / "sweep_1", [point()])
    with pytest.raises(RequestError, match=r"has no point of a sweep; .*: sweep_1"):
        read_sweep(tmp_path)


def test_the_folder_of_the_analysis(tmp_path, sweeps, point):
    sweeps.write_sweep(tmp_path, [point()])
    assert analysis_folder(tmp_path) == tmp_path / "analysis"
    old = tmp_path / "tracelens_analysis"
    (old / "256thread" / "individual_reports").mkdir(parents=True)
    assert analysis_folder(tmp_path) == old
    assert analysis_folder(tmp_path, "mine") == tmp_path / "mine"
    assert [p.folder for p in read_sweep(old).points] == [
        p.folder for p in read_sweep(tmp_path).points
    ]
    assert len(read_sweep(tmp_path).points) == 1
