from __future__ import annotations

import pytest
from false_verdicts import NOISES, RELEVANT, simulate


@pytest.mark.parametrize("noise", NOISES)
def test_noise_decides_nothing_that_is_equal(noise: str) -> None:
    counts = simulate(NOISES[noise], families=4, size=10, turns=36, seed=2)
    assert counts[f"false {RELEVANT}"] == 0
    assert counts[f"decided {RELEVANT}"] >= 3
