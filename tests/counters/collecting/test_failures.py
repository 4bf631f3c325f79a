from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmetry.counters.tools import CollectFiles, CollectRequest, ProfilerEnd, failure_of
from gemmetry.domain.errors import EnvironmentFailure, RequestError, StorageError
from gemmetry.hardware.doctor import Profiler


def attempt(
    folder: Path,
    *,
    log: str = "",
    output: str = "",
    status: int = 1,
    result: bool = False,
    version: str = "2025.3.1",
    tool: str = "ncu",
    **settings,
) -> ProfilerEnd:
    files = CollectFiles.at(folder)
    files.profiler_log.write_text(log)
    files.application_log.write_text(output)
    return ProfilerEnd(
        request=CollectRequest(command=("app",), **settings), files=files,
        profiler=Profiler(tool, "/bin/ncu", version), architecture="sm_90", status=status,
        has_result=result, root=folder,
    )  # fmt: skip


def restrict(root: Path, *, capabilities: str = "0000000000000000") -> None:
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "proc/self").mkdir()
    (root / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 1\n")
    (root / "proc/self/status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")


def test_a_report_and_status_0_are_a_success(tmp_path) -> None:
    assert failure_of(attempt(tmp_path, status=0, result=True)) is None


def test_permission_is_recognised_by_the_driver_whatever_the_wording(tmp_path) -> None:
    restrict(tmp_path)
    found = failure_of(attempt(tmp_path, log="etwas anderes"))
    assert isinstance(found, EnvironmentFailure)
    assert "ERR_NVGPUCTRPERM" in found.message and "SYS_ADMIN" in found.hint


def test_permission_is_recognised_by_the_wording_where_the_driver_is_silent(tmp_path, ncu) -> None:
    found = failure_of(attempt(tmp_path, log=ncu.TEXTS["permission"]))
    assert found is not None and "ERR_NVGPUCTRPERM" in found.message


def test_with_the_capability_another_failure_is_not_a_lack_of_permission(tmp_path) -> None:
    restrict(tmp_path, capabilities="0000000000200000")
    found = failure_of(attempt(tmp_path, output="ValueError: bad shape"))
    assert found is not None
    assert "the command ended with status 1: ValueError: bad shape" in found.message


def test_counters_in_use_name_the_other_profiler(tmp_path, ncu) -> None:
    (tmp_path / "proc/77").mkdir(parents=True)
    (tmp_path / "proc/77/comm").write_text("nv-hostengine\n")
    found = failure_of(attempt(tmp_path, log=ncu.TEXTS["busy"]))
    assert found is not None
    assert found.message == "the hardware counters of the GPU are in use by nv-hostengine"
    assert "dcgmi profiling --pause" in found.hint


def test_an_old_version_is_named_with_the_one_that_is_needed(tmp_path) -> None:
    found = failure_of(attempt(tmp_path, log="==ERROR== whatever", version="2021.3.0"))
    assert found is not None
    assert "2021.3.0 cannot profile sm_90" in found.message and "2022.3" in found.hint


@pytest.mark.parametrize("status", [0, 1])
def test_no_kernel_matched_lists_the_names_that_were_launched(tmp_path, status, ncu) -> None:
    found = failure_of(
        attempt(tmp_path, log=ncu.TEXTS["nothing"], status=status, kernel="gemmm")
    )  # fmt: skip
    assert isinstance(found, RequestError)
    assert "'gemmm'" in found.message
    assert "elementwise_kernel, cutlass_80_tensorop_gemm." in found.hint


def test_no_report_after_success_means_that_nothing_matched_whatever_the_wording(tmp_path) -> None:
    found = failure_of(attempt(tmp_path, log="rien", status=0, nvtx=("step",)))
    assert isinstance(found, RequestError)
    assert "NVTX range 'step'" in found.message and "'name/'" in found.hint
    plain = failure_of(attempt(tmp_path, status=0))
    assert plain is not None and "anything on the GPU" in plain.hint


def test_a_failed_application_is_not_blamed_on_the_profiler(tmp_path) -> None:
    log = "==ERROR== The application returned an error code (3)."
    found = failure_of(attempt(tmp_path, log=log, output="KeyError: 'w'", status=3))
    assert found is not None
    assert found.message == "the command ended with status 3: KeyError: 'w'"
    assert "counters.application.log" in found.hint


def test_a_crash_before_the_first_kernel_is_the_cause_of_no_kernel(tmp_path, ncu) -> None:
    output = "Traceback (most recent call last):\nKeyError: 'w'\nbye"
    found = failure_of(attempt(tmp_path, log=ncu.TEXTS["nothing"], output=output))
    assert found is not None and found.message == "the command ended with status 1: KeyError: 'w'"


@pytest.mark.parametrize("output", ["DCGM is great", "fp4 is not supported", "No space left"])
def test_the_applications_output_is_not_taken_for_the_profilers(tmp_path, output) -> None:
    found = failure_of(attempt(tmp_path, output=output))
    assert found is not None and found.message == f"the command ended with status 1: {output}"
    marked = failure_of(attempt(tmp_path, output="==ERROR== ERR_NVGPUCTRPERM"))
    assert marked is not None and "may not read the hardware counters" in marked.message


def test_an_error_of_the_profiler_is_its_own(tmp_path, ncu) -> None:
    found = failure_of(attempt(tmp_path, log=ncu.TEXTS["error"], output="fine"))
    assert found is not None
    assert found.message.startswith("ncu ended with status 1: An error occurred")


def test_a_full_disk_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    found = failure_of(attempt(tmp_path, status=0))
    assert isinstance(found, StorageError) and "is full" in found.message


def test_on_amd_the_device_must_be_open_to_the_user(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "gemmetry.counters.tools.can_use_kfd", lambda root: False
    )  # fmt: skip
    found = failure_of(attempt(tmp_path, tool="rocprofv3"))
    assert found is not None and "/dev/kfd" in found.message
