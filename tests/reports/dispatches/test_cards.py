from __future__ import annotations

import pytest

from gemmetry.dispatches.page import cards

NAMES = [f"matmul_{n}x{n}x{n}_f32t_f32t_f32t" for n in (64, 128, 256, 512)]


@pytest.fixture
def card(make_record):
    def make(table, baseline="torch"):
        records = [
            make_record(name, provider=provider, gflops=speed)
            for provider, row in table.items()
            for name, speed in zip(NAMES, row, strict=False)
            if speed is not None
        ]
        (found,) = cards(records, baseline)
        return found

    return make


def test_providers_are_compared_on_the_operations_that_all_measured(card):
    found = card({"torch": (100, 100, 100), "iree": (400, 100, None)})
    assert (found["operations"], found["against"]) == (2, "torch")
    assert [(r["provider"], r["ratio"]) for r in found["rows"]] == [("iree", "2.00×"),
                                                                   ("torch", "1.00×")]  # fmt: skip
    assert [r["share"] for r in found["rows"]] == pytest.approx([1.0, 0.5])
    assert found["top"] == "top 400 GFLOP/s, 150% of the roofline: iree 64×64×64"


def test_who_measured_too_little_is_left_out_and_named(card):
    found = card({"torch": (100,) * 4, "iree": (200,) * 4, "numpy": (50,)})
    assert (found["operations"], found["left_out"]) == (4, ["numpy"])
    assert [row["provider"] for row in found["rows"]] == ["iree", "torch"]


def test_without_the_baseline_the_fastest_is_one(card):
    found = card({"triton": (100, 100), "iree": (200, 200)}, baseline="torch")
    assert found["against"] == ""
    assert [row["ratio"] for row in found["rows"]] == ["1.00×", "0.50×"]


def test_a_lone_provider_has_its_top_speed_only(card):
    found = card({"torch": (100, 200)})
    assert found["rows"] == []
    assert found["top"].startswith("top 200 GFLOP/s")


def test_types_and_targets_have_cards_of_their_own(make_record):
    other = {"target": "cuda-sm_90", "device": "cuda:0"}
    records = [make_record(NAMES[0]), make_record("matmul_8x8x8_bf16t_bf16t_f32t"),
               make_record(NAMES[0], **other)]  # fmt: skip
    labels = [one["label"] for one in cards(records, "")]
    assert labels == ["f32 · cpu", "bf16→f32 · cpu", "f32 · cuda-sm_90"]
