"""Every kernel compiles in every configuration without spills, local memory or missing
instructions; and what a kernel looks like that does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.errors import CompileError
from gemmetry.hardware import cuda_compiler
from gemmetry.hardware import cuda_plans as cuda_tools
from gemmetry.hardware.cuda_compiler import Cubin
from gemmetry.hardware.cuda_plans import Compilation, Grid, KernelLaunch, LaunchPlan
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.catalogue import (
    ENTRY,
    CheckedVariant,
    KernelVariant,
    check,
    variants_of,
)
from gemmetry.providers.cuda_provider.kernel import CudaKernel

LOG = """\
Compiling entry function 'gemm' for 'sm_90a'
{local} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads
Used 168 registers, used 1 barriers, 24 bytes smem
{note}"""
SERIALISED = "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"


@pytest.mark.parametrize("kernel", catalogue.kernels(), ids=lambda one: one.name)
def test_a_kernel_compiles_as_its_row_promises(kernel: CudaKernel) -> None:
    """One variant of each; CI checks all of them with ``gemmetry kernels check``."""
    first = next(one for one in variants_of(kernel) if one.compilation.entry == ENTRY)
    (found,) = check([first], jobs=1)
    assert found.problems == ()
    assert not kernel.instructions or found.missing is not None or found.unchecked


def _plan(operation: Any, configuration: Configuration, processors: int) -> LaunchPlan:
    tile = 64 if configuration.name == "x_small" else 128
    shared = operation.matmul_shape.k
    grid = Grid(blocks=(1, 1, 1), threads=(128, 1, 1), dynamic_bytes=shared)
    compilation = Compilation(source="gemm/x", macros=(("TILE", tile),))
    launch = KernelLaunch(compilation=compilation, grid=grid, arguments=())
    return LaunchPlan(launches=(launch,))


KERNEL = CudaKernel(
    name="x", adds="nothing", instructions=("HGMMA", "UTMALDG"), plan=_plan,
    checked=tuple(f"matmul_8x8x{k}_bf16t_bf16n_bf16t" for k in (16, 1000)),
    why_not=lambda operation, configuration: None,
    configurations=lambda operation: (
        Configuration("x_small"), Configuration("x_wide"), Configuration("x_same"),
    ),
)  # fmt: skip


def test_variants_are_distinct_compilations_with_their_users() -> None:
    small, wide = variants_of(KERNEL)
    assert (small.configurations, wide.configurations) == (["x_small"], ["x_wide", "x_same"])
    assert small.dynamic_bytes == wide.dynamic_bytes == 1000
    assert small.expected == ("HGMMA", "UTMALDG")
    some = replace(KERNEL, configurations=lambda operation: (Configuration("x_small"),))
    assert len(variants_of(some)) == 1
    assert len(variants_of(replace(some, everything=KERNEL.configurations))) == 2
    pack = replace(small.compilation, entry="pack")
    assert KernelVariant(KERNEL, pack).expected == ()
    other = replace(KERNEL, exempt=lambda compilation: ("UTMALDG",))
    assert KernelVariant(other, small.compilation).expected == ("HGMMA",)


def checked(monkeypatch: pytest.MonkeyPatch, names: Any = (), **log: Any) -> CheckedVariant:
    """The first variant, as if the compiler and the disassembler had found this."""
    text = LOG.format(**{"local": 0, "spilled": 0, "note": "", **log})
    monkeypatch.setattr(cuda_compiler, "compile_kept", lambda *_, **__: Cubin(b"", text))

    def instructions(codes: Sequence[bytes]) -> list[frozenset[str]]:
        if isinstance(names, Exception):
            raise names
        return [frozenset(names) for _ in codes]

    monkeypatch.setattr(cuda_tools, "instructions_of_each", instructions)
    return next(check(variants_of(KERNEL), 1))


GOOD = ("HGMMA.64x256x16.F32.BF16", "UTMALDG.2D", "LDC")


@pytest.mark.parametrize(
    ("names", "log", "part"),
    [
        (GOOD, {"spilled": 40, "local": 40}, "spills 40 bytes"),
        (GOOD, {"local": 512}, "uses 512 bytes of local memory"),
        (GOOD, {"note": SERIALISED}, "serialized"),
        (("HGMMA.64x64x16.F32",), {}, "lacks UTMALDG"),
        ((), {}, "lacks HGMMA, UTMALDG"),
    ],
)
def test_what_is_wrong_is_named(monkeypatch: Any, names: Any, log: Any, part: str) -> None:
    assert part in "; ".join(checked(monkeypatch, names, **log).problems)


def test_without_a_disassembler_nothing_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    good = checked(monkeypatch, GOOD)
    assert good.problems == good.missing == ()
    assert (good.usage.registers, good.usage.shared_bytes) == (168, 1024)
    found = checked(monkeypatch, cuda_tools.NoDisassemblerError("there is no nvdisasm"))
    assert found.missing is None and found.unchecked == "there is no nvdisasm"
    assert found.problems == ()
    rejected = Mock(side_effect=CompileError("NVRTC rejected x"))
    monkeypatch.setattr(cuda_compiler, "compile_kept", rejected)
    every = list(check(variants_of(KERNEL), 2))
    assert [one.problems for one in every] == [("NVRTC rejected x",)] * 2
