from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from tests.hardware.conftest import may_run_on

from gemmetry.hardware import host
from gemmetry.hardware.host import (
    FALLBACK_CACHE_BYTES,
    FALLBACK_MEMORY_BYTES,
    core_of,
    free_memory_bytes,
    free_memory_bytes_lately,
    last_level_cache_bytes,
    last_level_caches,
    oom_kills,
    physical_cores,
    read_text,
    resident_bytes,
    total_memory_bytes,
    usable_cores,
    usable_cpus,
)

MIB = 2**20
TOTAL_KIB, AVAILABLE_KIB = 24684092, 5000
V1_NO_LIMIT = "9223372036854771712"


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch):
    may_run_on(monkeypatch, range(8))


def _meminfo(tree):
    tree.write("proc/meminfo", f"MemTotal: {TOTAL_KIB} kB\nMemAvailable:   {AVAILABLE_KIB} kB")


def test_processors_are_those_of_the_affinity_or_all(tmp_path, monkeypatch):
    may_run_on(monkeypatch, {7, 3})
    assert usable_cpus() == [3, 7]
    assert usable_cores(tmp_path) == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cpus() == [0, 1, 2]
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores(tmp_path) == 1


@pytest.mark.parametrize(("own", "files", "expected"), [
    ("0::/box/job", {"box/job/cpu.max": "200000 100000"}, 2),
    ("0::/box/job", {"box/job/cpu.max": "max 100000", "box/cpu.max": "250000 100000"}, 3),
    ("0::/box/job", {"box/job/cpu.max": "1000 100000"}, 1),
    ("0::/box/job", {"box/job/cpu.max": "9900000 100000"}, 8),
    ("0::/of/the/host", {"cpu.max": "400000 100000"}, 4),  # as a container sees its own group
    ("0::/../other", {"other/cpu.max": "300000 100000"}, 3),
    ("0::/job", {"unified/job/cpu.max": "500000 100000"}, 5),
    ("3:cpu,cpuacct:/j", {"cpu/j/cpu.cfs_quota_us": "-1", "cpu/j/cpu.cfs_period_us": "100000"}, 8),
    ("3:cpu,cpuacct:/j", {"cpu/j/cpu.cfs_quota_us": "150000", "cpu/j/cpu.cfs_period_us": "50000"},
     3),
    ("3:cpu,cpuacct:/j",
     {"cpu,cpuacct/cpu.cfs_quota_us": "50000", "cpu,cpuacct/cpu.cfs_period_us": "50000"}, 1),
    ("3:cpuset:/j", {"cpu/j/cpu.cfs_quota_us": "1", "cpu/j/cpu.cfs_period_us": "1"}, 8),
    ("0::/job", {"job/cpu.max": "what 0"}, 8),
    ("0::/job", {"job/cpu.max": "100000 0"}, 8),
    ("", {"cpu.max": "100000 100000"}, 8),
])  # fmt: skip
def test_a_control_group_that_grants_less_time_counts(host_tree, own, files, expected):
    host_tree.write("proc/self/cgroup", f"5:blkio:/\n{own}")
    for path, text in files.items():
        host_tree.write(f"sys/fs/cgroup/{path}", text)
    assert usable_cores(host_tree.root) == expected


def test_threads_of_one_core_are_one_core(host_tree, monkeypatch):
    assert physical_cores(host_tree.root) == 8
    assert core_of(5, host_tree.root) == "5"
    for cpu in range(4):  # two cores of two threads, then four of one: a hybrid processor
        host_tree.siblings(cpu, "0-1" if cpu < 2 else "2-3")
    for cpu in range(4, 8):
        host_tree.siblings(cpu, str(cpu))
    assert physical_cores(host_tree.root) == 6
    assert core_of(1, host_tree.root) == core_of(0, host_tree.root) == "0-1"
    may_run_on(monkeypatch, {1, 2, 3, 7})
    assert physical_cores(host_tree.root) == 3
    host_tree.write("proc/self/cgroup", "0::/")
    host_tree.write("sys/fs/cgroup/cpu.max", "200000 100000")
    assert physical_cores(host_tree.root) == 2, "the time of two spread over three"


def test_every_distinct_last_cache_counts(host_tree, monkeypatch):
    for cpu in range(8):  # one chiplet with stacked cache, one without
        host_tree.cache(cpu, 0, 1, "48K", str(cpu), "Data")
        host_tree.cache(cpu, 1, 1, "64K", str(cpu), "Instruction")
        host_tree.cache(cpu, 2, 2, "1024K", str(cpu))
        host_tree.cache(cpu, 3, 3, "96M" if cpu < 4 else "32768K", "0-3" if cpu < 4 else "4-7")
    assert sorted(last_level_caches(host_tree.root)) == [32 * MIB, 96 * MIB]
    assert last_level_cache_bytes(host_tree.root) == 128 * MIB
    # They are read once.
    monkeypatch.setattr(host, "read_text", lambda path: pytest.fail(f"{path} is read again"))
    assert sum(last_level_caches(host_tree.root)) == 128 * MIB
    monkeypatch.setattr(host, "read_text", read_text)
    may_run_on(monkeypatch, {5, 6})
    assert last_level_caches(host_tree.root) == (32 * MIB,)


