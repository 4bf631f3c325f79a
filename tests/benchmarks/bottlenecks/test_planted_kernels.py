from __future__ import annotations

import re
from functools import cache

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from planted_kernels import KERNELS, SOURCES, VARIANTS, Planted

from gemmetry.hardware.cuda_compiler import Cubin, compile_file

SPILLED = {"local_memory_mild", "local_memory_severe"}


@cache
def compiled(name: str) -> Cubin:
    return compile_file(SOURCES, name, (), "sm_90")


def facts(log: str) -> dict[str, dict[str, int]]:
    """Registers and bytes spilled of each kernel, from the assembler's output."""
    found = re.findall(r"entry function '(\w+)'.*?(\d+) bytes spill loads.*?Used (\d+)", log, re.S)
    return {name: {"spilled": int(bytes_), "registers": int(used)} for name, bytes_, used in found}


@pytest.mark.parametrize("planted", KERNELS, ids=lambda planted: planted.name)
def test_both_variants_compile_and_only_the_planted_spills_exist(planted: Planted) -> None:
    cubin = compiled(planted.name)
    found = facts(cubin.log)
    assert set(found) == {f"{planted.name}_{variant}" for variant in VARIANTS}
    for name, fact in found.items():
        assert name.encode() in cubin.code
        assert (fact["spilled"] > 0) == (name in SPILLED)
    assert "warning" not in cubin.log


def test_registers_limit_the_occupancy_that_the_sources_state() -> None:
    found = facts(compiled("occupancy_registers").log)
    for variant, blocks in (("severe", 2), ("mild", 4)):
        registers = found[f"occupancy_registers_{variant}"]["registers"]
        # 65536 registers, granted to warps in units of 8 registers a thread.
        assert 65536 // (-(-registers // 8) * 8 * 128) == blocks
    assert 32 < facts(compiled("tail_wave").log)["tail_wave_severe"]["registers"] <= 64


def test_every_bottleneck_is_planted_once_and_has_a_source() -> None:
    names = [planted.name for planted in KERNELS]
    assert len({planted.cause for planted in KERNELS}) == len(set(names)) == len(names) >= 14
    assert sorted(names) == sorted(path.stem for path in SOURCES.glob("*.cu"))


def test_a_grid_follows_the_gpu() -> None:
    blocks = {planted.name: planted.severe.blocks(132, 8) for planted in KERNELS}
    assert [blocks[name] for name in ("fma", "tail_wave", "small_grid")] == [1056, 1057, 1]
    work = KERNELS[0].severe.work(7)
    assert (work.blocks, work.threads, work.steps) == (7, 256, 128)
