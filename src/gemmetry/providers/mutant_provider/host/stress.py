"""Mutants on the host: kernels that are right as long as memory is fresh or nothing else runs."""

from __future__ import annotations

import threading
import time

import numpy as np

from gemmetry.hardware.pinning import running_times
from gemmetry.providers.mutant_provider.host.emulator import Array, Tile, TiledGemm
from gemmetry.providers.mutant_provider.host.kernels import ON_F32, bug

WORKSPACE_BYTES = 40 * 2**20
"""Above 32 MiB the GNU C library requests fresh pages from the system each time (mallopt(3),
M_MMAP_THRESHOLD), so that this workspace is zero unless something fills it."""

WAIT_S = 0.005
LATE_NS = 500_000
"""A partner is late if other threads have run for this long during the wait."""


@bug(55, "workspace_taken_for_zero", "adds to a workspace that it never clears", ON_F32,
     "spoiled_scratch")  # fmt: skip
class TakesWorkspaceForZero(TiledGemm):
    """Adds to a workspace that it allocates at each launch and never clears."""

    def before(self) -> None:
        super().before()
        sums = self.tile_count * self.tile_m * self.tile_n
        least = WORKSPACE_BYTES // np.dtype(self.accumulator).itemsize
        self.workspace: Array = np.empty(max(sums, least), self.accumulator)

    def mainloop(self, tile: Tile, steps: range) -> Array:
        size = self.tile_m * self.tile_n
        sums = self.workspace[tile.number * size :][:size].reshape(self.tile_m, self.tile_n)
        sums += super().mainloop(tile, steps)
        return sums

    def after(self) -> None:
        del self.workspace


@bug(56, "fixed_wait_for_partner", "waits a fixed time for the part of K of another block", ON_F32,
     "under_load", level="paranoid")  # fmt: skip
class WaitsFixedTime(TiledGemm):
    """Waits for another block's half of K for a time that is sufficient while nothing else runs,
    and then stores the last tile without it. Other Python threads are what else may run."""

    def after(self) -> None:
        ran_before_ns = _others_ran_ns()
        time.sleep(WAIT_S)
        if _others_ran_ns() - ran_before_ns > LATE_NS:
            tile = self.tile_at(self.tile_count - 1)
            self.epilogue(tile, self.mainloop(tile, range(self.step_count // 2)))


def _others_ran_ns() -> int:
    ran = running_times()
    others = (thread.native_id or 0 for thread in threading.enumerate())
    return sum(ran.get(task, 0) for task in others if task != threading.get_native_id())
