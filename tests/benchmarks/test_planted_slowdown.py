from __future__ import annotations

from types import SimpleNamespace

import planted_slowdown
import pytest
import torch
from slowed_product import product


def test_extra_work_leaves_the_product_as_it_is() -> None:
    a, b = torch.rand(9, 7), torch.rand(7, 5)
    for more in ({"copy": 3}, {"rows": 4, "columns": 3}):
        c = torch.full((9, 5), torch.nan)
        product(a, b, c, **more)
        torch.testing.assert_close(c, a @ b)


def test_choice_is_nearest_to_the_target() -> None:
    def ratio(rows: int, columns: int, seconds: float) -> planted_slowdown.Truth:
        return planted_slowdown.Truth(*[1 + rows * columns / 1000] * 3, 1, 1)

    tried, launches = [(1, 5), (2, 5), (10, 5)], SimpleNamespace(ratio=ratio)
    assert planted_slowdown.choose(launches, tried, 0.012) == (2, 5)  # type: ignore[arg-type]


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
