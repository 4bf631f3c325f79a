"""A planted kernel as data, and the decorator that registers one where it is defined."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.traits import Trait

Kernel = TypeVar("Kernel", bound=type)


class Carrier(StrEnum):
    """What carries a planted kernel."""

    HOST = "host"
    """The tiled GEMM emulator of ``host/emulator.py``, in numpy."""
    TRITON = "triton"
    """Triton, on a GPU or in its interpreter on the CPU."""
    CUDA = "cuda"
    """CUDA C++, compiled at run time."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted kernel."""

    number: int
    """In the list of bugs, or in the list of correct but tricky kernels."""
    slug: str
    """Words of the configuration's name, unique among the planted of one vehicle."""
    bug: str
    """What is wrong (or tricky), in one line."""
    carrier: Carrier
    operation: str
    """Name of the operation it runs on."""
    is_bug: bool = True
    """False: correct but tricky, and must be let through."""
    killed_by: tuple[str, ...] = ()
    """Checks expected to catch it, or outcomes (``launch_error``, ``timeout``) that it may end
    with; empty for a kernel that is right, or that never returns."""
    declared: tuple[Trait, ...] = ()
    tile: tuple[int, int, int] = (64, 64, 32)
    """Along M, N and K; listed in the configuration, so that tail shapes fit it."""
    level: str = "standard"
    """The least level of verification that has a check for it."""
    recipe: Any = field(default=None, repr=False, compare=False)
    """What its vehicle builds it from: a class on the host, else a recipe of the vehicle's own."""
    is_unseen: bool = False
    """Written by one who had not seen the checks, nor had who wrote these seen it; numbered apart,
    and its score is reported apart."""

    @property
    def configuration(self) -> str:
        """Its configuration's name: ``m05_k_tail_dropped_host``, ``ok03_stream_k_host``, and
        of unseen ones ``u07_..._host`` and ``uok07_..._host``."""
        kind = ("u" if self.is_bug else "uok") if self.is_unseen else "m" if self.is_bug else "ok"
        return f"{kind}{self.number:02d}_{self.slug}_{self.carrier}"

    @property
    def code(self) -> int:
        """What MUTANT is set to in a source that carries several planted kernels."""
        return (self.recipe.code or self.number) if self.is_bug else 0

    def as_configuration(self) -> Configuration:
        """As the provider lists it."""
        m, n, k = self.tile
        return Configuration(
            self.configuration, {"tile_m": m, "tile_n": n, "tile_k": k, "vehicle": self.carrier}
        )


class Planter(Protocol):
    """A decorator of a class on the host."""

    def __call__(self, kernel: Kernel, /) -> Kernel:
        """Register `kernel`, and return it as it is."""


ON_HOST: list[Mutant] = []
"""Filled by :func:`plant`, as modules are imported."""


def plant(item: Mutant) -> Planter:
    """Register the decorated class as what `item` is built from. Of several decorators of a class,
    the first is registered first."""

    def planted_as(kernel: Kernel) -> Kernel:
        places = [at for at, other in enumerate(ON_HOST) if other.recipe is kernel]
        ON_HOST.insert(places[0] if places else len(ON_HOST), replace(item, recipe=kernel))
        return kernel

    return planted_as
