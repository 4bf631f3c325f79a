from __future__ import annotations

import planted_slowdown
import pytest
import torch
from slowed_product import product


def test_extra_work_leaves_the_product_as_it_is() -> None:
    a, b = torch.rand(9, 7), torch.rand(7, 5)
    plain, slowed = torch.full((9, 5), torch.nan), torch.full((9, 5), torch.nan)
    product(a, b, plain, copy=3)
    product(a, b, slowed, rows=4, columns=3)
    torch.testing.assert_close(plain, a @ b)
    torch.testing.assert_close(slowed, a @ b)


def test_choice_is_nearest_to_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    class Launches:
        def ratio(self, rows: int, columns: int, seconds: float) -> planted_slowdown.Truth:
            ratio = 1 + rows * columns / 1000
            return planted_slowdown.Truth(ratio, ratio, ratio, 1, 1)

    tried = [(1, 5), (2, 5), (10, 5)]
    assert planted_slowdown.choose(Launches(), tried, 0.012) == (2, 5)  # type: ignore[arg-type]


def test_independent_ratio_is_of_blocks_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def seconds(_: object, count: int, rows: int, columns: int) -> float:
        order.append("B" if rows else "A")
        drift = 1 + 0.01 * len(order)
        return count * 1e-3 * drift * (1.05 if rows else 1.0)

    monkeypatch.setattr(planted_slowdown.Launches, "seconds", seconds)
    launches = planted_slowdown.Launches("8x8x8", "f32", "cpu")
    truth = launches.ratio(2, 2, seconds=0.0)
    assert "".join(order[2:]) == "ABBA" * 12  # after the warm-up and the estimate of a launch
    assert truth.blocks == 12
    assert truth.launches_per_block == round(planted_slowdown.BLOCK_S / 1e-3 / 1.02)
    assert truth.low <= truth.ratio <= truth.high
    assert truth.ratio == pytest.approx(1.05)  # steady drift cancels
