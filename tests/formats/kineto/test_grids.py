from __future__ import annotations

import io
import json
from typing import Any

import pytest

from gemmetry.formats.kineto import read_kineto


def pair(number: int, call: str, kernel: dict[str, Any], launch: dict[str, Any]) -> list[Any]:
    recorded = {"correlation": number, "device": 0, "stream": 0}
    return [
        {"ph": "X", "cat": "cuda_runtime", "name": call, "pid": 1, "tid": 1, "ts": 1, "dur": 1,
         "args": recorded | launch},
        {"ph": "X", "cat": "kernel", "name": "Cijk", "pid": 0, "tid": 0, "ts": 5, "dur": 1,
         "args": recorded | kernel},
    ]  # fmt: skip


def sizes(*pairs: list[Any]) -> list[tuple[list[int], list[int]]]:
    events = [event for one in pairs for event in one]
    rows = read_kineto(io.BytesIO(json.dumps({"traceEvents": events}).encode()))
    assert rows is not None
    return list(zip(rows.gpu.grid.tolist(), rows.gpu.block.tolist(), strict=True))


def test_grids_in_work_items_become_workgroups():
    # 15360 x 6144 with 256 x 192 tiles: 60 * 32 workgroups (seen on an MI300X).
    recorded = {"grid": [491520, 1, 1], "block": [256, 1, 1]}
    in_blocks = {"grid": [32, 15, 8], "block": [256, 1, 1]}
    assert sizes(
        pair(1, "hipExtModuleLaunchKernel", recorded, recorded),
        pair(2, "hipLaunchKernel", in_blocks, in_blocks),
        pair(3, "cudaLaunchKernel", recorded, {}),
    ) == [
        ([1920, 1, 1], [256, 1, 1]),
        ([32, 15, 8], [256, 1, 1]),
        ([491520, 1, 1], [256, 1, 1]),
    ]


def test_a_last_workgroup_that_is_not_full_counts():
    recorded = {"grid": [257, 1, 1], "block": [256, 1, 1]}
    assert sizes(pair(1, "hipExtModuleLaunchKernel", recorded, {})) == [([2, 1, 1], [256, 1, 1])]


def test_swapped_sizes_of_rocprofiler_sdk():
    large = {"grid": [256, 1, 1], "block": [524288, 1, 1]}
    small = {"grid": [256, 1, 1], "block": [256, 1, 1]}
    assert sizes(
        pair(1, "hipLaunchKernel", large, large),
        pair(2, "hipExtModuleLaunchKernel", small, small),
    ) == [([2048, 1, 1], [256, 1, 1]), ([1, 1, 1], [256, 1, 1])]


@pytest.mark.parametrize("number", [1, 2])
def test_kernels_without_sizes_take_those_of_their_launch(number):
    launch = {"grid": [512, 1, 1], "block": [256, 1, 1]}
    found = sizes(
        pair(1, "hipExtModuleLaunchKernel", {"correlation": number}, launch),
        pair(3, "hipLaunchKernel", {}, {"grid": [3, 1, 1], "block": [128, 1, 1]}),
    )
    # Number 2 has no launch in the file.
    first = ([2, 1, 1], [256, 1, 1]) if number == 1 else ([0, 0, 0], [0, 0, 0])
    assert found == [first, ([3, 1, 1], [128, 1, 1])]
