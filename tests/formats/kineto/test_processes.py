from __future__ import annotations

import io
import json

import pytest

from gemmetry.formats.kineto import read_kineto


def event(category, pid, correlation, name="k"):
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": 7, "ts": correlation,
            "dur": 0.5, "args": {"correlation": correlation, "device": 0, "stream": 7}}  # fmt: skip


def read(host, gpu, numbers=((1, 2), (1, 2))):
    """Two processes, each with two launches; `host` and `gpu` make a rank's process names."""
    events = []
    for rank, own in enumerate(numbers):
        for number in own:
            events.append(event("cuda_runtime", host(rank), number, "cudaLaunchKernel"))
            events.append(event("kernel", gpu(rank), number, f"of {rank}"))
    rows = read_kineto(io.BytesIO(json.dumps({"traceEvents": events}).encode()))
    assert rows is not None
    return rows


@pytest.mark.parametrize(
    ("host", "gpu", "names", "ranks"),
    [
        (lambda r: f"[TP0{r}] 9000", lambda r: f"[TP0{r}] {r}", ["TP00", "TP01"], [0, 1]),
        (lambda r: f"[TP0{r}] 9000", lambda r: f"[TP0{r}] 0", ["TP00", "TP01"], [0, 1]),
        (lambda r: f"[TP0{r}-DP07] 9", lambda r: f"[TP0{r}-DP07] 0", ["TP00-DP07", "TP01-DP07"],
         [0, 1]),
        (lambda r: f"rank{r + 4}_900", lambda r: f"rank{r + 4}_0", ["rank4", "rank5"], [4, 5]),
        (lambda r: f"90{r} (rank {r})", lambda r: f"0 (rank {r})", ["rank 0", "rank 1"], [0, 1]),
        (lambda r: f"rank {r}", lambda r: f"rank {r}", ["rank 0", "rank 1"], [0, 1]),
        (lambda r: f"{'ab'[r]}:77", lambda r: f"{'ab'[r]}:0", ["a", "b"], [None, None]),
    ],
)  # fmt: skip
def test_labels_distinguish_processes(host, gpu, names, ranks):
    rows = read(host, gpu)
    assert [part.name for part in rows.parts] == names
    assert [part.rank for part in rows.parts] == ranks
    assert [rows.names[name] for name in rows.gpu.name] == ["of 0", "of 0", "of 1", "of 1"]
    assert rows.gpu.part.tolist() == [0, 0, 1, 1]
    for part, rank in zip(rows.parts, range(2), strict=True):
        assert {rows.threads[thread].rpartition("/")[0] for thread in part.threads} == {
            host(rank), *({gpu(rank)} & {t.rpartition("/")[0] for t in rows.threads})
        }  # fmt: skip


@pytest.mark.parametrize("numbers", [((1, 2), (3, 4)), ((1, 2), (2, 3))])
def test_numbers_of_one_process_show_for_which_a_gpu_worked(numbers):
    rows = read(lambda r: 9000 + r, lambda r: r, numbers)
    assert [part.name for part in rows.parts] == ["process 9000", "process 9001"]
    assert rows.gpu.part.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("host", "gpu"), [(lambda r: 9000 + r, lambda r: r), (lambda r: 9000 + r, lambda _: 0)]
)
def test_processes_that_cannot_be_distinguished_are_one_part(host, gpu):
    rows = read(host, gpu)
    assert rows.parts == ()
    assert rows.gpu.part.tolist() == [0] * 4


def test_one_process_with_several_gpus_is_one_part():
    rows = read(lambda _: 9000, lambda r: r, ((1, 2), (3, 4)))
    assert rows.parts == ()


def test_launches_of_a_graph_with_fewer_kernels_than_others():
    events = [event("cuda_runtime", 1, number, "cudaGraphLaunch") for number in range(1, 5)]
    for number, kernels in enumerate((5, 5, 2, 5), 1):
        for _ in range(kernels):
            events.append(event("kernel", 0, number))
            events[-1]["args"]["graph id"] = 3
    rows = read_kineto(io.BytesIO(json.dumps({"traceEvents": events}).encode()))
    assert rows is not None
    assert [(problem.where, problem.count) for problem in rows.problems] == [("graph 3", 3)]
