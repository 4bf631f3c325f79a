from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

import run
from planted_kernels import KERNELS, Planted

BY_NAME = {planted.name: planted for planted in KERNELS}


@pytest.mark.parametrize("name", ["fma", "special_functions", "atomics"])
def test_a_wrong_word_is_found(name: str) -> None:
    planted = BY_NAME[name]
    launch = replace(planted.severe, steps=64)
    work, given = launch.work(2), planted.given("severe")
    words = planted.words or 2 * launch.threads
    written = planted.formula(work, given, np.arange(words)).view(np.uint32).copy()
    assert run.wrong(planted, work, given, written) == ""
    written[-1] ^= 1 << 16
    problem = run.wrong(planted, work, given, written)
    assert f"words differ, the first at {words - 1}: " in problem


def test_without_a_driver_the_need_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(flags: int) -> None:
        raise RuntimeError("no driver library")

    monkeypatch.setattr(run.driver, "cuInit", missing)
    with pytest.raises(SystemExit, match="need an NVIDIA GPU: no driver library"):
        run.main(["--only", "fma"])


def test_all_kernels_run_and_a_wrong_one_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(planted: Planted, variant: str, architecture: str, launches: int) -> run.Row:
        if planted.name == "dram":
            raise SystemExit(f"dram_{variant} computed something else: 3 of 5 words differ")
        name = f"{planted.name}_{variant}"
        return run.Row(name, planted.cause, 2, 256, 40, 0, 8, 123.45)

    @run.contextmanager
    def opened() -> object:
        yield "sm_90"

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "first_gpu", opened)
    with pytest.raises(SystemExit, match="1 kernels computed something else"):
        run.main(["--variant", "severe"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(KERNELS)
    assert sum("123.5" in line or "123.4" in line for line in lines) == len(KERNELS) - 1
