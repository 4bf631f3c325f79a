from __future__ import annotations

import pytest

from gemmetry.hardware.memory import free_memory_bytes


def _meminfo(tmp_path, kib):
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {kib} kB\n")
    return path


def test_free_memory_is_mem_available_without_a_cgroup(tmp_path):
    free = free_memory_bytes(_meminfo(tmp_path, 5000), tmp_path / "none", tmp_path)
    assert free == 5000 * 1024


@pytest.mark.parametrize(
    ("line", "folder", "limit_file", "used_file"),
    [
        ("0::/job/step", "job", "memory.max", "memory.current"),
        ("4:cpu,memory:/job", "memory/job", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
)
def test_free_memory_obeys_the_cgroup_and_its_parents(
    tmp_path, line, folder, limit_file, used_file
):
    own = tmp_path / "cgroup"
    own.write_text(f"3:cpuset:/\n{line}\n")
    group = tmp_path / "fs" / folder
    group.mkdir(parents=True)
    (group / limit_file).write_text("1000000\n")
    (group / used_file).write_text("400000\n")
    meminfo = _meminfo(tmp_path, 5000)
    assert free_memory_bytes(meminfo, own, tmp_path / "fs") == 600000
    (group / limit_file).write_text("max\n")
    assert free_memory_bytes(meminfo, own, tmp_path / "fs") == 5000 * 1024


def test_a_cgroup_above_its_limit_leaves_nothing(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/\n")
    (tmp_path / "memory.max").write_text("10")
    (tmp_path / "memory.current").write_text("20")
    assert free_memory_bytes(_meminfo(tmp_path, 5000), own, tmp_path) == 0
