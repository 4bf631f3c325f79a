from __future__ import annotations

import sys

import pytest
import yaml

from gemmetry.counters.collector import Tool, plan, plan_rocprof
from gemmetry.counters.tools import CollectRequest
from gemmetry.domain.errors import UnknownNameError
from gemmetry.hardware.amd_counters import overfull
from gemmetry.hardware.doctor import Profiler


def planned(**settings):
    return plan_rocprof(CollectRequest(command=("app",), **settings), chip="gfx942")


def test_counters_are_packed_into_passes_that_the_gpu_can_count() -> None:
    jobs = yaml.safe_load(planned().text)["jobs"]
    assert len(jobs) > 1
    assert not any(overfull(job["pmc"], "gfx942") for job in jobs)
    assert all("GRBM_GUI_ACTIVE" in job["pmc"] for job in jobs)


def test_collectives_are_left_out_unless_a_kernel_is_named() -> None:
    assert all(job["kernel_exclude_regex"] == "nccl" for job in planned().jobs)
    named = planned(kernel="Cijk", launch_skip=2, launch_count=3).jobs[0]
    assert named["kernel_include_regex"] == "Cijk"
    assert named["kernel_iteration_range"] == "[3-5]"
    assert "kernel_exclude_regex" not in named


def test_formats_are_given_because_the_default_is_a_database(tmp_path) -> None:
    tool = Tool(Profiler("rocprofv3", "rocprofv3", "1.0"), None, None)
    argv = plan(CollectRequest(command=(sys.executable,)), tmp_path, tool=tool).argv
    passes = str(tmp_path / "counters.rocprofv3.yaml")
    given = ("-i", passes, "-d", str(tmp_path), "--output-format", "csv", "json")
    assert argv == ("rocprofv3", *given, "--", sys.executable)


def test_further_counters_are_checked_by_name() -> None:
    assert any("SQ_INSTS_SMEM" in job["pmc"] for job in planned(metrics=("SQ_INSTS_SMEM",)).jobs)
    with pytest.raises(UnknownNameError):
        planned(metrics=("SQ_INSTS_SMEMM",))
