from __future__ import annotations

from pathlib import Path

import pytest


class HostTree:
    """A /proc and a /sys of an invented machine below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def cache(
        self, cpu: int, index: int, level: int, size: str, shared: str, kind: str = "Unified"
    ) -> None:
        folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
        for name, text in (("level", str(level)), ("size", size), ("type", kind)):
            self.write(f"{folder}/{name}", text)
        if shared:
            self.write(f"{folder}/shared_cpu_list", shared)

    def siblings(self, cpu: int, text: str) -> None:
        self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", text)


@pytest.fixture
def host_tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)
