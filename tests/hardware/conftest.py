from __future__ import annotations

import os

import pytest


class HostTree:
    """A /proc and a /sys of an invented machine below `root`."""

    def __init__(self, root):
        self.root = root

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def cache(self, cpu, index, level, size, shared, kind="Unified"):
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        for name, text in (("level", str(level)), ("size", size), ("type", kind)):
            self.write(f"{folder}/{name}", text)
        if shared:
            self.write(f"{folder}/shared_cpu_list", shared)

    def siblings(self, cpu, text):
        self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", text)


def may_run_on(monkeypatch, cpus):
    """Restrict this process to `cpus`, as it seems."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(cpus), raising=False)


@pytest.fixture
def host_tree(tmp_path):
    return HostTree(tmp_path)
