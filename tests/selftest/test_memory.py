from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.selftest.memory import memory_before, memory_behind

TM, TN, TK = 64, 64, 32


@pytest.mark.parametrize(
    ("slug", "shape", "rows", "columns"),
    [
        ("m_tail_skipped", (TM + 3, TN, TK), slice(TM, None), slice(None)),
        ("n_tail_skipped", (TM, TN + 3, TK), slice(None), slice(TN, None)),
        ("columns_past_192_dropped", (TM, 192 + 9, TK), slice(None), slice(192, None)),
        ("k_tail_dropped", (TM, TN, TK + 1), slice(None), slice(None)),
        ("odd_tile_skipped", (TM, 3 * TN, TK), slice(None), slice(2 * TN, None)),
        ("full_last_wave_skipped", (TM, 2 * TN, TK), slice(None), slice(None)),
    ],
)
def test_exactly_these_elements_are_wrong(
    plant: Any, slug: str, shape: tuple[int, int, int], rows: slice, columns: slice
) -> None:
    expected = np.zeros(shape[:2], np.bool_)
    expected[rows, columns] = True
    assert (plant(slug, shape).wrong() == expected).all()


def test_a_hanging_kernel_waits_forever(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise TimeoutError

    monkeypatch.setattr("gemmetry.selftest.memory.time.sleep", sleep)
    with pytest.raises(TimeoutError):
        plant("hangs").launch()
    assert sum(slept) >= 3


def test_memory_before_stays_within_the_allocation() -> None:
    memory = np.arange(10, dtype=np.float32)
    assert memory_before(memory[2:6], 1).tolist() == [1]
    assert memory_before(memory[2:6], 5).tolist() == [0, 1]
    assert memory_before(memory, 5).size == 0


def test_memory_behind_stays_within_the_allocation() -> None:
    memory = np.arange(10, dtype=np.float32)
    assert memory_behind(memory[2:6], 2).tolist() == [6, 7]
    assert memory_behind(memory[2:6], 100).tolist() == [6, 7, 8, 9]
    assert memory_behind(memory[2:6], -1).size == 0
    assert memory_behind(memory, 5).size == 0
