"""Tests of ``gemmetry kernels list`` and ``gemmetry kernels check``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.hardware import cuda_compiler
from gemmetry.hardware import cuda_plans as cuda_tools
from gemmetry.hardware.cuda_compiler import Cubin
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.provider import CudaProvider

LOG = """\
Compiling entry function 'gemm' for 'sm_90a'
{spilled} bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads
Used 40 registers
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where results of these tests are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gemmetry/kernels"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """compiled(spilled, instructions): what the compiler and the disassembler find from then on."""

    def use(spilled: int, names: tuple[str, ...] | None) -> None:
        cubin = Cubin(b"", LOG.format(spilled=spilled))
        monkeypatch.setattr(cuda_compiler, "compile_kept", lambda *_, **__: cubin)

        def instructions(codes: Sequence[bytes]) -> list[frozenset[str]]:
            if names is None:
                raise cuda_tools.NoDisassemblerError("there is no nvdisasm")
            return [frozenset(names) for _ in codes]

        monkeypatch.setattr(cuda_tools, "instructions_of_each", instructions)

    return use


def test_a_good_kernel_passes_and_spilled_registers_fail(cli, compiled):
    compiled(0, ())
    ended = cli("kernels", "check", "--kernel", "r01*", status=0)
    assert ended.stdout.splitlines() == [
        "r01_thread_per_output: ok, 4 compilations",
        "    40 registers, no shared memory",
    ]
    compiled(24, ())
    shown = cli("kernels", "check", "--kernel", "r02*").stdout
    assert "r02" in shown and "failed" in shown and ": spills 24 bytes of registers" in shown
    rows = cli.json("kernels", "check", "--kernel", "r0[03]*", "--jobs", "1", status=1)["kernels"]
    assert {row["rung"] for row in rows} == {0, 3}
    for key, value in {"arch": "sm_90a", "registers": 40, "spill_bytes": 24, "local_bytes": 24,
                       "shared_bytes": 0, "expected_instructions": [], "missing_instructions": [],
                       "status": "failed"}.items():  # fmt: skip
        assert rows[0][key] == value
    assert rows[0]["problems"]


@pytest.fixture
def checked(monkeypatch):
    """The only kernel of the catalogue, which has to contain FFMA."""
    kernel = next(one for one in catalogue.kernels() if one.key == "r01")
    monkeypatch.setattr(catalogue, "kernels", lambda: (replace(kernel, instructions=("FFMA",)),))


def test_instructions_that_were_not_checked_have_no_value(cli, compiled, checked):
    compiled(0, None)
    (row, *_) = cli.json("kernels", "check")["kernels"]
    assert (row["missing_instructions"], row["not_disassembled"]) == (None, "there is no nvdisasm")
    shown = cli("kernels", "check", status=0).stdout
    assert "Instructions were not checked: there is no nvdisasm" in shown
    assert "FFMA" not in shown
    compiled(0, ("FFMA", "LDC"))
    assert "FFMA" in cli("kernels", "check").stdout


def test_names_are_those_of_the_list_and_only_they_are_compiled(cli, compiled):
    compiled(0, ("HGMMA", "UTMALDG", "SYNCS"))
    row = cli.json("kernels", "list")["kernels"][2]
    for name in (row["name"], row["name"].partition("_")[0], row["configurations"][0]):
        ended = cli("kernels", "check", name, "--json")
        found = json.loads(ended.stdout)["kernels"]
        assert {one["name"] for one in found} == {row["name"]}
        assert name not in row["configurations"] or all(
            name in one["configurations"] for one in found
        )
        lines = ended.stderr.splitlines()
        assert len(lines) == len(found)
        assert lines[-1].startswith(f"[{len(found)}/{len(found)}] compiled ")


def test_results_are_kept_until_source_compiler_or_disassembler_change(
    cli, compiled, checked, cache, monkeypatch
):
    def check(status):
        cli("kernels", "check", "r01", status=status)

    good = ("FFMA",)
    compiled(0, good)
    check(0)
    kept = sorted(cache.iterdir())
    assert kept
    compiled(0, ("LDC",))  # which is not looked at
    check(0)
    kept[0].write_text("{}")  # damaged, so that it is made again
    check(1)
    for module, name in ((cuda_compiler, "nvrtc_version"), (cuda_tools, "disassembler_key")):
        compiled(0, good)
        monkeypatch.setattr(module, name, lambda: ("another",))
        check(0)
        compiled(0, ("LDC",))
        check(0)
    monkeypatch.setattr(cuda_tools, "disassembler_key", lambda: "a third")
    check(1)
    assert list(cache.iterdir())
    cli("cache", "clear", status=0)
    assert not list(cache.iterdir())


def test_a_machine_without_the_bindings_learns_what_to_install(cli, monkeypatch):
    monkeypatch.setattr(CudaProvider, "available", lambda self: "cuda-bindings not installed")
    assert "cuda-bindings not installed" in cli("kernels", "check", status=2).stderr
