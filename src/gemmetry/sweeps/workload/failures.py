"""What torch raises, as errors that name the cause and the next step.

Files that appear under their name only when they are complete.

A planted straggler: one rank that waits at the start of each step.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.files import completed
from gemmetry.engine.schema import indented
from gemmetry.sweeps.workload.ranks import Ranks

LATER_S = 2.0
"""How long a rank with an unexplained error waits before it fails. It is most often that another
rank has ended; torchrun quotes the earliest error, by whole seconds, and ends the others."""


def too_little_memory(what: str) -> RequestError:
    """The error for a run that does not fit; `what` states how much is missing where."""
    return RequestError(
        f"too little memory: {what}",
        hint="Raise training.gradient_accumulation, which makes micro-batches smaller, or lower "
        "training.batch_size or model.num_layers.",
    )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn failures of torch that the configuration can avoid into request errors; others, which
    may be consequences of another rank's, come later (:data:`LATER_S`).

    Raises:
        RequestError: memory ran out, or an operator has no deterministic implementation.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise too_little_memory(_first_line(error)) from error
    except RuntimeError as error:
        if "can't allocate memory" in str(error):
            raise too_little_memory(_first_line(error)) from error
        if "does not have a deterministic implementation" in str(error):
            raise RequestError(
                str(error).partition(", but you set")[0],
                hint="Use --override training.deterministic=false; losses then differ slightly "
                "between two runs.",
            ) from error
        if dist.is_initialized() and dist.get_world_size() > 1:
            time.sleep(LATER_S)
        raise


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to; the file is renamed to `path` when the block ends without an error.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with completed(path) as partial:
            yield partial
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="Free space there, or give another folder with --output.",
        ) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` as indented JSON."""
    with whole_file(path) as partial:
        partial.write_bytes(indented(content))


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
