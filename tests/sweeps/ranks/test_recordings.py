"""Several recordings of one rank."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gemmetry.sweeps.points import analyse_sweep

FOLDER = "256thread/nccl_8channels/torch_profiler/rank{}"


@pytest.fixture
def recorded(tmp_path, sweeps):
    """Makes a sweep of one point. The function adds a recording of a rank in the folder of rank
    `place`, later by so many seconds; `change` gets its document."""
    made = sweeps.MadePoint(layers=3, noise=0.0, delay_ns={1: 300_000})
    sweeps.write_sweep(tmp_path, [made])

    def add(name, seconds, change=lambda document: None, rank=1, place=1):
        document = json.loads(sweeps.point_traces(made)[rank])
        for event in document["traceEvents"]:
            event["ts"] += seconds * 1e6
        change(document)
        (tmp_path / FOLDER.format(place) / name).write_text(json.dumps(document))

    return add


def _rank_1(tmp_path):
    (point,) = analyse_sweep(tmp_path).points
    return point.ranks[1], point


def test_later_recordings_add_steps_and_instances(tmp_path, recorded, sweeps):
    before, _ = _rank_1(tmp_path)
    recorded("trace_02.pt.trace.json", 5)
    recorded("trace_03.pt.trace.json", 9)
    found, point = _rank_1(tmp_path)
    assert point.problems == ("ranks differ in their numbers of steps: 3, 9",)
    facts, alone = found.facts, before.facts
    # The numbers of steps are the same in each recording, and continue.
    assert [step.number for step in facts.steps] == list(range(3, 12))
    assert [step.window_ns for step in facts.steps] == 3 * [s.window_ns for s in alone.steps]
    assert facts.gemm_kinds == alone.gemm_kinds
    assert facts.gemms.duration_ns.tolist() == 3 * alone.gemms.duration_ns.tolist()
    assert (np.diff(facts.gemms.start_ns) > 0).all()
    assert sorted(set(facts.gemms.step.tolist())) == list(range(3, 12))
    assert len(facts.communication) == 3 * len(alone.communication)
    for gemm, kernel, both in facts.gemms.overlapping.tolist():
        other = facts.communication[kernel].collective
        assert other.start_ns < facts.gemms.start_ns[gemm] + facts.gemms.duration_ns[gemm]
        assert facts.gemms.start_ns[gemm] < other.end_ns
        assert 0 < both <= facts.gemms.duration_ns[gemm]
    assert facts.times["busy_time"] == 3 * alone.times["busy_time"]
    counts = {gemm.kind.kernel: gemm.count for gemm in found.gemms}
    assert counts[sweeps.UP.kernel] == 3 * 3 * 3 * 2


def test_numbers_that_continue_are_kept(tmp_path, recorded):
    def later(document):
        for event in document["traceEvents"]:
            name, _, number = event["name"].partition("#")
            if name == "ProfilerStep":
                event["name"] = f"ProfilerStep#{int(number) + 40}"

    recorded("trace_02.pt.trace.json", 5, later)
    found, _ = _rank_1(tmp_path)
    assert [step.number for step in found.facts.steps] == [3, 4, 5, 43, 44, 45]


def test_a_copy_a_recording_of_another_rank_and_a_damaged_one_are_named(tmp_path, recorded):
    recorded("copy.pt.trace.json", 0)
    found, point = _rank_1(tmp_path)
    assert len(found.facts.steps) == 3
    (problem,) = point.problems
    assert "it overlaps" in problem
    assert point.is_complete
    recorded("trace_other.pt.trace.json", 5, rank=0)
    (tmp_path / FOLDER.format(1) / "zero.pt.trace.json.gz").write_bytes(b"\x1f\x8b damaged")
    found, point = _rank_1(tmp_path)
    assert len(found.facts.steps) == 3
    assert len(point.problems) == 3
    assert any("it is of rank 0" in text for text in point.problems)
    assert any("zero.pt.trace.json.gz" in text for text in point.problems)
    assert not point.is_complete


def test_a_straggler_is_found_over_several_recordings(tmp_path, recorded, sweeps):
    for rank in range(2):
        recorded("later.json", 5, rank=rank, place=rank)
    found, point = _rank_1(tmp_path)
    assert found.facts.kernel_times.per_step.shape[0] == len(found.facts.steps) == 6
    late = point.stragglers[1]
    assert (late.lost_in, late.since_step) == (sweeps.SLEEP.partition("(")[0], 3)
    assert late.delayed_us == pytest.approx(900, rel=0.02)
