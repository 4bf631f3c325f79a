"""Rungs 2 to 4 of our own GEMM compile for every architecture that has their instructions, without
local memory."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.devices.cuda_compiler import compile_source, macros_of

MMA = {"TILE_M": 128, "TILE_N": 256, "TILE_K": 32, "STAGES": 4, "WARPS_M": 2, "WARPS_N": 4}


@pytest.mark.parametrize(
    ("architecture", "formats"),
    [("sm_80", {}), ("sm_90a", {"IN_F16": 1, "OUT_F16": 1}), ("sm_100a", {"OUT_F32": 1})],
)
@pytest.mark.parametrize(
    ("name", "macros"),
    [("r02_shared_tiles", {"TILE": 32}), ("r03_register_tiles", {}), ("r04_mma", MMA)],
)
def test_it_compiles_without_local_memory(name, macros, formats, architecture) -> None:
    cubin = compile_source(f"gemm/{name}", macros_of(**macros, **formats), architecture)
    stack, *spills = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", cubin.log)
    assert (stack, spills) == ("0", ["0", "0"])
    assert "warning" not in cubin.log
