"""The folder of a sweep: points, ranks, what is missing."""

from __future__ import annotations

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.folder import analysis_folder, read_sweep


@pytest.fixture
def folder(sweeps, tmp_path):
    """The sweep of a point as small as can be."""
    return sweeps.write_sweep(tmp_path / "sweep_1", [sweeps.MadePoint(steps=1, layers=1)])


def test_further_recordings_of_a_rank_belong_to_its_trace(folder):
    (first,) = folder.rglob("rank1/*.gz")
    for number in (10, 2):
        first.with_name(f"trace_{number}.pt.trace.json.gz").write_bytes(first.read_bytes())
    traces = read_sweep(folder).points[0].traces
    assert [trace.rank for trace in traces] == [0, 1]
    assert traces[0].more == ()
    assert traces[1].path == first
    assert [path.name for path in traces[1].more] == [
        "trace_2.pt.trace.json.gz", "trace_10.pt.trace.json.gz"
    ]  # fmt: skip


def test_a_damaged_document_is_a_problem(folder):
    (folder / "sweep.json").write_text("{")
    (folder / "256thread/nccl_8channels/point.json").write_text("[]")
    found = read_sweep(folder)
    assert [p.outcome for p in found.points] == ["ok"]
    assert len(found.problems) == 2
    assert all("is ignored" in problem for problem in found.problems)


def test_a_folder_without_points_is_refused_with_the_sweeps_in_it(folder):
    with pytest.raises(RequestError, match="does not exist"):
        read_sweep(folder / "no")
    with pytest.raises(RequestError, match="sweep_1"):
        read_sweep(folder.parent)


def test_the_folder_of_the_analysis(folder):
    assert analysis_folder(folder) == folder / "analysis"
    old = folder / "tracelens_analysis"
    (old / "256thread" / "individual_reports").mkdir(parents=True)
    assert analysis_folder(folder) == old
    assert analysis_folder(folder, "mine") == folder / "mine"
    (of_old,), (point,) = read_sweep(old).points, read_sweep(folder).points
    assert of_old.folder == point.folder
