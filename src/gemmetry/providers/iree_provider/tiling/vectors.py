"""Determines the vector size from which ``iree-compile`` rejects a function for a processor.

IREE rejects functions with a vector of at least as many bytes as 512 registers of the processor
("large vector sizes"; compiler/src/iree/compiler/Codegen/LLVMCPU/
LLVMCPUVerifyVectorSizeLegality.cpp): 32 KiB with AVX-512, 16 KiB with AVX2, 8 KiB with SSE or NEON.
The width of its registers depends on target and flags, so it is queried from the compiler.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

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
