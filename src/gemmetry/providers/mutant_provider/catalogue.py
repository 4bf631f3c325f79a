"""The catalogue: every planted kernel, wrong or right but tricky, as data.

Numbers are those of our list of bugs that GEMM kernels really had (docs/verification.md). A bug
may be planted more than once, on another vehicle or in a variant that only another check sees.
Importing this module loads no heavy library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Signature
from gemmetry.domain.traits import Trait


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
    vehicle: Carrier
    operation: str
    """Name of the operation it runs on."""
    is_bug: bool = True
    """False: correct but tricky, and must be let through."""
    killed_by: tuple[str, ...] = ()
    """Checks expected to catch it, or outcomes (``launch_error``, ``timeout``) that it may end
    with; empty for a kernel that is right, or that never returns."""
    declared: tuple[Trait, ...] = ()
    tile: tuple[int, int, int] = (64, 64, 32)
    """Along M, N and K; told in the configuration, so that tail shapes fit it."""
    level: str = "standard"
    """The least level of verification that has a check for it."""
    is_unseen: bool = False
    """Written by one who had not seen the checks, nor had who wrote these seen it; numbered apart,
    and its score is reported apart."""

    @property
    def configuration(self) -> str:
        """Its configuration's name: ``m05_k_tail_dropped_host``, ``ok03_stream_k_host``, and
        of unseen ones ``u07_..._host`` and ``uok07_..._host``."""
        kind = ("u" if self.is_bug else "uok") if self.is_unseen else "m" if self.is_bug else "ok"
        return f"{kind}{self.number:02d}_{self.slug}_{self.vehicle}"

    def as_configuration(self) -> Configuration:
        """As the provider lists it."""
        m, n, k = self.tile
        return Configuration(
            self.configuration, {"tile_m": m, "tile_n": n, "tile_k": k, "vehicle": self.vehicle}
        )


NOT_PLANTED: Mapping[int, str] = {
    53: (
        "a kernel that calls a vendor's library gives right results, and no operation promises "
        "a kernel of one's own; a count of kernel names is for profilers"
    ),
}
"""Number in the list of bugs -> why no kernel is planted for it."""


@cache
def planted() -> tuple[Mutant, ...]:
    """All planted kernels, by vehicle and in the order of their numbers."""
    from gemmetry.providers.mutant_provider.cuda import catalogue as cuda_catalogue
    from gemmetry.providers.mutant_provider.host import cache_catalogue as host_cache_catalogue
    from gemmetry.providers.mutant_provider.host import catalogue as host_catalogue
    from gemmetry.providers.mutant_provider.host import rare_catalogue as host_rare_catalogue
    from gemmetry.providers.mutant_provider.triton import catalogue as triton_catalogue
    from gemmetry.providers.mutant_provider.unseen import catalogue as unseen_catalogue

    on_host = sorted(
        (*host_catalogue.PLANTED, *host_cache_catalogue.PLANTED, *host_rare_catalogue.PLANTED),
        key=lambda item: (not item.is_bug, item.number),
    )
    return (
        *on_host,
        *triton_catalogue.PLANTED,
        *cuda_catalogue.PLANTED,
        *unseen_catalogue.PLANTED,
    )


@cache
def planted_by_configuration() -> Mapping[str, Mutant]:
    """Configuration's name -> planted kernel."""
    return {item.configuration: item for item in planted()}


@cache
def signature_of(operation: str) -> Signature:
    """The signature of the operation named `operation`."""
    return parse_operation(operation).signature
