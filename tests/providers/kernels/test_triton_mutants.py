"""Every mutant in Triton compiles for a GPU, on a machine without one."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("triton", reason="triton is not installed")

SCRIPT = """
import os, sys
os.environ["TRITON_CACHE_DIR"] = sys.argv[1]
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import ASTSource
from gemmetry.domain.dispatch import parse_operation
from gemmetry.providers.kernels.triton_mutants import mutant_matmul
from gemmetry.selftest import torch_callers
from gemmetry.selftest.provider import Carrier, all_mutants

MUTANTS = [item for item in all_mutants() if item.carrier is Carrier.TRITON]

# PTX is compared; half of the time would go into assembling it, which is done where it runs.
CUDABackend.make_cubin = lambda *_, **__: b""
ELEMENTS = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "s8": "i8", "s32": "i32"}
codes = set()
# A bug in the call around a kernel has no code of its own.
kernels = [item for item in MUTANTS if item.slug not in torch_callers.SLUGS]
for item in kernels:
    recipe = item.recipe
    formats = parse_operation(item.operation).signature
    signature = {"a": formats.lhs, "b": formats.rhs, "c": formats.result}
    signature = {name: f"*{ELEMENTS[str(dtype)]}" for name, dtype in signature.items()}
    signature |= {"m": "i32", "n": "i32", "k": "i32"}
    constants = dict(zip(
        ("MUTANT", "SPLITS", "REVERSED", "THIRDS", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"),
        (item.code, recipe.splits, recipe.reversed, recipe.thirds,
         16, 16, 16, 2),
        strict=True,
    ))
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(mutant_matmul, signature, constants)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    codes.add(built.asm["ptx"])
print(len(codes), len(kernels))
"""


def test_every_mutant_compiles_to_code_of_its_own(forked, tmp_path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    finished = forked(SCRIPT, str(tmp_path), env=environment)
    assert finished.returncode == 0, finished.stderr[-3000:]
    codes, mutants = map(int, finished.stdout.split())
    # The split kernel and its sibling without zeros differ only in the launch, and so does the
    # plain kernel with few programs; no others do.
    assert codes == mutants - 1
