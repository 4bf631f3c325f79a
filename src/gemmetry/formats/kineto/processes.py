"""Distinguishes the processes whose events are in one Kineto file, such as the ranks of a job that
were merged.

Every process counts correlations and external ids from the same small numbers, so a kernel of one
process must not be linked to a launch of another. Merged files label their processes: SGLang writes
``[TP01] 9000`` as the process of rank 1, and ``[TP01] 1`` as that of its GPU 1. Where there are no
labels, the numbers that only one process used show which process each GPU worked for.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import numpy as np

from gemmetry.formats.events import MISSING, CallRows, GpuRows, Int64, OperatorRows, TracePart
from gemmetry.formats.spool import Spool


def _whole(pid: str) -> str:
    return pid


def _before(pid: str) -> str:
    found = re.fullmatch(r"(.*\D)\d+", pid)
    return found[1] if found else ""


def _after(pid: str) -> str:
    found = re.fullmatch(r"\d+(\D.*)", pid)
    return found[1] if found else ""


def with_parts(
    gpu: GpuRows,
    lanes: Sequence[str],
    threads: Sequence[tuple[str, str]],
    calls: Spool[CallRows],
    operators: Spool[OperatorRows],
) -> tuple[GpuRows, tuple[TracePart, ...]]:
    """`gpu` with its column ``part``, and the parts; () where the file has one process, or several
    that cannot be distinguished.

    Args:
        gpu: rows whose ``part`` is the index of their process in `lanes`.
        lanes: processes of rows on GPUs, as the file writes them.
        threads: process and thread of the host, and of annotations on GPUs.
        calls, operators: rows on the host.
    """
    alone = np.zeros(len(gpu.start_ns), np.int16)
    processes = {pid for pid, _ in threads}
    if all(pid.isdecimal() for pid in processes.union(lanes)) and len(processes - {*lanes}) < 2:
        return dataclasses.replace(gpu, part=alone), ()
    columns = [rows.thread for rows in calls.pieces()]
    columns += [rows.thread for rows in operators.pieces()]
    used = {thread for column in columns for thread in np.unique(column).tolist()}
    hosts = sorted({threads[thread][0] for thread in used})
    for label in (_before, _after, _whole):
        if _fits(label, lanes, hosts):
            names = sorted({label(pid) for pid in (*lanes, *hosts)})
            part = np.array([names.index(label(pid)) for pid in lanes], np.int16)[gpu.part]
            of_thread = [label(pid) for pid, _ in threads]
            return dataclasses.replace(gpu, part=part), _parts(names, of_thread)
    of_row = _by_numbers(gpu, hosts, threads, calls) if len(hosts) > 1 else None
    if of_row is None:
        return dataclasses.replace(gpu, part=alone), ()
    part = of_row.astype(np.int16)
    return dataclasses.replace(gpu, part=part), tuple(
        TracePart(f"process {pid}", None, _indices([pid for pid, _ in threads], pid))
        for pid in hosts
    )


def _fits(label: Callable[[str], str], lanes: Sequence[str], hosts: Sequence[str]) -> bool:
    """Whether `label` distinguishes at least two processes, and assigns each GPU to one of them."""
    on_gpu, on_host = {label(pid) for pid in lanes}, {label(pid) for pid in hosts}
    if len(on_gpu | on_host) < 2 or "" in on_gpu | on_host:
        return False
    if not hosts:
        return label is not _whole
    return on_gpu <= on_host


def _parts(names: Sequence[str], of_thread: Sequence[str]) -> tuple[TracePart, ...]:
    """The parts that labels name; their ranks are the numbers in the labels or, where these have
    several (``TP00-DP01``) or do not differ, the places in their order."""
    numbers = [re.findall(r"\d+", name) for name in names]
    ranks = [int(found[0]) if len(found) == 1 else MISSING for found in numbers]
    if not all(numbers):
        return tuple(TracePart(_plain(name), None, _indices(of_thread, name)) for name in names)
    if MISSING in ranks or len(set(ranks)) < len(ranks):
        ranks = list(range(len(names)))
    return tuple(
        TracePart(_plain(name), rank, _indices(of_thread, name))
        for name, rank in zip(names, ranks, strict=True)
    )


def _plain(label: str) -> str:
    return label.strip(" \t[]()_-:/.,")


def _indices(of_thread: Sequence[str], name: str) -> tuple[int, ...]:
    return tuple(index for index, one in enumerate(of_thread) if one == name)


def _by_numbers(
    gpu: GpuRows,
    hosts: Sequence[str],
    threads: Sequence[tuple[str, str]],
    calls: Spool[CallRows],
) -> Int64 | None:
    """The process of each row: the only one that used its correlation number, else the only one for
    which the row's GPU worked; None where a row's is not certain."""
    of_thread = np.array([hosts.index(p) if p in hosts else MISSING for p, _ in threads], np.int64)
    pairs = [np.column_stack([rows.correlation, of_thread[rows.thread]]) for rows in calls.pieces()]
    used = np.unique(np.concatenate([np.zeros((0, 2), np.int64), *pairs]), axis=0)
    used = used[used[:, 0] > 0]
    numbers, first, count = np.unique(used[:, 0], return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(numbers, gpu.correlation), max(len(numbers) - 1, 0))
    result = np.full(len(gpu.start_ns), MISSING, np.int64)
    if len(numbers):
        certain = (numbers[place] == gpu.correlation) & (count[place] == 1)
        result[certain] = used[first[place[certain]], 1]
    for lane in np.unique(gpu.part).tolist():
        rows = gpu.part == lane
        found = np.unique(result[rows & (result != MISSING)])
        if len(found) == 1:
            result[rows] = found[0]
    return None if (result == MISSING).any() else result
