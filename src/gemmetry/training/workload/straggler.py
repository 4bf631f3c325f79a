"""A planted straggler: one rank that waits at the start of each step."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import torch

from gemmetry.domain.errors import RequestError
from gemmetry.training.workload.ranks import Ranks

LABEL = "gemmetry::straggle"
"""Name of the operator in the trace that covers the wait."""

_PROBE_CYCLES = 20_000_000
"""Length of the kernel from which the GPU's clock follows: some 10 ms."""


@dataclass(frozen=True, slots=True)
class Straggle:
    """Which rank waits, and for how long."""

    rank: int
    milliseconds: float

    @classmethod
    def parse(cls, text: str) -> Straggle:
        """``1:20``: rank 1 waits 20 ms in each step.

        Raises:
            RequestError: the text is of another form.
        """
        rank, _, milliseconds = text.partition(":")
        try:
            found = cls(int(rank), float(milliseconds))
        except ValueError:
            found = cls(-1, -1)
        if found.rank < 0 or not 0 < found.milliseconds < float("inf"):
            raise RequestError(
                f"--straggle {text}: not of the form RANK:MS", hint="Write --straggle 1:20."
            )
        return found


class PlantedWait:
    """Waits on its rank: on a GPU in a kernel, so that the host does not notice; else asleep."""

    def __init__(self, straggle: Straggle | None, ranks: Ranks) -> None:
        """Measures the GPU's clock on the rank that waits.

        Raises:
            RequestError: there is no such rank.
        """
        if straggle is not None and straggle.rank >= ranks.size:
            raise RequestError(
                f"--straggle names rank {straggle.rank}, but there "
                f"{'is' if ranks.size == 1 else 'are'} {ranks.size}",
                hint="Ranks count from 0.",
            )
        self._straggle = straggle
        waits = straggle is not None and straggle.rank == ranks.rank
        self._seconds = straggle.milliseconds / 1e3 if straggle is not None and waits else 0.0
        self._cycles = int(self._seconds * _cycles_per_s()) if waits and ranks.on_gpu else 0

    def facts(self) -> dict[str, float] | None:
        """Which rank waits how long; None if none does."""
        return dataclasses.asdict(self._straggle) if self._straggle is not None else None

    def wait(self) -> None:
        """Wait, if this is the rank."""
        if not self._seconds:
            return
        with torch.profiler.record_function(LABEL):
            if self._cycles:
                torch.cuda._sleep(self._cycles)
            else:
                time.sleep(self._seconds)


def _cycles_per_s() -> float:
    """Cycles per second that ``torch.cuda._sleep`` counts on this GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_PROBE_CYCLES)  # Raises the clock.
    start.record()
    torch.cuda._sleep(_PROBE_CYCLES)
    end.record()
    end.synchronize()
    return float(_PROBE_CYCLES / (start.elapsed_time(end) / 1e3))
