from __future__ import annotations

import errno
import importlib.util
import json
import os
import tempfile

import pytest

from gemmetry.domain.errors import LaunchError, StorageError, UnsupportedError
from gemmetry.domain.settings import TraceSchedule
from gemmetry.engine import recording as torch_profiler
from gemmetry.engine.recording import CHAKRA_NAME, METADATA_KEY, record, trace_names
from gemmetry.formats.kineto import read_kineto

torch = pytest.importorskip("torch")


@pytest.fixture
def launches():
    """A product of 8x4x6 that counts how often it was launched."""
    a, b, c = torch.ones(8, 6), torch.ones(6, 4), torch.empty(8, 4)
    done = []

    def launch():
        done.append(torch.mm(a, b, out=c))

    launch.done = done
    return launch


def run(launch, folder, **schedule):
    waits = []
    steps = TraceSchedule(**schedule)
    found = record(
        launch, lambda: waits.append(1), folder, steps, on_gpu=False, about={"dispatch": "x"}
    )
    assert len(waits) == steps.steps
    return found


def rows_of(path):
    with path.open("rb") as file:
        return read_kineto(file)


def test_each_repeat_is_a_file_that_holds_the_active_launches(launches, tmp_path):
    found = run(launches, tmp_path, wait_steps=1, warmup_steps=1, active_steps=2, repeats=3)
    assert len(launches.done) == 12
    kineto = [f"repeat_0{number}.pt.trace.json" for number in (1, 2, 3)]
    assert list(found.files) == [CHAKRA_NAME, *kineto]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(found.files)
    operators = 0
    for name in kineto:
        rows = rows_of(tmp_path / name)
        names = [rows.names[index] for index in rows.operators.name]
        assert names.count("aten::mm") == 2
        shapes = {rows.arguments[index].shapes for index in rows.operators.arguments}
        assert any(json.loads(text)[:2] == [[8, 6], [6, 4]] for text in shapes if text)
        steps = [rows.names[index] for index in rows.annotations.name]
        assert len([step for step in steps if step.startswith("ProfilerStep#")]) == 2
        assert not rows.partial and not rows.problems
        assert json.loads((tmp_path / name).read_text())[METADATA_KEY] == {"dispatch": "x"}
        operators += len(names)
    assert found.operators == operators
    assert found.kernels == 0


def test_the_execution_trace_is_the_first_repeats(launches, tmp_path):
    """Without a warm-up, too: warnings are errors in this suite, and torch has one for that."""
    run(launches, tmp_path, wait_steps=0, warmup_steps=0, active_steps=1, repeats=2)
    chakra = json.loads((tmp_path / CHAKRA_NAME).read_text())
    assert "chakra" in chakra["schema"]
    (product,) = [node for node in chakra["nodes"] if node["name"] == "aten::mm"]
    kineto = json.loads((tmp_path / "repeat_01.pt.trace.json").read_text())
    (recorded,) = [event for event in kineto["traceEvents"] if event["name"] == "aten::mm"]
    attributes = {one["name"]: one["value"] for one in product["attrs"]}
    assert attributes["rf_id"] == recorded["args"]["Record function id"]


def test_the_execution_trace_may_hold_every_launch(launches, tmp_path):
    run(launches, tmp_path, wait_steps=1, warmup_steps=2, active_steps=1, repeats=2,
        chakra_all_steps=True)  # fmt: skip
    nodes = json.loads((tmp_path / CHAKRA_NAME).read_text())["nodes"]
    products = [node for node in nodes if node["name"] == "aten::mm"]
    assert len(products) == len(launches.done) == 8
    rows = rows_of(tmp_path / "repeat_02.pt.trace.json")
    assert [rows.names[index] for index in rows.operators.name].count("aten::mm") == 1


def test_further_repeats_are_all_that_is_recorded(launches, tmp_path):
    """Earlier recordings stay as they are: tests/engine/recording."""
    run(launches, tmp_path, wait_steps=0, warmup_steps=1, active_steps=1, repeats=2)
    launches.done.clear()
    schedule = TraceSchedule(wait_steps=0, warmup_steps=1, active_steps=1, repeats=5)
    found = record(launches, lambda: None, tmp_path, schedule, on_gpu=False, about={}, kept=2)
    assert len(launches.done) == 6
    assert list(found.files) == trace_names(5)
    operators = [len(rows_of(tmp_path / name).operators.name) for name in found.files[1:]]
    assert found.operators == sum(operators) > 0


def test_a_launch_that_torch_does_not_see_is_unsupported(launches, tmp_path, monkeypatch):
    with pytest.raises(UnsupportedError):
        run(lambda: None, tmp_path, repeats=1)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="pip install"):
        run(launches, tmp_path)
    assert launches.done == []


def test_a_gpu_trace_without_kernels_is_not_a_trace():
    schedule = TraceSchedule(repeats=1)
    torch_profiler._check([("repeat_01", 3, 1)], schedule, on_gpu=True)
    for counted, words in (([("repeat_01", 3, 0)], "repeat_01"), ([], "0 of 1 repeats")):
        with pytest.raises(LaunchError, match=words):
            torch_profiler._check(counted, schedule, on_gpu=True)


@pytest.mark.parametrize("content", ["", '{"traceEvents": [{"ph": "X", '])
def test_a_trace_that_the_profiler_did_not_end(tmp_path, monkeypatch, content):
    """It does not report that the disk is full."""
    path = tmp_path / "repeat_01.pt.trace.json"
    path.write_text(content)
    with pytest.raises(LaunchError, match=r"repeat_01\.pt\.trace\.json"):
        torch_profiler._count(path)

    def full(**_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StorageError, match=os.strerror(errno.ENOSPC)) as caught:
        torch_profiler._count(path)
    assert "Free some space" in caught.value.hint
