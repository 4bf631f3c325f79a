"""Hardware counters of a GPU: what Nsight Compute collects is what the catalogue expects."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from gemmetry.counters.api import chip_here
from gemmetry.counters.catalogue import concepts, expression_on, reading_of, value_of
from gemmetry.counters.collector import collect, plan, read_counters
from gemmetry.counters.gates import diagnose
from gemmetry.counters.tools import CollectRequest
from gemmetry.counters.work import gemm_work
from gemmetry.dispatches.profile import profile
from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
from gemmetry.domain.errors import Outcome, RequestError
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.external import run_command
from gemmetry.formats.counters.launches import LaunchTable, ProfiledLaunch
from gemmetry.formats.counters.ncu_pages import read_ncu_csv
from gemmetry.hardware.doctor import find_profiler, is_restricted

pytestmark = pytest.mark.gpu

SIZE = 2048
PROGRAM = f"""
import torch
a = torch.randn({SIZE}, {SIZE}, device="cuda", dtype=torch.bfloat16)
b = torch.randn({SIZE}, {SIZE}, device="cuda", dtype=torch.bfloat16)
for _ in range(4):
    torch.cuda.nvtx.range_push("outer")
    c = a @ b
    torch.cuda.nvtx.range_pop()
    d = c + 1
torch.cuda.synchronize()
print("finished")
"""

MATMUL = "gemm|nvjet|xmma|cutlass"
"""In the names of cuBLAS' kernels."""


@pytest.fixture(autouse=True)
def _ncu(gpu: Target) -> None:
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip("the GPU is not NVIDIA's")
    if find_profiler("ncu") is None:
        pytest.skip("Nsight Compute is not installed")
    if is_restricted():
        pytest.skip("this user may not read hardware counters")


def collected(folder: Path, **settings: object) -> LaunchTable:
    request = CollectRequest(command=(sys.executable, "-c", PROGRAM), **settings)
    planned = plan(request, folder)
    found = collect(planned, run_command)
    assert "finished" in planned.files.application_log.read_text()
    table = read_ncu_csv(planned.files.table)
    assert table is not None and len(table) == found.launches
    return table


def assert_own_work(launches: Iterable[ProfiledLaunch], operation: str) -> None:
    """One launch does the whole product, padded to the kernel's tiles at most; others, such as a
    reduction, multiply nothing."""
    work = gemm_work(parse_operation(operation))
    checks = [diagnose(one, work).work_check[0] for one in launches]
    done = [one for one in checks if one.verdict != "skipped"]
    assert [one.verdict in ("ok", "padding") for one in done] == [True], done


def test_a_product_has_every_counter_of_the_gemm_set(tmp_path: Path) -> None:
    (launch,) = collected(tmp_path, kernel=MATMUL, launch_skip=1, launch_count=1)
    assert_own_work([launch], f"matmul_{SIZE}x{SIZE}x{SIZE}_bf16t_bf16t_bf16t")
    duration, clock = value_of(launch, "duration"), value_of(launch, "sm_clock")
    assert duration is not None and 1e3 < duration < 1e8
    assert clock is not None and 1e8 < clock < 3e9
    chip = chip_here()
    absent = [one.name for one in concepts()
              if expression_on(chip, one) and reading_of(launch, one) is None]  # fmt: skip
    assert absent == []
    record = json.loads((tmp_path / "counters.json").read_text())
    assert record["passes"] > 5 and record["clock_control"] == "none"


@pytest.mark.parametrize("metric_set", ["quick", "document", "full"])
def test_every_set_collects(tmp_path: Path, metric_set: str) -> None:
    (launch,) = collected(tmp_path, kernel=MATMUL, launch_count=1, metric_set=metric_set)
    assert value_of(launch, "compute_percent")


def test_launches_are_chosen_by_range_and_by_default_all_but_collectives(tmp_path: Path) -> None:
    in_range = collected(tmp_path / "range", nvtx=("outer",), metric_set="document")
    everything = collected(tmp_path / "all", metric_set="document")
    assert 4 <= len(in_range) < len(everything)
    assert not any("Elementwise" in launch.name for launch in in_range)


def test_a_name_that_matches_nothing_is_explained(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="no_such_kernel"):
        collected(tmp_path, kernel="no_such_kernel", metric_set="document")


@pytest.mark.parametrize("provider", ["torch", "triton"])
def test_counters_of_a_profiles_dispatches_are_of_its_own_kernels(
    tmp_path: Path, provider: str
) -> None:
    profile(
        shapes=f"{SIZE}x{SIZE}x{SIZE}", dtypes="bf16", providers=provider, device="cuda",
        default_config=True, counters="gemm", experiment=tmp_path,
    )  # fmt: skip
    with Experiment.open(tmp_path) as stored:
        (record,) = stored.records()
    assert record.outcome is Outcome.OK and record.counters is not None
    assert record.counters.verdict and record.counters.summary
    table = read_ncu_csv(tmp_path / record.counters.folder / "counters.csv")
    assert table is not None and len(table) == record.counters.launches
    # The product, and at most what belongs to it, such as a reduction: no inputs, no warm-up.
    assert len(table) <= 2
    assert_own_work(table, record.operation)


def test_dispatches_that_share_a_process_have_the_counters_of_their_own_kernels(
    tmp_path: Path,
) -> None:
    sizes = (512, 1024, 2048)
    profile(
        shapes=",".join(f"{n}x{n}x{n}" for n in sizes), dtypes="bf16", providers="torch,triton",
        device="cuda", default_config=True, counters="gemm", experiment=tmp_path,
    )  # fmt: skip
    with Experiment.open(tmp_path) as stored:
        records = list(stored.records())
    assert len(records) == 2 * len(sizes)
    reports = set()
    for record in records:
        assert record.counters is not None, record.dispatch
        folder = tmp_path / record.counters.folder
        assert_own_work(read_counters(folder / "counters.csv"), record.operation)
        reports.add((folder / "counters.ncu-rep").stat().st_ino)
    # One process, and so one report, for each of the two providers.
    assert len(reports) == 2


def test_elements_of_blocks_that_are_widened_are_the_work_described(tmp_path: Path) -> None:
    profile(
        shapes="2048x2048x1024", dtypes="e2m1:e2m1:f16", scaling="vs16_e8m0", providers="triton",
        device="cuda", default_config=True, counters="gemm", experiment=tmp_path,
    )  # fmt: skip
    with Experiment.open(tmp_path) as stored:
        (record,) = stored.records()
    assert record.counters is not None and record.counters.verdict != "work_mismatch"
    (launch,) = read_counters(tmp_path / record.counters.folder / "counters.csv")
    checks = diagnose(launch, gemm_work(parse_operation(record.operation))).work_check
    assert checks[0].verdict == "ok" and "widened" in checks[0].reason
