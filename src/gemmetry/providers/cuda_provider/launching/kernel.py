"""The row of a kernel: everything that the provider, the ladder and the checks know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gemmetry.devices.cuda_plans import Compilation, LaunchPlan
from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.operation import Operation

ARCHITECTURE = "sm_90a"
"""What every kernel is compiled for: Hopper with its matrix instructions and copy engine (PTX ISA,
targets with the suffix ``a``)."""
TARGET_ARCHITECTURE = "sm_90"
"""The architecture of targets that run it."""

_TOP_RUNG = 11
"""Rungs below are steps that readers learn from; they are slower, and run only where a request
names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaKernel:
    """One kernel of the provider."""

    name: str
    """As its source is called, without ``.cu``: ``r07_warp_specialised``."""
    key: str = ""
    """What the names of its configurations begin with, before the first ``_``; "": the beginning of
    its own name, ``r07``."""
    rung: int | None = None
    """Its place on the ladder; None: it is not on it."""
    adds: str
    """What it does that the rung before does not, in one line."""
    instructions: tuple[str, ...] = ()
    """Beginnings of SASS instructions that the machine code of its entry ``gemm`` must have:
    ``HGMMA``, ``UTMALDG``, and ``SYNCS`` for mbarriers."""
    exempt: Callable[[Compilation], tuple[str, ...]] = lambda compilation: ()
    """Those of `instructions` that a compilation does without."""
    checked: tuple[str, ...]
    """Names of operations that together need all of its compilations."""
    why_not: Callable[[Operation, Configuration], str | None]
    """None if a configuration computes an operation, else the reason."""
    plan: Callable[[Operation, Configuration, int], LaunchPlan]
    """The launches for an operation, a configuration and so many multiprocessors."""
    configurations: Callable[[Operation], Iterable[Configuration]]
    """Those worth trying for an operation, the best first; names begin with :attr:`key`."""
    everything: Callable[[Operation], Iterable[Configuration]] | None = None
    """All that are worth trying for some shape, for kernels whose list depends on the shape; None:
    :attr:`configurations` has all."""
    parse: Callable[[str], Configuration | None] | None = None
    """The configuration of a name that need not be listed; None: only listed ones exist."""
    seconds_per_launch: Callable[[Operation], float] | None = None
    """A prediction for kernels that can take long, so that a run tries one launch first."""
    notes: tuple[str, ...] = ()
    """What a reader of its times has to know."""

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", self.name.partition("_")[0])

    @property
    def is_listed(self) -> bool:
        """Whether sweeps try it where a request names no configuration."""
        return self.rung is None or self.rung >= _TOP_RUNG

    def configuration(self, name: str, operation: Operation) -> Configuration | None:
        """The configuration called `name`; None if it is none of this kernel's."""
        if name.partition("_")[0] != self.key:
            return None
        if self.parse is not None:
            return self.parse(name)
        return next((one for one in self.configurations(operation) if one.name == name), None)

    def legal(self, operation: Operation) -> list[Configuration]:
        """The configurations worth trying that compute `operation`."""
        return [
            one for one in self.configurations(operation) if self.why_not(operation, one) is None
        ]

    def refusal(self, operation: Operation) -> str | None:
        """None if a configuration worth trying computes `operation`, else the first one's
        reason."""
        reason: str | None = f"{self.name} has no configuration for it"
        for index, one in enumerate(self.configurations(operation)):
            found = self.why_not(operation, one)
            if found is None:
                return None
            reason = found if index == 0 else reason
        return reason
