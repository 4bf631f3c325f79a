from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.hardware.doctor import (
    find_profiler,
    is_restricted,
    running_profilers,
    too_old,
    tool_path,
)


def test_a_profiler_is_found_on_path_with_its_version(tmp_path, ncu):
    program = ncu.install(tmp_path)
    found = find_profiler("ncu", which=lambda name: str(program))
    assert found is not None and (found.path, found.version) == (str(program), "2025.3.1.0")


def test_the_newest_installation_is_used_where_none_is_on_path(tmp_path, ncu):
    for version in ("2024.3.2", "2025.10.0", "2025.3.1"):
        ncu.install(tmp_path / "opt/nvidia/nsight-compute" / version)
    found = tool_path("ncu", which=lambda name: None, root=tmp_path)
    assert found is not None and Path(found).parent.name == "2025.10.0"
    assert find_profiler("rocprofv3", which=lambda name: None, root=tmp_path) is None


@pytest.mark.parametrize(
    ("parameter", "capabilities", "restricted"),
    [
        ("RmProfilingAdminOnly: 1", "0", True),
        ("RmProfilingAdminOnly: 0", "0", False),
        ("RmProfilingAdminOnly: 1", "0000000000200000", False),
        ("RmProfilingAdminOnly: 1", "0000004000000000", False),
        ("Other: 1", "0", None),
    ],
)
def test_whether_counters_may_be_read(tmp_path, parameter, capabilities, restricted):
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/driver/nvidia/params").write_text(f"{parameter}\n")
    (tmp_path / "proc/self/status").write_text(f"CapEff:\t{capabilities}\n")
    assert is_restricted(tmp_path) is restricted


def test_without_a_driver_it_is_unknown(tmp_path):
    assert is_restricted(tmp_path) is None


def test_other_profilers_are_found_among_the_processes(tmp_path):
    for pid, name in (("1", "init"), ("20", "nv-hostengine"), ("21", "nsys")):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "comm").write_text(f"{name}\n")
    assert running_profilers(tmp_path) == ["nsys", "nv-hostengine"]


def test_versions_that_are_too_old_for_a_gpu():
    assert too_old("2022.1.0", "sm_90") == "2022.3"
    assert too_old("2025.3.1", "sm_100") == ""
    assert too_old("2024.3", "sm_120") == "2025.1"
    assert too_old("", "sm_90") == too_old("2020.1", "sm_75") == ""