def test_cores_without_a_third_cache_end_at_their_second(host_tree):
    assert last_level_caches(host_tree.root / "none") == ()
    assert last_level_cache_bytes(host_tree.root / "none") == FALLBACK_CACHE_BYTES
    for cpu in range(8):
        host_tree.cache(cpu, 2, 2, "2M", str(cpu) if cpu < 4 else "4-7")
        if cpu < 4:
            host_tree.cache(cpu, 3, 3, "24M", "0-3")
    assert sorted(last_level_caches(host_tree.root)) == [2 * MIB, 24 * MIB]


def test_a_cache_nobody_is_named_to_share_counts_once(host_tree):
    for cpu in range(8):
        host_tree.cache(cpu, 3, 3, "16M", "")
    assert last_level_caches(host_tree.root) == (16 * MIB,)


@pytest.mark.parametrize(("level", "size"), [("3", "bad"), ("", "16M"), ("3", "0K"), ("3", "")])
def test_a_file_that_makes_no_sense_is_left_out(host_tree, level, size):
    host_tree.cache(0, 1, 2, "1M", "0")
    host_tree.cache(0, 2, 3, size, "0-7")
    host_tree.write("sys/devices/system/cpu/cpu0/cache/index2/level", level)
    assert last_level_caches(host_tree.root) == (MIB,)


@pytest.mark.parametrize(("own", "file", "limit", "expected"), [
    ("0::/box", "box/memory.max", "max", TOTAL_KIB * 1024),
    ("0::/box/job", "box/memory.max", "1073741824", 2**30),
    ("0::/of/the/host", "memory.max", "1073741824", 2**30),
    ("4:memory:/j", "memory/j/memory.limit_in_bytes", "2147483648", 2**31),
    ("4:memory:/of/the/host", "memory/memory.limit_in_bytes", "2147483648", 2**31),
    ("4:memory:/j", "memory/j/memory.limit_in_bytes", V1_NO_LIMIT, TOTAL_KIB * 1024),
    ("", "other", "1", TOTAL_KIB * 1024),
])  # fmt: skip
def test_memory_is_limited_by_the_control_group(host_tree, own, file, limit, expected):
    _meminfo(host_tree)
    host_tree.write("proc/self/cgroup", own)
    host_tree.write(f"sys/fs/cgroup/{file}", limit)
    assert total_memory_bytes(host_tree.root) == expected


@pytest.mark.parametrize(("line", "folder", "limit_file", "used_file", "droppable", "no_limit"), [
    ("0::/job/step", "job", "memory.max", "memory.current", "inactive_file", "max"),
    ("4:cpu,memory:/job", "memory/job", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file", V1_NO_LIMIT),
])  # fmt: skip
def test_free_memory_obeys_the_group_and_those_above(
    host_tree, line, folder, limit_file, used_file, droppable, no_limit
):
    _meminfo(host_tree)
    host_tree.write("proc/self/cgroup", f"3:cpuset:/\n{line}")
    group = f"sys/fs/cgroup/{folder}"
    assert free_memory_bytes(host_tree.root) == AVAILABLE_KIB * 1024
    host_tree.write(f"{group}/{limit_file}", "1000000")
    host_tree.write(f"{group}/{used_file}", "400000")
    assert free_memory_bytes(host_tree.root) == 600000
    host_tree.write(f"{group}/memory.stat", f"anon 7\n{droppable} 100000\nother 3")
    assert free_memory_bytes(host_tree.root) == 700000, "what files left behind can be dropped"
    host_tree.write(f"{group}/{limit_file}", "10")
    assert free_memory_bytes(host_tree.root) == 0
    host_tree.write(f"{group}/{limit_file}", no_limit)
    assert free_memory_bytes(host_tree.root) == AVAILABLE_KIB * 1024


def test_without_procfs_physical_memory_counts_and_half_of_it_as_free(tmp_path, monkeypatch):
    sizes = {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert total_memory_bytes(tmp_path) == 4096000
    assert free_memory_bytes(tmp_path) == 2048000

    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)
    assert total_memory_bytes(tmp_path) == 0
    assert free_memory_bytes(tmp_path) == FALLBACK_MEMORY_BYTES


def test_kills_for_want_of_memory_are_counted(host_tree):
    assert oom_kills(host_tree.root) == 0
    host_tree.write("proc/vmstat", "pgfault 9\noom_kill 12\nswap_ra 3")
    assert oom_kills(host_tree.root) == 12


def test_an_answer_of_lately_is_given_again(monkeypatch):
    now_s, answers = [1000.0], iter([7, 8])
    monkeypatch.setattr(host, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(host, "free_memory_bytes", lambda: next(answers))
    host._free_memory_in.cache_clear()
    assert [free_memory_bytes_lately() for _ in range(3)] == [7, 7, 7]
    now_s[0] += 1.5 * host.LATELY_S
    assert free_memory_bytes_lately() == 8
    host._free_memory_in.cache_clear()


def test_a_process_that_is_gone_holds_nothing(host_tree):
    host_tree.write("proc/7/statm", "100 25 3 1 0 4 0")
    assert resident_bytes(7, host_tree.root) == 25 * os.sysconf("SC_PAGE_SIZE")
    assert resident_bytes(8, host_tree.root) == 0


def test_the_real_machine_gives_plausible_numbers(monkeypatch):
    monkeypatch.undo()
    assert 1 <= physical_cores() <= usable_cores() <= len(usable_cpus())
    assert last_level_cache_bytes() >= 2**15
    assert 2**20 < free_memory_bytes() < 2**50
    assert resident_bytes(os.getpid()) >= 0
