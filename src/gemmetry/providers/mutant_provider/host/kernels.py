"""The decorators that register mutants on the host, and the executable around one.

Shapes are small, so that hundreds of launches take seconds, and mostly multiples of the tile, so
that a bug in tails shows only where a check provokes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmetry.devices.host import HostBuffer, HostDevice
from gemmetry.domain.contracts import Device, Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.providers.mutant_provider.mutant import Carrier, Mutant, Planter, plant

if TYPE_CHECKING:
    from gemmetry.providers.mutant_provider.host.emulator import TiledGemm

ON_BF16 = "matmul_256x128x256_bf16t_bf16n_bf16t"
"""8 tiles, 8 steps along K."""
ON_DEEP = "matmul_128x128x512_bf16t_bf16n_bf16t"
"""4 tiles, 16 steps along K."""
ON_F32 = "matmul_128x128x128_f32t_f32t_f32t"
ON_NINE_TILES = "matmul_192x192x128_f32t_f32t_f32t"
ON_UNEVEN_K = "matmul_128x128x80_f32t_f32t_f32t"
ON_ROW_SCALES = "matmul_256x128x256_e4m3t_e4m3n_bf16t_scalerow"
ON_S8 = "matmul_128x128x128_s8t_s8t_s32t"
ON_S8_DEEP = "matmul_64x64x1152_s8t_s8t_s32t"
"""Its sums exceed 2^24, up to which f32 counts exactly."""
ON_E4M3 = "matmul_128x128x128_e4m3t_e4m3n_f32t"
ON_GELU = "matmul_128x128x128_f32t_f32t_f32t_gelu"
ON_ONE_BLOCK_OF_SCALES = "matmul_128x128x256_e4m3t_e4m3n_bf16t_scalerow"
ON_BOTH = "matmul_128x128x128_f32t_f32t_f32t_alpha0p1_beta1p7"
"""Its factors are not powers of two."""
ON_F16 = "matmul_128x128x128_f16t_f16n_f16t"


def bug(
    number: int,
    slug: str,
    bug: str,
    operation: str,
    *killed_by: str,
    declared: tuple[Trait, ...] = (),
    tile: tuple[int, int, int] = (64, 64, 32),
    level: str = "standard",
) -> Planter:
    """Register the decorated class as a mutant; the arguments are the fields of :class:`Mutant`."""
    return plant(
        Mutant(
            number, slug, bug, Carrier.HOST, operation,
            killed_by=killed_by, declared=declared, tile=tile, level=level,
        )
    )  # fmt: skip


def tricky(
    number: int,
    slug: str,
    why: str,
    operation: str,
    *declared: Trait,
    tile: tuple[int, int, int] = (64, 64, 32),
) -> Planter:
    """Register the decorated class as a correct kernel that is easy to mistake for wrong."""
    return plant(
        Mutant(
            number, slug, why, Carrier.HOST, operation,
            is_bug=False, declared=declared, tile=tile,
        )
    )  # fmt: skip


class HostExecutable:
    """A mutant on prepared host buffers."""

    def __init__(self, kernel: TiledGemm, facts: BuildFacts) -> None:
        self.device: Device = HostDevice()
        self.facts = facts
        self.writes_output = kernel.writes_output
        self.kernel = kernel

    def run(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> Any:
        """One launch; returns what the mutant returns."""
        return self.kernel.launch(inputs, output)

    def close(self) -> None:
        """Does nothing: numpy frees everything."""


def build(item: Mutant, dispatch: Dispatch) -> Executable:
    """The mutant `item` for the dispatch's operation, ready to launch."""
    kernel: TiledGemm = item.recipe(dispatch.operation, item.tile)
    kind = "a deliberate bug" if item.is_bug else "correct but tricky"
    return HostExecutable(
        kernel, BuildFacts(declared=item.declared, notes=(f"{kind}: {item.bug}",))
    )
