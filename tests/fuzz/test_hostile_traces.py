"""Whatever a trace contains, tables and reports of it are created, or it is refused with a
reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz import hostile_traces


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@given(st.binary(min_size=20, max_size=400))
@settings(
    deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_everything_is_made_of_two_hostile_ranks(folder, data):
    paths = []
    for rank in range(2):
        path = folder / f"rank{rank}.json"
        path.write_bytes(hostile_traces.hostile_trace(data, rank))
        paths.append(path)
    assert sum(hostile_traces.check_everything(paths, folder)) == 2, "a file is read or refused"


def _kernel(name, **changes):
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 1, "dur": 2}
    return {**event, "args": {"device": 0, "stream": 7}, **changes}


def test_all_hostile_texts_at_once(folder):
    """Every text as a kernel's name, an operator's, a device's, a group's and an element type's."""
    paths = []
    for rank in range(2):
        events = []
        for number, text in enumerate(hostile_traces.TEXTS):
            recorded = {"External id": number + 1, "Input Dims": [[text]], "Input type": [text]}
            operator = _kernel(text, cat="cpu_op", ts=100 * number, dur=50, args=recorded)
            call = _kernel(text, cat="cuda_runtime", ts=100 * number + 5,
                           args={"correlation": number + 1})  # fmt: skip
            recorded = {
                "device": 0, "stream": 7, "correlation": number + 1, "Collective name": text,
                "dtype": text, "Process Group Name": text, "In msg nelems": 5,
                "Group size": 2,
            }  # fmt: skip
            events += [operator, call, _kernel(text, ts=100 * number + 60, args=recorded),
                       _kernel(f"nccl{text}", ts=100 * number + 70, args=recorded)]  # fmt: skip
        head = {
            "distributedInfo": {"rank": rank, "world_size": 2},
            "deviceProperties": [{"id": 0, "name": "".join(hostile_traces.SCRIPTS)}],
            "host_name": hostile_traces.MARKS[1], "trace_id": hostile_traces.SCRIPTS[0],
        }  # fmt: skip
        path = folder / f"all{rank}.json"
        path.write_text(json.dumps({**head, "traceEvents": events}))
        paths.append(path)
    assert hostile_traces.check_everything(paths, folder) == (2, 0)


@pytest.mark.parametrize("depth", [100, 300, 480, 600, 900, 1100, 100_000])
def test_arguments_nested_deeply(folder, depth):
    """Deep enough for decoders, and for code that walks the decoded lists, to give up."""
    deep = "[" * depth + "]" * depth
    events = json.dumps([
        _kernel("aten::mm", cat="cpu_op", dur=50, args={"Input Dims": 0, "External id": 1}),
        _kernel("launch", cat="cuda_runtime", args={"correlation": 1}),
        _kernel("my_gemm_kernel", ts=60, args={"correlation": 1}),
    ])  # fmt: skip
    path = folder / "deep.json"
    path.write_text(
        f'{{"traceEvents": {events}}}'.replace('"Input Dims": 0', f'"Input Dims": {deep}')
    )
    assert sum(hostile_traces.check_everything([path], folder)) == 1, "it is read or refused"


def test_the_checks_notice_what_they_are_for():
    scripts = "<script></script>" * 3
    with pytest.raises(AssertionError):
        hostile_traces.check_page(f"{scripts}<img src=x>")
    with pytest.raises(AssertionError):
        hostile_traces.check_page(f"{scripts}<b onclick=x>")
    with pytest.raises(ValueError, match="1-1"):
        hostile_traces.check_csv('name\n"+1-1"\n')
    hostile_traces.check_csv("name\n-1.5\n'=x\n")
