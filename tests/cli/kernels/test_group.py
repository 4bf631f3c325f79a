"""Tests of ``gemmetry kernels list`` and ``gemmetry kernels check``."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmetry.devices import cuda_compiler, cuda_tools
from gemmetry.devices.cuda_compiler import Cubin
from gemmetry.providers.cuda_provider.launching import catalogue
from gemmetry.providers.cuda_provider.provider import CudaProvider

LOG = """\
Compiling entry function 'gemm' for 'sm_90a'
{spilled} bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads
Used 40 registers
"""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """compiled(spilled, instructions): what the compiler and the disassembler find from then on."""

    def use(spilled: int, names: tuple[str, ...] | None) -> None:
        cubin = Cubin(b"", LOG.format(spilled=spilled))
        monkeypatch.setattr(cuda_compiler, "compile_kept", lambda *_, **__: cubin)

        def instructions(code: bytes) -> frozenset[str]:
            if names is None:
                raise cuda_tools.NoDisassemblerError("there is no nvdisasm")
            return frozenset(names)

        monkeypatch.setattr(cuda_tools, "instructions_of", instructions)

    return use


def test_every_kernel_is_listed_the_ladder_first(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = cli("kernels", "list")
    lines = ended.stdout.splitlines()
    assert ended.status == 0 and max(map(len, lines)) <= 80
    assert lines[:3] == ["r00_naive (rung 0)", "    one thread computes everything", "    r00"]
    rows = json.loads(cli("kernels", "list", "--json").stdout)["kernels"]
    assert {row["name"] for row in rows} == {kernel.name for kernel in catalogue.kernels()}
    assert all(row["adds"] and row["configurations"] for row in rows)


def test_a_good_kernel_passes(cli, compiled):
    compiled(0, ())
    ended = cli("kernels", "check", "--kernel", "r01*")
    assert ended.status == 0
    assert ended.stdout.splitlines() == [
        "r01_thread_per_output: ok, 4 compilations",
        "    40 registers, no shared memory",
    ]


def test_spilled_registers_fail_with_the_configuration(cli, compiled):
    compiled(24, ())
    ended = cli("kernels", "check", "--kernel", "r01*")
    assert ended.status == 1
    assert "r01_thread_per_output: 4 of 4 failed" in ended.stdout
    assert "    r01: spills 24 bytes of registers" in ended.stdout


def test_the_document_has_what_a_gate_needs(cli, compiled):
    compiled(24, ())
    ended = cli("kernels", "check", "--kernel", "r0[01]*", "--json", "--jobs", "1")
    rows = json.loads(ended.stdout)["kernels"]
    names = {row["name"] for row in rows}
    assert ended.status == 1 and names == {"r00_naive", "r01_thread_per_output"}
    row = rows[0]
    expected = {
        "name": "r00_naive", "rung": 0, "arch": "sm_90a", "registers": 40, "spill_bytes": 24,
        "local_bytes": 24, "shared_bytes": 0, "expected_instructions": [],
        "missing_instructions": [], "status": "failed",
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert row["problems"]


def test_instructions_that_were_not_checked_have_no_value(cli, compiled, monkeypatch):
    kernel = next(one for one in catalogue.kernels() if one.key == "r01")
    monkeypatch.setattr(catalogue, "kernels", lambda: (replace(kernel, instructions=("FFMA",)),))
    compiled(0, None)
    (row, *_) = json.loads(cli("kernels", "check", "--json").stdout)["kernels"]
    assert row["missing_instructions"] is None
    assert row["not_disassembled"] == "there is no nvdisasm"
    ended = cli("kernels", "check")
    assert ended.status == 0
    assert "Instructions were not checked: there is no nvdisasm" in ended.stdout
    assert "FFMA" not in ended.stdout
    compiled(0, ("FFMA", "LDC"))
    assert "FFMA" in cli("kernels", "check").stdout


def test_a_name_that_no_kernel_has_is_refused(cli):
    ended = cli("kernels", "check", "--kernel", "nothing*")
    assert ended.status == 2 and "gemmetry kernels list" in ended.stderr


def test_a_machine_without_the_bindings_learns_what_to_install(cli, monkeypatch):
    monkeypatch.setattr(CudaProvider, "available", lambda self: "cuda-bindings not installed")
    ended = cli("kernels", "check")
    assert ended.status == 2 and "cuda-bindings not installed" in ended.stderr
