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

Determines the vector size from which ``iree-compile`` rejects a function for a processor.

IREE rejects functions with a vector of at least as many bytes as 512 registers of the processor
("large vector sizes"; compiler/src/iree/compiler/Codegen/LLVMCPU/
LLVMCPUVerifyVectorSizeLegality.cpp): 32 KiB with AVX-512, 16 KiB with AVX2, 8 KiB with SSE or NEON.
The width of its registers depends on target and flags, so it is queried from the compiler.
"""

from __future__ import annotations

import re
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Self

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


class IreeTile(ABC):
    """One configuration of one form; forms are frozen dataclasses of positive integers."""

    form: ClassVar[str] = ""
    """Name of the configuration, with a field of the dataclass in braces for each number."""

    @property
    def name(self) -> str:
        """Parses back to this tile."""
        return self.form.format(**self.sizes())

    def sizes(self) -> dict[str, int]:
        """Field -> number."""
        return {name: getattr(self, name) for name in re.findall(r"{(\w+)}", self.form)}

    def parameters(self) -> dict[str, Parameter]:
        """Parameters, for the record and for selection by value."""
        return {f"tile_{name}" if name in "mnk" else name: n for name, n in self.sizes().items()}

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The tile called `name`; None for names of another form, and for sizes of zero."""
        match = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>\\d+)", cls.form), name, re.ASCII)
        if match is None:
            return None
        sizes = {field: int(text) for field, text in match.groupdict().items()}
        tile = cls(**sizes)
        # One name per tile: 064 would be another name of 64.
        return tile if min(sizes.values()) > 0 and tile.name == name else None

    def problem(self, operation: Operation) -> str | None:
        """Why the tile does not fit the operation (the validity filter), or None."""
        return None

    @abstractmethod
    def lowering(self, operation: Operation) -> Lowering:
        """The attributes and flags that make the compiler use it."""


@dataclass(frozen=True, slots=True)
class CompilerChoice(IreeTile):
    """No attributes: the compiler chooses, and its choice is read back into the record."""

    form: str = "default"  # type: ignore[misc]  # a name without numbers, of each instance
    flags: tuple[str, ...] = ()

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


REGISTERS = 512
"""Default of the flag below."""

SMALLEST_LIMIT_BYTES = 16 * REGISTERS
"""Limit that every processor meets: no vector register that IREE compiles for is narrower."""

_REGISTERS_FLAG = "--iree-llvmcpu-max-allowed-number-of-native-vectors="
_ASK_TIMEOUT_S = 60.0
_ANY_FUNCTION = b"""
func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  %b = arith.addf %a, %a : tensor<4xf32>
  return %b : tensor<4xf32>
}
"""


def vector_limit_bytes(program: Path, flags: Sequence[str]) -> int | None:
    """Vector size in bytes from which functions are rejected; None where the compiler does not show
    it.

    Args:
        program: an ``iree-compile``.
        flags: the target's flags, and the user's.
    """
    try:
        changed_ns = program.stat().st_mtime_ns
    except OSError:
        return None
    width = _register_bytes(program, changed_ns, tuple(flags))
    given = [flag.removeprefix(_REGISTERS_FLAG) for flag in flags if _REGISTERS_FLAG in flag]
    registers = int(given[-1]) if given and given[-1].isdigit() else REGISTERS
    return None if width is None else width * registers


@cache
def _register_bytes(program: Path, changed_ns: int, flags: tuple[str, ...]) -> int | None:
    """Width of the vector registers that code is generated for, determined in about 0.1 s;
    `changed_ns` distinguishes a compiler from a later build at the same path."""
    command = [str(program), "-", "-o", "-", *flags, "--compile-to=preprocessing"]
    try:
        done = subprocess.run(
            command, input=_ANY_FUNCTION, capture_output=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(rb"\bnative_vector_size = (\d+)", done.stdout)
    return int(match[1]) if match else None
