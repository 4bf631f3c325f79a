from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmetry.hardware.pinning import choose_processors, format_processors, pin_process


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Four cores of two threads: 0 and 4, 1 and 5, ..."""
    for processor in range(8):
        topology = tmp_path / f"cpu{processor}" / "topology"
        topology.mkdir(parents=True)
        core = processor % 4
        (topology / "thread_siblings_list").write_text(f"{core},{core + 4}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("threads", "usable", "expected"),
    [
        (4, range(8), (0, 1, 2, 3)),
        (5, range(8), (0, 1, 2, 3, 4)),
        (2, (0, 4, 1), (0, 1)),
        (0, range(8), tuple(range(8))),
        (99, (3, 7), (3, 7)),
    ],
)
def test_each_core_gets_a_thread_before_one_gets_two(sysfs, threads, usable, expected) -> None:
    assert choose_processors(threads, usable, sysfs) == expected


def test_unknown_cores_count_one_each(tmp_path: Path) -> None:
    assert choose_processors(2, (3, 5, 9), tmp_path) == (3, 5)


def test_every_thread_is_held_to_them(sysfs, tmp_path: Path, monkeypatch) -> None:
    held = {}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _task: set(range(8)), raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", held.__setitem__, raising=False)
    tasks = tmp_path / "tasks"
    for name in ("12", "13"):
        (tasks / name).mkdir(parents=True)
    assert pin_process(2, sysfs, tasks) == (0, 1)
    assert held == {12: (0, 1), 13: (0, 1)}


def test_a_thread_that_ended_is_no_error(sysfs, tmp_path: Path, monkeypatch) -> None:
    def gone(_task, _processors) -> None:
        raise ProcessLookupError

    monkeypatch.setattr(os, "sched_getaffinity", lambda _task: {0}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", gone, raising=False)
    assert pin_process(1, sysfs, tmp_path / "none") == (0,)


@pytest.mark.parametrize(
    ("processors", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 8), "0-2,8"), ((5, 4, 7), "4-5,7")]
)
def test_lists_as_linux_writes_them(processors, text: str) -> None:
    assert format_processors(processors) == text
