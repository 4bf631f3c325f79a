"""What Nsight Compute and rocprofv3 are started with: ``plans.txt``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from gemmetry.counters.collector import Tool, plan, plan_rocprof
from gemmetry.counters.tools import (
    NOT_NCCL,
    CollectFiles,
    CollectRequest,
    export_arguments,
    plan_ncu,
    sections_in,
)
from gemmetry.domain.errors import UnknownNameError
from gemmetry.hardware.amd_counters import overfull
from gemmetry.hardware.doctor import Profiler

FILES = CollectFiles.at(Path("out"))


def _planned(what, *, chip="GH100", available=None, **settings):
    for name, value in settings.items():
        settings[name] = tuple(value) if isinstance(value, list) else value
    request = CollectRequest(command=("app",), **settings)
    if what == "rocprofv3":
        planned = plan_rocprof(request, chip="gfx942")
        assert yaml.safe_load(planned.text)["jobs"] == list(planned.jobs)
        assert not any(overfull(job["pmc"], "gfx942") for job in planned.jobs)
        return [("job", job) for job in planned.jobs]
    found, missing = plan_ncu(request, FILES, chip=chip, sections=available and {*available})
    options = " ".join(found).replace(f"regex:{NOT_NCCL}", "regex:NOT_NCCL").split(" --")
    return [*options, *(f"missing: {name}" for name in missing)]


def test_plans(case):
    ((what, _, settings),) = case.calls()
    try:
        found = _planned(what, **settings)
    except UnknownNameError as error:
        found = [f"error: {error.message}"]
    case.check(found)


def test_collectives_are_left_out_by_an_expression_without_anything_that_an_engine_may_lack():
    others = ["gemm", "n", "nc", "ncc", "", "nnccgemm", "ncncc", "nvjet_sm90",
              "cutlass_nccx_kernel", "void at::native::elementwise_kernel<4>(int)"]  # fmt: skip
    collectives = ["nccl", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "my_nccl", "nnccl",
                   "ncnccl", "nccnccl"]  # fmt: skip
    assert [one for one in others + collectives if re.search(NOT_NCCL, one)] == others
    assert "(?" not in NOT_NCCL and "\\" not in NOT_NCCL


def test_files_share_a_stem_and_formats_are_given_as_the_default_is_a_database(tmp_path) -> None:
    files = CollectFiles.at(Path("a/x.ncu-rep"))
    assert export_arguments(files)[:2] == ("--import", "a/x.ncu-rep")
    assert (files.table, FILES.description) == (Path("a/x.csv"), Path("out/counters.json"))
    tool = Tool(Profiler("rocprofv3", "rocprofv3", "1.0"), None, None)
    argv = plan(CollectRequest(command=(sys.executable,)), tmp_path, tool=tool).argv
    passes = str(tmp_path / "counters.rocprofv3.yaml")
    given = ("-i", passes, "-d", str(tmp_path), "--output-format", "csv", "json")
    assert argv == ("rocprofv3", *given, "--", sys.executable)


def test_sections_in_a_listing():
    listing = "Identifier  Name\n---\nOccupancy  Occupancy no\nSpeedOfLight GPU Speed\n"
    assert {"Occupancy", "SpeedOfLight"} <= sections_in(listing)
