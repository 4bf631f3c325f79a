"""What each planted kernel computes, in NumPy, for the check of its output.

A formula returns the output's words at the indices `at`, for the input `given`, both as uint32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint32]
Formula: TypeAlias = Callable[["Work", Words, npt.NDArray[np.int64]], npt.NDArray[np.generic]]


_FACTOR, _ADDEND = 1664525, 1013904223


class Work:
    """How much a launch does: the kernel's parameters, and the constants of its source."""

    def __init__(self, threads: int, blocks: int, steps: int, size: int, *constants: int) -> None:
        self.threads, self.blocks, self.steps, self.size = threads, blocks, steps, size
        self.constants = constants


def word(values: npt.ArrayLike) -> Words:
    """`values` modulo 2^32."""
    return np.asarray(values, dtype=np.int64).astype(np.uint32)


def next_row(rows: int) -> Words:
    """A cycle through all rows (the generator's period is `rows`, a power of two), each number
    once for each of the 32 lanes."""
    numbers = np.arange(rows, dtype=np.uint32) * np.uint32(_FACTOR) + np.uint32(_ADDEND)
    return np.repeat(numbers % np.uint32(rows), 32)


def advanced(values: Words, steps: int) -> Words:
    """The generator ``next`` of ``kernels/common.cuh``, `steps` times."""
    factor, addend, mask = 1, 0, 2**32 - 1
    for _ in range(steps):
        factor, addend = factor * _FACTOR & mask, (addend * _FACTOR + _ADDEND) & mask
    return values * np.uint32(factor) + np.uint32(addend)


def bank_conflicts(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sum of the columns visited."""
    column = word(at % work.threads // 32)
    total = np.zeros_like(column)
    for _ in range(work.steps):
        column = given[column]
        total += column
    return total


def shared_memory(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sum of what the rows visited hold."""
    table = given.reshape(16, 32, 4)
    row, lane = at % work.threads // 32 % 16, at % 32
    total = np.zeros(len(at), dtype=np.uint32)
    for _ in range(work.steps):
        found = table[row, lane]
        row = found[:, 0].astype(np.int64)
        total += found[:, 1] ^ found[:, 2] ^ found[:, 3]
    return total


def uncoalesced(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sum of the words read; constant: bits of the rotation."""
    (bits,) = work.constants
    index = at << bits | at >> (work.size.bit_length() - 1 - bits)
    total = np.zeros(len(at), dtype=np.uint32)
    for step in range(work.steps):
        total += given[(index + step * 69632) & (work.size - 1)]
    return total


def occupancy_registers(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """A polynomial of the values kept; constant: how many."""
    (values,) = work.constants
    kept = [word(at % work.threads + value) for value in range(values)]
    row, lane = at // 32 * 37 % work.size, at % 32
    for _ in range(work.steps):
        for value in range(values):
            row = given[row * 32 + lane].astype(np.int64)
            kept[value] = kept[value] * np.uint32(3) + word(row)
    return polynomial(kept)


def polynomial(kept: Sequence[Words]) -> Words:
    """The values as digits of a number to the base 5."""
    total = np.zeros_like(kept[0])
    for value in kept:
        total = total * np.uint32(5) + value
    return total


def occupancy_shared(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sum of the words of shared memory visited; constant: how many are in use."""
    (words,) = work.constants
    row, lane = at // 32 * 37 % work.size, at % 32
    total = np.zeros(len(at), dtype=np.uint32)
    for _ in range(work.steps):
        row = given[row * 32 + lane].astype(np.int64)
        total += word((row * work.threads + at % work.threads) % words)
    return total


def barrier_imbalance(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """As many steps of the generator as the warp's share; constants: light and heavy steps."""
    light, heavy = work.constants
    own = at % work.threads
    result = np.empty(len(at), dtype=np.uint32)
    for warp in range(work.threads // 32):
        turns = len(range(warp, work.steps, 32))
        mine = own // 32 == warp
        count = turns * heavy + (work.steps - turns) * light
        result[mine] = advanced(given[own[mine]], count)
    return result


def local_memory(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """A polynomial of the values kept; constant: how many."""
    (values,) = work.constants
    kept = [given[value] + word(at % work.threads) for value in range(values)]
    for step in range(work.steps):
        kept = [value * given[0] + np.uint32(step) for value in kept]
    return polynomial(kept)


def mixed(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sums and a Gray code; constant: steps within one of the kernel's steps."""
    (inner,) = work.constants
    steps = work.steps * inner
    gray = word(at % work.threads)
    for _ in range(steps % 32):  # v ^ (v >> 1) of 32-bit words is the identity after 32 times
        gray = gray ^ gray >> np.uint32(1)
    return gray + np.uint32(0 + 1 + 2 + 3 + 4 * steps)


def fma(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sum of the chains, each of which counts its steps; constant: how many chains."""
    (chains,) = work.constants
    return word(chains * (at % work.threads + work.steps) + chains * (chains - 1) // 2)


def dram(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sum of four streams, advanced `steps` times."""
    streams = given.reshape(4, work.size)[:, at]
    return advanced(streams.sum(axis=0, dtype=np.uint32), work.steps)


def l2(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sum of what was read; constant: steps of the generator after each."""
    (inner,) = work.constants
    table = np.bitwise_xor.reduce(given.reshape(-1, 4), axis=1)
    total = np.zeros(len(at), dtype=np.uint32)
    for step in range(work.steps):
        total = advanced(total + table[(at + step * 9472) & (len(table) - 1)], inner)
    return total


def small_grid(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """The generator, from the input's first words."""
    return advanced(given[at % work.threads], work.steps)


def special_functions(
    work: Work, given: Words, at: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Chains of powers 2^-x end at the number that is its own power; constant: how many chains."""
    (chains,) = work.constants
    return np.full(len(at), chains * 0.641185744504986, np.float32)


def atomics(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """How often each value occurs."""
    return word(np.bincount(given, minlength=int(at[-1]) + 1))[at]


def naive_gemm(work: Work, given: Words, at: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """The product of two matrices of small integers."""
    a, b = given.view(np.float32).reshape(2, work.steps, work.steps)
    product: npt.NDArray[np.float32] = (a @ b).reshape(-1)[at]
    return product


def pointer_chase(work: Work, given: Words, at: npt.NDArray[np.int64]) -> Words:
    """Sum of the rows visited; constant: steps of the generator after each."""
    (inner,) = work.constants
    row, lane = at // 32 * 37 % work.size, at % 32
    total = np.zeros(len(at), dtype=np.uint32)
    for _ in range(work.steps):
        row = given[row * 32 + lane].astype(np.int64)
        total = advanced(total + word(row), inner)
    return total
