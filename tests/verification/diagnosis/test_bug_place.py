from __future__ import annotations

import numpy as np
import pytest

from gemmetry.verification.guess import place_of


def place(*regions, shape=(100, 96), tile=None):
    bad = np.zeros(shape, dtype=bool)
    for region in regions:
        bad[region] = True
    return place_of(bad, tile)


@pytest.mark.parametrize(
    ("regions", "tile", "words"),
    [
        ([(3, 4)], None, "one element"),
        ([np.s_[96:]], None, "tail: only rows from 96 on are wrong"),
        ([np.s_[96:]], (32, 32), "tail: wrong exactly in the last partial tile row (rows 96–99; "
         "tiles have 32)"),
        ([np.s_[96:99], np.s_[99, ::2]], (32, 32), "tail: wrong only in the last partial tile row"),
        ([np.s_[:, 64:]], (32, 32), "tail: wrong exactly in the last tile column (columns 64–95"),
        ([np.s_[90:]], (32, 32), "tail: only rows from 90 on are wrong"),
        ([np.s_[32:64, 64:96]], (32, 32), "index: one tile of 32 × 32 is wrong, at (1, 2)"),
        ([np.s_[96:, 64:96]], (32, 32), "at (3, 2), the last"),
        ([np.s_[:32, 32:64], np.s_[32:64, 64:96]], (32, 32), "2 of 12 tiles of 32 × 32 are wrong: "
         "(0, 1), (1, 2)"),
        ([np.s_[64:96, 64:96], np.s_[96:]], (32, 32), "the last 4 of 12 tiles"),
        ([np.s_[:, :32]], (32, 32), "index: every 3rd tile of 32 × 32 is wrong, from (0, 0) on"),
        ([np.s_[[i for i in range(100) if i % 16 >= 8]]], None,
         "index: wrong in rows 8–15 of every 16: a period that suggests fragments"),
        ([np.s_[:, 1::2]], (32, 32), "index: wrong in columns 1 of every 2"),
        ([np.s_[8:16, 16:32]], (32, 32), "index: wrong only in rows 8–15, columns 16–31"),
        ([(1, 90), (30, 2), (62, 31)], None, ""),
        ([np.s_[:]], (32, 32), ""),
        ([np.s_[:]], None, ""),
    ],
)  # fmt: skip
def test_places(regions, tile, words):
    found = place(*regions, tile=tile)
    assert words in found
    assert bool(found) is bool(words)


def test_elements_that_are_right_by_chance_do_not_hide_a_tile():
    bad = np.zeros((64, 64), dtype=bool)
    bad[32:, :32] = np.random.default_rng(1).random((32, 32)) > 0.03
    assert "one tile of 32 × 32" in place_of(bad, (32, 32))
