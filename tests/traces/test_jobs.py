from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError
from gemmetry.traces.collectives.summary import Group
from gemmetry.traces.jobs import APART_NS, group_jobs, rank_trace


def ranks_of(jobs):
    return [[one.rank for one in job.ranks] for job in jobs]


def test_files_of_a_folder_are_a_job(rank):
    traces = [
        rank(r, file=Path(f"{folder}/t{r}.json"), world_size=2)
        for folder in ("a/4ch", "a/8ch")
        for r in (1, 0)
    ]
    jobs = group_jobs(traces)
    assert ranks_of(jobs) == [[0, 1], [0, 1]]
    assert [job.name for job in jobs] == ["a/4ch", "a/8ch"]
    assert [job.world_size for job in jobs] == [2, 2]
    assert not any(job.missing or job.notes for job in jobs)


def test_a_folder_for_each_rank_is_one_job(rank):
    traces = [rank(r, file=Path(f"run/rank{r}/trace/pt.trace.json")) for r in range(3)]
    (job,) = group_jobs(traces)
    assert ranks_of([job]) == [[0, 1, 2]]
    assert job.name == "run/rank*/trace"


def test_the_traces_own_identification_of_the_job_counts_more_than_folders(rank):
    traces = [
        rank(r, file=Path(f"{folder}/{job}{r}.json"), job=job)
        for r, folder in ((0, "x"), (1, "y"))
        for job in ("one", "two")
    ]
    assert ranks_of(group_jobs(traces)) == [[0, 1], [0, 1]]


def test_an_identification_of_each_rank_of_its_own_is_none_of_a_job(rank):
    # Newer versions of Kineto write another trace_id on each rank.
    (job,) = group_jobs([rank(0, job="A7"), rank(1, job="F5")])
    assert ranks_of([job]) == [[0, 1]]


def test_a_rank_twice_is_refused_with_both_files(rank):
    with pytest.raises(RequestError, match=r"rank 1 occurs twice .*a\.json and .*b\.json"):
        group_jobs([rank(1, file=Path("j/a.json")), rank(1, file=Path("j/b.json"))])


def test_missing_ranks_are_reported(rank, collective):
    (job,) = group_jobs([rank(0, world_size=4), rank(2, world_size=4)])
    assert job.missing == (1, 3)
    # Without a world size, the groups show it.
    one = collective(group=Group("0", (0, 1, 5), 3))
    (job,) = group_jobs([rank(0, [one])])
    assert job.missing == (1, 5)


def test_worlds_of_different_sizes_in_a_folder_are_different_jobs(rank):
    jobs = group_jobs([rank(0, world_size=2), rank(1, world_size=8, file=Path("job/x.json"))])
    assert ranks_of(jobs) == [[0], [1]]


def test_recordings_hours_apart_are_different_jobs(rank):
    late = rank(1, span=(APART_NS * 3, APART_NS * 3 + 5))
    jobs = group_jobs([rank(0, span=(10, 20)), late, rank(2, span=(15, 30))])
    assert ranks_of(jobs) == [[0, 2], [1]]
    assert len({job.name for job in jobs}) == 2


def test_a_recording_without_work_on_a_gpu_stays_with_its_folder(rank):
    (job,) = group_jobs([rank(0, span=(APART_NS, APART_NS + 9)), rank(1)])
    assert ranks_of([job]) == [[0, 1]]


def test_traces_without_a_rank_or_of_a_world_of_one_are_alone(rank):
    traces = [
        rank(None, file=Path("j/a.json"), rank_source=""),
        rank(None, file=Path("j/b.json"), rank_source=""),
        rank(0, file=Path("j/c.json"), world_size=1),
        rank(0, file=Path("j/d.json"), world_size=1),
    ]
    jobs = group_jobs(traces)
    assert ranks_of(jobs) == [[0], [0], [0], [0]]
    assert "records no rank" in jobs[0].notes[0]
    assert jobs[2].notes == ()


def test_a_file_that_ends_early_is_reported(rank):
    (job,) = group_jobs([rank(0), rank(1, partial=True)])
    assert job.notes == ("rank1.json is partial: collectives of rank 1 may be missing",)


@pytest.mark.parametrize(
    ("file", "number"),
    [
        ("x/rank3.pt.trace.json.gz", 3), ("x/sampled_rank-12.json", 12), ("rank_5/trace.json", 5),
        ("rank1/rank2.json", 2), ("x/frank7.json", None), ("x/trace.json", None),
    ],
)  # fmt: skip
def test_the_rank_comes_from_the_file_name_where_the_trace_has_none(recording, file, number):
    found = rank_trace(recording().trace(file))
    assert found.rank == number
    assert found.rank_source == ("" if number is None else "name")


def test_the_trace_is_believed_before_its_name(recording):
    made = recording(distributedInfo={"rank": 4, "world_size": 8}, baseTimeNanoseconds=1000)
    made.kernel("sgemm", 500, 40)
    found = rank_trace(made.trace("rank9.json"))
    assert (found.rank, found.rank_source, found.world_size) == (4, "trace", 8)
    assert found.span == (1500, 1540)
    assert found.collectives == ()
