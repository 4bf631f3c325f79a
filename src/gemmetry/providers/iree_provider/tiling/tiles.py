"""Target-independent parts of IREE's configurations: a named tile that lowers an operation.

Names describe the tiling, and a name of each form parses back to its tile:

=========================================================  ======================================
``default``, ``tile_config_default``                       all left to the compiler
``data_tiling``                                            operands packed into tiles, CPU
``tile_config_64x64_vector8x32x4``                         distribution and vector tile, CPU
``tile_config_128x128_cache64x64x64_vector8x32x1``         the same with a cache level, CPU
``tile_config_4x64_vector8x32x4_conv``                     convolution, CPU
``tile_config_128x128_32x5_tensorcore_mmasync``            the old dispatch profiler's, CUDA
``tile_config_128x128x32_warps2x2_mma``                    tensor cores, CUDA
``tile_config_64x64x32_threads4x4_simt``                   no tensor cores, CUDA
``tile_config_128x128x64_waves2x2_mfma16``                 matrix cores, ROCm
=========================================================  ======================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gemmetry.domain.dispatch import Configuration, Parameter
from gemmetry.domain.operation import Layout, Operation, OperationKind


@dataclass(frozen=True, slots=True)
class Lowering:
    """The compiler's attributes and flags of a configuration, for one operation."""

    compilation_info: str | None = None
    """Attribute of the contraction; None leaves it to the compiler."""
    flags: tuple[str, ...] = ()
    """Additional ``iree-compile`` flags, which require a separate compile call."""
    vector_bytes: int = 0
    """Bytes of the largest vector that the compiler will form on a CPU; 0 where it chooses itself.
    Only the compiler decides, but configurations that exceed its limit are not listed, and if
    requested by name they are compiled separately, so that their failure costs the others no second
    call."""
    notes: tuple[str, ...] = ()
    """Note on the translation, for the record."""


class IreeTile(Protocol):
    """One configuration of one form; a frozen dataclass of integers."""

    @property
    def name(self) -> str:
        """Parses back to this tile."""

    def parameters(self) -> dict[str, Parameter]:
        """Parameters, for the record and for selection by value."""

    def problem(self, operation: Operation) -> str | None:
        """Why the tile does not fit the operation (the validity filter), or None."""

    def lowering(self, operation: Operation) -> Lowering:
        """The attributes and flags that make the compiler use it."""


@dataclass(frozen=True, slots=True)
class CompilerChoice:
    """No attributes: the compiler chooses, and its choice is read back into the record."""

    name: str = "default"
    flags: tuple[str, ...] = ()

    def parameters(self) -> dict[str, Parameter]:
        return {}

    def problem(self, operation: Operation) -> str | None:
        return None

    def lowering(self, operation: Operation) -> Lowering:
        return Lowering(flags=self.flags)


DEFAULT = CompilerChoice()
LEGACY_DEFAULT = CompilerChoice("tile_config_default")
"""The old dispatch profiler's name for the compiler's choice (--default-config)."""
DATA_TILING = CompilerChoice("data_tiling", ("--iree-opt-data-tiling",))
"""A flag of the whole compilation, not an attribute: operands are packed into tiles suited to the
vector unit (mmt4d) before the product, and the result is unpacked."""


def configuration(tile: IreeTile) -> Configuration:
    """The configuration of a tile."""
    return Configuration(tile.name, tile.parameters())


def batch_dims(operation: Operation) -> int:
    """Parallel loops of the contraction before m, n, k: a batch, or the slices of K."""
    return int(operation.kind in (OperationKind.BATCH_MATMUL, OperationKind.MATMUL_SPLITK))


def loop_sizes(operation: Operation) -> tuple[int, int, int]:
    """(m, n, k) of the emitted product: swapped for a column-major C, with k of one slice."""
    m, n, k, _ = operation.matmul_shape
    if operation.output.layout is Layout.COLUMN:
        m, n = n, m
    return m, n, k // operation.signature.split_k_slices


def attribute_list(values: Sequence[int]) -> str:
    """``[64, 64, 0]``."""
    return f"[{', '.join(map(str, values))}]"


def divisibility_problem(operation: Operation, tile: tuple[int, int, int]) -> str | None:
    """Why the (m, n, k) `tile` leaves a remainder, or None."""
    sizes = loop_sizes(operation)
    uneven = [
        f"{letter}={size} by {step}"
        for letter, size, step in zip("mnk", sizes, tile, strict=True)
        if size % step
    ]
    return f"the tile does not divide {', '.join(uneven)}" if uneven else None
