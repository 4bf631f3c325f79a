"""Kernels with one known bottleneck each, in a mild and a severe variant: how they are launched.

Why the bottleneck is what limits the severe variant on an H200 is worked out at the top of each
source, ``kernels/<name>.cu``. What the counters should show then: ``predicted_counters.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import host_formulas as host
import numpy as np
from host_formulas import Formula, Words, Work

SOURCES = Path(__file__).parent / "kernels"
VARIANTS = ("mild", "severe")

Blocks = Callable[[int, int], int]
"""How many blocks, from the multiprocessors and the blocks that each runs at a time."""


def waves(count: float, more: int = 0) -> Blocks:
    """`count` times what the GPU runs at a time, and `more`."""
    return lambda processors, each: round(count * processors * each) + more


def fixed(blocks: int) -> Blocks:
    """The same number on every GPU."""
    return lambda processors, each: blocks


def one_each(processors: int, each: int) -> int:
    """One on each multiprocessor."""
    return processors


@dataclass(frozen=True, slots=True)
class Launch:
    """One variant.

    Attributes:
        threads: of a block.
        blocks: of the grid.
        steps: the kernel's parameter.
        size: the kernel's parameter.
        dynamic_bytes: of shared memory for each block.
        constants: of the source, which the host's formula needs.
    """

    threads: int
    blocks: Blocks
    steps: int
    size: int = 0
    dynamic_bytes: int = 0
    constants: tuple[int, ...] = ()

    def work(self, blocks: int) -> Work:
        """What the launch does with this many blocks."""
        return Work(self.threads, blocks, self.steps, self.size, *self.constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One kernel.

    Attributes:
        cause: id of the finding that must come first for the severe variant.
        given: makes the input of a variant.
        formula: what the output must be.
        words: of the output; None: one for each thread.
        tolerance: relative, for kernels whose arithmetic is not exact.
    """

    name: str
    cause: str
    given: Callable[[str], Words]
    formula: Formula
    mild: Launch
    severe: Launch
    words: int | None = None
    tolerance: float = 0.0

    def launch(self, variant: str) -> Launch:
        """The mild or the severe one."""
        return self.severe if variant == "severe" else self.mild


def _always(make: Callable[[], Words]) -> Callable[[str], Words]:
    return lambda variant: make()


def _counting(words: int) -> Callable[[str], Words]:
    """Different words (multiples of an odd number, 2^32 over the golden ratio)."""
    return _always(lambda: np.arange(1, words + 1, dtype=np.uint32) * np.uint32(2654435761))


def _rows(rows: int) -> Callable[[str], Words]:
    return _always(partial(host.next_row, rows))


ONE = _always(lambda: np.ones(1, dtype=np.float32).view(np.uint32))


def _columns() -> Words:
    return host.word((np.arange(64) * 5 + 3) % 32)


def _shared_rows() -> Words:
    table = np.arange(16 * 32 * 4, dtype=np.uint32).reshape(16, 32, 4) * np.uint32(2654435761)
    table[:, :, 0] = host.next_row(16).reshape(16, 32)
    return table.reshape(-1)


def _values(variant: str) -> Words:
    count = np.arange(1 << 22, dtype=np.uint32)
    return count * 0 if variant == "severe" else count * np.uint32(2654435761) >> np.uint32(20)


def _matrices() -> Words:
    return (
        (np.arange(2 << 20, dtype=np.uint32) * np.uint32(7) % np.uint32(5))
        .astype(np.float32)
        .view(np.uint32)
    )


_KIB = 1024
_DRAM_WORDS, _L2_WORDS, _L2_ROWS, _DRAM_ROWS = 1 << 24, 1 << 21, 1 << 15, 1 << 21

