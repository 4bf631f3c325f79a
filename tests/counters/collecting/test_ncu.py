from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmetry.counters.tools import (
    NOT_NCCL,
    CollectFiles,
    CollectRequest,
    export_arguments,
    plan_ncu,
    sections_in,
)
from gemmetry.domain.errors import UnknownNameError

FILES = CollectFiles.at(Path("out"))


def plan(available=None, chip="GH100", **settings):
    request = CollectRequest(command=("app",), **settings)
    return plan_ncu(request, FILES, chip=chip, sections=available)


def values(arguments: list[str], option: str) -> list[str]:
    return [arguments[n + 1] for n, word in enumerate(arguments) if word == option]


@pytest.mark.parametrize(
    ("is_left_out", "names"),
    [
        (False, ["gemm", "n", "nc", "ncc", "", "nnccgemm", "ncncc", "nvjet_sm90",
                 "cutlass_nccx_kernel", "void at::native::elementwise_kernel<128, 4>(int)"]),
        (True, ["nccl", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "my_nccl", "nnccl", "ncnccl",
                "nccnccl"]),
    ],
)  # fmt: skip
def test_collectives_are_left_out_by_default(is_left_out: bool, names: list[str]) -> None:
    """By an expression without anything that an engine may lack."""
    assert {bool(re.search(NOT_NCCL, name)) for name in names} == {not is_left_out}
    assert "(?" not in NOT_NCCL and "\\" not in NOT_NCCL


QUICK = ["SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "Occupancy"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Clocks are left alone, and control of caches is explicit.
        ({}, {"clock-control": ["none"], "cache-control": ["all"], "target-processes": ["all"],
              "kernel-name": [f"regex:{NOT_NCCL}"]}),
        ({"clock_control": "base"}, {"clock-control": ["base"]}),
        ({"kernel": "gemm|nvjet", "launch_skip": 10, "launch_count": 2},
         {"kernel-name": ["regex:gemm|nvjet"], "kernel-name-base": ["demangled"],
          "launch-skip": ["10"], "launch-count": ["2"]}),
        ({"collectives": True}, {"kernel-name": []}),
        # A bare range matches both kinds of NVTX ranges.
        ({"nvtx": ("step", "outer/inner]")}, {"nvtx-include": ["step", "step/", "outer/inner]"]}),
        ({"metric_set": "quick"}, {"section": QUICK, "metrics": []}),
        ({"metric_set": "full", "sections": ("PmSampling",), "metrics": ("dram__bytes.sum",)},
         {"set": ["full"], "section": ["PmSampling"], "metrics": ["dram__bytes.sum"]}),
    ],
)  # fmt: skip
def test_arguments(settings, expected) -> None:
    arguments, _ = plan(**settings)
    assert {name: values(arguments, f"--{name}") for name in expected} == expected
    assert ("--nvtx" in arguments) == ("nvtx" in settings)


def test_sections_and_metrics_that_are_not_there() -> None:
    """Sections that the version lacks are left out and named; metrics are checked by name where
    the chip is known."""
    found, missing = plan({"SpeedOfLight", "Occupancy"}, metric_set="quick")
    assert values(found, "--section") == ["SpeedOfLight", "Occupancy"]
    assert missing == ["MemoryWorkloadAnalysis", "WarpStateStats"]
    (gemm,) = values(plan()[0], "--metrics")
    assert "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum" in gemm.split(",")
    with pytest.raises(UnknownNameError, match="dram__bytes_reed"):
        plan(metrics=("dram__bytes_reed.sum",))
    assert "dram__bytes_reed.sum" in str(plan(chip=None, metrics=("dram__bytes_reed.sum",)))
    listing = "Identifier  Name\n---\nOccupancy  Occupancy no\nSpeedOfLight GPU Speed\n"
    assert {"Occupancy", "SpeedOfLight"} <= sections_in(listing)


def test_files_share_a_stem() -> None:
    assert export_arguments(CollectFiles.at(Path("a/x.ncu-rep")))[:2] == ("--import", "a/x.ncu-rep")
    assert CollectFiles.at(Path("a/x.ncu-rep")).table == Path("a/x.csv")
    assert FILES.description == Path("out/counters.json")
