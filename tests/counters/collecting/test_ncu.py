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


def values(arguments: tuple[str, ...], option: str) -> list[str]:
    return [arguments[n + 1] for n, word in enumerate(arguments) if word == option]


def planned(**settings) -> tuple[str, ...]:
    request = CollectRequest(command=("app",), **settings)
    return plan_ncu(request, FILES, chip="GH100").arguments


@pytest.mark.parametrize(
    "name",
    ["gemm", "n", "nc", "ncc", "", "nnccgemm", "ncncc", "nvjet_sm90", "cutlass_nccx_kernel",
     "void at::native::elementwise_kernel<128, 4>(int)"],
)  # fmt: skip
def test_names_without_nccl_are_profiled_by_default(name: str) -> None:
    assert re.search(NOT_NCCL, name)


@pytest.mark.parametrize(
    "name",
    ["nccl", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "my_nccl", "nnccl", "ncnccl", "nccnccl"],
)
def test_collectives_are_left_out_by_default(name: str) -> None:
    assert not re.search(NOT_NCCL, name)


def test_the_expression_has_nothing_that_an_engine_may_lack() -> None:
    assert "(?" not in NOT_NCCL and "\\" not in NOT_NCCL


def test_clocks_are_left_alone_and_control_of_caches_is_explicit() -> None:
    arguments = planned()
    assert values(arguments, "--clock-control") == ["none"]
    assert values(arguments, "--cache-control") == ["all"]
    assert values(arguments, "--target-processes") == ["all"]
    assert values(arguments, "--kernel-name") == [f"regex:{NOT_NCCL}"]
    assert values(planned(clock_control="base"), "--clock-control") == ["base"]


def test_launches_are_chosen_by_name_skip_and_count() -> None:
    arguments = planned(kernel="gemm|nvjet", launch_skip=10, launch_count=2)
    assert values(arguments, "--kernel-name") == ["regex:gemm|nvjet"]
    assert values(arguments, "--kernel-name-base") == ["demangled"]
    assert values(arguments, "--launch-skip") == ["10"]
    assert values(arguments, "--launch-count") == ["2"]
    assert "--kernel-name" not in planned(collectives=True)


def test_a_bare_range_matches_both_kinds_of_nvtx_ranges() -> None:
    arguments = planned(nvtx=("step", "outer/inner]"))
    assert "--nvtx" in arguments
    assert values(arguments, "--nvtx-include") == ["step", "step/", "outer/inner]"]


def test_sets_have_their_sections_and_metrics() -> None:
    quick = planned(metric_set="quick")
    assert values(quick, "--section") == [
        "SpeedOfLight", "MemoryWorkloadAnalysis", "WarpStateStats", "Occupancy"
    ]  # fmt: skip
    assert "--metrics" not in quick
    full = planned(metric_set="full", sections=("PmSampling",), metrics=("dram__bytes.sum",))
    assert values(full, "--set") == ["full"]
    assert values(full, "--section") == ["PmSampling"]
    assert values(full, "--metrics") == ["dram__bytes.sum"]
    (gemm,) = values(planned(), "--metrics")
    assert "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_gmma.sum" in gemm.split(",")


def test_sections_that_the_version_lacks_are_left_out_and_named() -> None:
    request = CollectRequest(command=("app",), metric_set="quick")
    found = plan_ncu(request, FILES, chip="GH100", sections={"SpeedOfLight", "Occupancy"})
    assert values(found.arguments, "--section") == ["SpeedOfLight", "Occupancy"]
    assert found.missing_sections == ("MemoryWorkloadAnalysis", "WarpStateStats")


def test_metrics_are_checked_by_name_where_the_chip_is_known() -> None:
    request = CollectRequest(command=("app",), metrics=("dram__bytes_reed.sum",))
    with pytest.raises(UnknownNameError, match="dram__bytes_reed"):
        plan_ncu(request, FILES, chip="GH100")
    assert "dram__bytes_reed.sum" in str(plan_ncu(request, FILES).arguments)


def test_files_share_a_stem() -> None:
    assert export_arguments(CollectFiles.at(Path("a/x.ncu-rep")))[:2] == ("--import", "a/x.ncu-rep")
    assert CollectFiles.at(Path("a/x.ncu-rep")).table == Path("a/x.csv")
    assert FILES.description == Path("out/counters.json")


def test_sections_are_the_first_words_of_the_listing() -> None:
    listing = "Identifier  Name\n---\nOccupancy  Occupancy no\nSpeedOfLight GPU Speed\n"
    assert {"Occupancy", "SpeedOfLight"} <= sections_in(listing)
