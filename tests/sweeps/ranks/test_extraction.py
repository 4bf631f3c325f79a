"""Facts of one trace of a sweep."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gemmetry.sweeps.folder import RankFile
from gemmetry.sweeps.ranks import read_facts


def _facts(tmp_path, text, rank=0):
    path = tmp_path / f"rank{rank}.json"
    path.write_text(text)
    return read_facts(RankFile(path, rank))[1]


@pytest.fixture
def planted(tmp_path, sweeps):
    """Rank 1 of a point: 2 steps of 2 layers, with UP slowed next to the all-gather."""
    point = sweeps.MadePoint(steps=2, layers=2, noise=0.0, slowdown={sweeps.UP.kernel: 1.25})
    return _facts(tmp_path, sweeps.point_traces(point)[1], 1)


def test_gemms_with_their_overlap_and_the_collective_next_to_each(planted, sweeps):
    gemms = planted.gemms
    assert [(kind.kernel, kind.shape, kind.dtype) for kind in planted.gemm_kinds] == [
        (one.kernel, f"{one.m}x{one.n}x{one.k}", "bf16") for one in (sweeps.UP, sweeps.DOWN)
    ]
    assert (np.diff(gemms.start_ns) > 0).all()
    # In each layer UP and DOWN run next to the all-gather, then alone.
    assert gemms.kind.tolist() == [0, 1] * 8
    assert gemms.duration_ns.tolist() == [125_000, 90_000, 100_000, 90_000] * 4
    assert (gemms.overlap_ns > 0).tolist() == [True, True, False, False] * 4
    assert gemms.step.tolist() == [3] * 8 + [4] * 8
    pairs = gemms.overlapping
    assert pairs[:, 0].tolist() == [0, 1, 4, 5, 8, 9, 12, 13]
    assert pairs[:, 1].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    summed = np.zeros(len(gemms), np.int64)
    np.add.at(summed, pairs[:, 0], pairs[:, 2])
    assert summed.tolist() == gemms.overlap_ns.tolist()


@pytest.mark.parametrize("name", ["PtoP (Device -> Device)", "DtoD (Device -> Device)"])
def test_a_collective_on_copy_engines_is_communication(tmp_path, sweeps, name):
    """The copies have no kernel next to them in the collective's operator."""
    document = _with_copy(sweeps, name)
    found = _facts(tmp_path, json.dumps(document))
    (copy,) = found.communication
    assert (copy.collective.op, copy.collective.bytes) == ("copy", 4096)
    assert (found.gemms.overlap_ns > 0).tolist() == [True, True, False, False]
    (step,) = found.steps
    assert step.exposed_comm_ns > 0 == step.exposed_copy_ns
    # TraceLens' times count it as a copy.
    assert found.times["total_comm_time"] == 0 < found.times["total_memcpy_time"]


def _with_copy(sweeps, name, *, keep_kernel=False):
    """One layer whose all-gather is a copy; with `keep_kernel`, next to its kernel."""
    document = json.loads(sweeps.point_traces(sweeps.MadePoint(steps=1, layers=1, noise=0.0))[0])
    events = document["traceEvents"]
    (kernel,) = (one for one in events if one["name"] == sweeps.COLLECTIVE)
    number = kernel["args"]["correlation"]
    args = {"device": 0, "stream": 24, "correlation": number, "bytes": 4096}
    events.append({**kernel, "cat": "gpu_memcpy", "name": f"Memcpy {name}", "args": args})
    if not keep_kernel:
        events.remove(kernel)
    return document


def test_a_local_copy_is_no_communication(tmp_path, sweeps):
    """Neither next to the kernel of its collective, nor outside of collectives."""
    name = "DtoD (Device -> Device)"
    with_kernel = _facts(tmp_path, json.dumps(_with_copy(sweeps, name, keep_kernel=True)))
    assert [one.collective.op for one in with_kernel.communication] == ["all_gather"]
    text = json.dumps(_with_copy(sweeps, name)).replace("record_param_comms", "aten::copy_")
    outside = _facts(tmp_path, text)
    assert outside.communication == ()
    assert outside.steps[0].exposed_copy_ns > 0


def test_the_rank_is_that_of_the_trace_and_else_of_its_path(tmp_path, sweeps):
    text = sweeps.point_traces(sweeps.MadePoint(steps=1, layers=1))[1]
    found = _facts(tmp_path, text, 0)
    assert found.rank == 1
    assert found.problems == ("the trace is of rank 1, its path of rank 0",)
    document = json.loads(text)
    del document["distributedInfo"]
    found = _facts(tmp_path, json.dumps(document), 1)
    assert (found.rank, found.rank_source, found.world_size) == (1, "name", None)


def test_a_trace_of_a_cpu_with_gloo(tmp_path):
    def event(category, name, start, duration, thread=1, **args):
        return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread,
                "ts": start, "dur": duration, "args": args}  # fmt: skip

    dims = {"Input Dims": [[8, 4], [4, 2]], "Input type": ["float", "float"]}
    events = [
        event("user_annotation", "ProfilerStep#2", 0, 100),
        event("cpu_op", "aten::matmul", 5, 12, **dims),
        event("cpu_op", "aten::mm", 6, 10, **dims),
        event("cpu_op", "c10d::allreduce_", 20, 2),
        event("user_annotation", "gloo:all_reduce", 30, 50, thread=9),
        event("cpu_op", "aten::mm", 40, 15, **dims),
        event("user_annotation", "ProfilerStep#3", 100, 100),
    ]
    found = _facts(tmp_path, json.dumps({"traceEvents": events}))
    assert not found.on_gpu
    assert [(one.kernel, one.shape, one.dtype) for one in found.gemm_kinds] == [
        ("aten::mm", "8x2x4", "f32")
    ]
    assert found.gemms.duration_ns.tolist() == [10_000, 15_000]
    assert found.gemms.overlap_ns.tolist() == [0, 15_000]
    assert [one.collective.op for one in found.communication] == ["all_reduce"]
    first, second = found.steps
    assert (first.number, first.window_ns) == (2, 100_000)
    assert (first.compute_ns, first.exposed_comm_ns, first.idle_ns) == (27_000, 35_000, 38_000)
    assert (second.number, second.idle_ns) == (3, 100_000)
