"""A kernel of the catalogue as data, and the decorator that registers one where it is defined."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.record import Trait

Kernel = TypeVar("Kernel", bound=type)


class Carrier(StrEnum):
    """The kind of kernel that a mutant is written as."""

    HOST = "host"
    """The tiled GEMM emulator of ``host/emulator.py``, in numpy."""
    TRITON = "triton"
    """Triton, on a GPU or in its interpreter on the CPU."""
    CUDA = "cuda"
    """CUDA C++, compiled at run time."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One kernel of the catalogue: a mutant, or a correct kernel that is easy to mistake for
    one."""

    number: int
    """Its number in the list of bugs, or in the list of correct but tricky kernels."""
    slug: str
    """The middle part of the configuration's name, unique among the kernels of one carrier."""
    bug: str
    """What is wrong (or tricky), in one line."""
    carrier: Carrier
    operation: str
    """The name of the operation it runs on."""
    is_bug: bool = True
    """False for a kernel that is correct but tricky, and must pass."""
    killed_by: tuple[str, ...] = ()
    """Checks that are expected to catch it, or outcomes (``launch_error``, ``timeout``) with which
    it may end; empty for a correct kernel."""
    declared: tuple[Trait, ...] = ()
    tile: tuple[int, int, int] = (64, 64, 32)
    """Along M, N and K. It is part of the configuration, so that shapes with tails can be derived
    from it."""
    level: str = "standard"
    """The lowest level of verification that has a check for it."""
    recipe: Any = field(default=None, repr=False, compare=False)
    """What it is built from: a class on the host, otherwise a recipe of the carrier."""
    is_unseen: bool = False
    """Its author had not seen the checks, and the authors of the checks had not seen it. It is
    numbered separately, and its score is reported separately."""

    @property
    def configuration(self) -> str:
        """The name of its configuration: ``m05_k_tail_dropped_host``, ``ok03_stream_k_host``, and
        for unseen ones ``u07_..._host`` and ``uok07_..._host``."""
        kind = ("u" if self.is_bug else "uok") if self.is_unseen else "m" if self.is_bug else "ok"
        return f"{kind}{self.number:02d}_{self.slug}_{self.carrier}"

    @property
    def code(self) -> int:
        """The value of MUTANT in a source that contains several mutants."""
        return (self.recipe.code or self.number) if self.is_bug else 0

    def as_configuration(self) -> Configuration:
        """The configuration that the provider lists."""
        m, n, k = self.tile
        return Configuration(
            self.configuration, {"tile_m": m, "tile_n": n, "tile_k": k, "vehicle": self.carrier}
        )


class Planter(Protocol):
    """A decorator of a class on the host."""

    def __call__(self, kernel: Kernel, /) -> Kernel:
        """Register `kernel` and return it unchanged."""


ON_HOST: list[Mutant] = []
"""Filled by :func:`plant` as modules are imported."""


def plant(item: Mutant) -> Planter:
    """Register the decorated class as what `item` is built from. Of several decorators of a class,
    the topmost is registered first."""

    def registered(kernel: Kernel) -> Kernel:
        places = [at for at, other in enumerate(ON_HOST) if other.recipe is kernel]
        ON_HOST.insert(places[0] if places else len(ON_HOST), replace(item, recipe=kernel))
        return kernel

    return registered