KERNELS = (
    Planted(
        name="bank_conflicts",
        cause="shared_bank_conflicts",
        given=_always(_columns),
        formula=host.bank_conflicts,
        mild=Launch(256, waves(1), 2048),
        severe=Launch(256, waves(1), 128),
    ),
    Planted(
        name="shared_memory",
        cause="shared_memory_roof",
        given=_always(_shared_rows),
        formula=host.shared_memory,
        mild=Launch(128, one_each, 4096),
        severe=Launch(256, waves(1), 1024),
    ),
    Planted(
        name="uncoalesced",
        cause="uncoalesced_access",
        given=_counting(1 << 22),
        formula=host.uncoalesced,
        mild=Launch(256, fixed(16384), 24, 1 << 22, constants=(1,)),
        severe=Launch(256, fixed(16384), 8, 1 << 22, constants=(5,)),
    ),
    Planted(
        name="occupancy_registers",
        cause="occupancy_registers",
        given=_rows(_L2_ROWS),
        formula=host.occupancy_registers,
        mild=Launch(128, waves(2), 4, _L2_ROWS, constants=(80,)),
        severe=Launch(128, waves(2), 2, _L2_ROWS, constants=(192,)),
    ),
    Planted(
        name="occupancy_shared",
        cause="occupancy_shared_memory",
        given=_rows(_L2_ROWS),
        formula=host.occupancy_shared,
        mild=Launch(128, waves(2), 400, _L2_ROWS, 52 * _KIB, (8 * _KIB,)),
        severe=Launch(128, waves(2), 400, _L2_ROWS, 200 * _KIB, (32 * _KIB,)),
    ),
    Planted(
        name="barrier_imbalance",
        cause="latency_barrier",
        given=_counting(1024),
        formula=host.barrier_imbalance,
        mild=Launch(1024, waves(1), 128, constants=(32, 128)),
        severe=Launch(1024, waves(1), 128, constants=(8, 512)),
    ),
    Planted(
        name="local_memory",
        cause="local_memory",
        given=_counting(128),
        formula=host.local_memory,
        mild=Launch(1024, waves(1), 256, constants=(64,)),
        severe=Launch(1024, waves(1), 128, constants=(76,)),
    ),
    Planted(
        name="divergence",
        cause="divergence",
        given=ONE,
        formula=host.mixed,
        mild=Launch(256, waves(1), 32, constants=(32,)),
        severe=Launch(256, waves(1), 2, constants=(32,)),
    ),
    Planted(
        name="instruction_issue",
        cause="instruction_issue",
        given=ONE,
        formula=host.mixed,
        mild=Launch(128, one_each, 16384, constants=(1,)),
        severe=Launch(256, waves(1), 2560, constants=(1,)),
    ),
    Planted(
        name="fma",
        cause="fma_roof",
        given=ONE,
        formula=host.fma,
        mild=Launch(384, one_each, 40960, constants=(1,)),
        severe=Launch(256, waves(1), 2048, constants=(8,)),
    ),
    Planted(
        name="special_functions",
        cause="sfu_roof",
        given=ONE,
        formula=host.special_functions,
        mild=Launch(256, one_each, 8192, constants=(1,)),
        severe=Launch(256, waves(1), 512, constants=(4,)),
        tolerance=1e-4,
    ),
    Planted(
        name="dram",
        cause="dram_roof",
        given=_counting(4 * _DRAM_WORDS),
        formula=host.dram,
        mild=Launch(256, fixed(_DRAM_WORDS // 1024), 64, _DRAM_WORDS),
        severe=Launch(256, fixed(_DRAM_WORDS // 1024), 0, _DRAM_WORDS),
        words=_DRAM_WORDS,
    ),
    Planted(
        name="l2",
        cause="l2_roof",
        given=_counting(_L2_WORDS),
        formula=host.l2,
        mild=Launch(256, waves(1), 256, _L2_WORDS, constants=(48,)),
        severe=Launch(256, waves(1), 256, _L2_WORDS, constants=(0,)),
    ),
    Planted(
        name="tail_wave",
        cause="tail_wave",
        given=ONE,
        formula=host.fma,
        mild=Launch(1024, waves(3.5), 512, constants=(32,)),
        severe=Launch(1024, waves(1, more=1), 512, constants=(32,)),
    ),
    Planted(
        name="small_grid",
        cause="grid_too_small",
        given=_counting(256),
        formula=host.small_grid,
        mild=Launch(256, fixed(16), 65536),
        severe=Launch(1, fixed(1), 65536),
    ),
    Planted(
        name="atomics",
        cause="atomics",
        given=_values,
        formula=host.atomics,
        mild=Launch(256, fixed(4096), 4, 1 << 22),
        severe=Launch(256, fixed(4096), 4, 1 << 22),
        words=4096,
    ),
    Planted(
        name="naive_gemm",
        cause="lsu_requests",
        given=_always(_matrices),
        formula=host.naive_gemm,
        mild=Launch(1024, fixed(256), 1024),
        severe=Launch(1024, fixed(1024), 1024),
        words=1 << 20,
    ),
    Planted(
        name="pointer_chase",
        cause="latency_long_scoreboard",
        given=_rows(_DRAM_ROWS),
        formula=host.pointer_chase,
        mild=Launch(256, waves(1), 150, _DRAM_ROWS, constants=(24,)),
        severe=Launch(256, waves(1), 200, _DRAM_ROWS, constants=(0,)),
    ),
)
