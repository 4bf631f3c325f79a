from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

import run
from planted_kernels import KERNELS

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
