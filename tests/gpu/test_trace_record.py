"""Recorded traces on a real GPU: kernels are in them, in their steps, and results repeat."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gemmetry import record_traces
from gemmetry.domain.dispatch import Target
from gemmetry.domain.record import Record
from gemmetry.formats.events import GpuKind, TraceRows
from gemmetry.formats.kineto import read_kineto

pytestmark = pytest.mark.gpu

FORMATS = ("f32", "f16", "bf16")
REPEATS, ACTIVE = 3, 2


def recorded(gpu: Target, folder: Path) -> dict[str, Record]:
    results = record_traces(
        matrix_sizes="512x256x128", precisions=list(FORMATS), device=gpu.device,
        repeat_count=REPEATS, active_steps=ACTIVE, experiment=folder,
    )  # fmt: skip
    assert not results.failures
    return {record.dispatch: record for record in results.records}


def read(path: Path) -> TraceRows:
    with path.open("rb") as file:
        rows = read_kineto(file)
    assert rows is not None
    return rows


def test_kernels_lie_in_the_steps_that_launched_them(gpu: Target, tmp_path: Path) -> None:
    for record in recorded(gpu, tmp_path).values():
        assert record.trace is not None
        folder = tmp_path / record.trace.folder
        kernels = 0
        for name in record.trace.files[1:]:
            rows = read(folder / name)
            is_kernel = rows.gpu.kind == GpuKind.KERNEL
            starts = rows.gpu.start_ns[is_kernel]
            ends = starts + rows.gpu.duration_ns[is_kernel]
            on_host = rows.annotations.on_gpu == 0
            steps = [
                (start, start + duration)
                for start, duration, index in zip(
                    rows.annotations.start_ns[on_host], rows.annotations.duration_ns[on_host],
                    rows.annotations.name[on_host], strict=True,
                )
                if rows.names[index].startswith("ProfilerStep#")
            ]  # fmt: skip
            assert len(steps) == ACTIVE
            for first, last in steps:
                inside = (starts >= first) & (ends <= last)
                assert np.count_nonzero(inside) >= 1
            kernels += len(starts)
            assert set(rows.gpu.correlation[is_kernel]) <= set(rows.calls.correlation)
        assert record.trace.kernels == kernels >= REPEATS * ACTIVE


def test_two_runs_give_the_same_bits(gpu: Target, tmp_path: Path) -> None:
    first, second = recorded(gpu, tmp_path / "a"), recorded(gpu, tmp_path / "b")
    assert set(first) == set(second)
    assert len(first) == len(FORMATS)
    for name, record in first.items():
        other = second[name]
        assert record.trace is not None
        assert other.trace is not None
        assert record.trace.input_sha256 == other.trace.input_sha256
        assert record.trace.output_sha256 == other.trace.output_sha256


def test_repeats_are_added_and_a_chakra_trace_may_hold_every_launch(
    gpu: Target, tmp_path: Path
) -> None:
    def grid(repeats: int, *, whole: bool) -> Record:
        results = record_traces(
            matrix_sizes="256x256x256", precisions="fp16", device=gpu.device,
            repeat_count=repeats, chakra_all_steps=whole, wait_steps=0, warmup_iterations=1,
            experiment=tmp_path / str(whole),
        )  # fmt: skip
        (record,) = results.records
        return record

    first, grown = grid(2, whole=False), grid(4, whole=False)
    assert first.trace is not None
    assert grown.trace is not None
    assert grown.trace.files[:3] == first.trace.files
    assert grown.trace.kernels == 2 * first.trace.kernels
    assert grown.trace.output_sha256 == first.trace.output_sha256
    whole = grid(2, whole=True)
    assert whole.trace is not None
    text = (tmp_path / "True" / whole.trace.folder / whole.trace.files[0]).read_text()
    names = [node["name"] for node in json.loads(text)["nodes"]]
    assert names.count("aten::mm") == 2 * (1 + 1)
