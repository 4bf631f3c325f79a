"""The formulas against the kernels' text, written out step by step for single threads."""

from __future__ import annotations

import host_formulas as host
import numpy as np
from host_formulas import Work

WRAP = 2**32


def test_the_generator_is_applied_as_often_as_requested() -> None:
    value = 7
    for _ in range(1000):
        value = (value * 1664525 + 1013904223) % WRAP
    assert host.advanced(host.word([7]), 1000).tolist() == [value]
    assert host.advanced(host.word([7]), 0).tolist() == [7]


def test_rows_form_one_cycle() -> None:
    rows = host.next_row(64)
    visited, row = set(), 0
    while row not in visited:
        visited.add(row)
        assert len(set(rows[row * 32 : row * 32 + 32].tolist())) == 1
        row = int(rows[row * 32])
    assert len(visited) == 64


def test_uncoalesced_reads_each_word_once_a_step() -> None:
    given = np.arange(1024, dtype=np.uint32)
    found = host.uncoalesced(Work(256, 4, 1, 1024, 5), given, np.arange(1024))
    assert sorted(found.tolist()) == list(range(1024))
    assert found[:3].tolist() == [0, 32, 64]


def test_walks_follow_the_rows() -> None:
    given = host.next_row(16)
    thread, row, total = 70, 70 // 32 * 37 % 16, 0
    for _ in range(9):
        row = int(given[row * 32 + thread % 32])
        total += row
    found = host.pointer_chase(Work(128, 1, 9, 16, 0), given, np.array([thread]))
    assert found.tolist() == [total]


def test_the_warps_of_a_block_take_turns_with_the_heavy_steps() -> None:
    given, threads = np.arange(1, 1025, dtype=np.uint32), np.array([5, 40])
    found = host.barrier_imbalance(Work(1024, 1, 33, 0, 8, 64), given, threads)
    for one, thread, steps in zip(found, threads, (2 * 64 + 31 * 8, 64 + 32 * 8), strict=True):
        assert one == host.advanced(given[[thread]], steps)[0]


def test_a_gray_code_of_32_bits_repeats_after_32_steps() -> None:
    value = 1023
    for _ in range(70):
        value ^= value >> 1
    found = host.mixed(Work(1024, 1, 70, 0, 1), np.ones(1, np.uint32), np.array([1023]))
    assert found.tolist() == [value + 6 + 4 * 70]


def test_a_product_is_of_the_first_matrix_by_the_second() -> None:
    matrices = np.arange(8, dtype=np.float32)
    found = host.naive_gemm(Work(4, 1, 2, 0), matrices.view(np.uint32), np.arange(4))
    assert found.tolist() == [6, 7, 26, 31]
