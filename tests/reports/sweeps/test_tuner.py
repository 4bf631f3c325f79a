"""The evidence for the settings of collectives, as the tuner plugin's file contains it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.tuner import tuned_collectives, tuned_sentences, tuner_text


@pytest.fixture(scope="module")
def tuned(sweeps, tmp_path_factory):
    """An all-gather that is faster on more channels, in three repeats that differ by 1 %."""
    points = [
        sweeps.MadePoint(channels=channels, repeat=repeat, steps=1, layers=3, ranks=2,
                         comm_ns=duration + (repeat - 2) * duration // 100)
        for channels, duration in ((4, 400_000), (16, 300_000)) for repeat in (1, 2, 3)
    ]  # fmt: skip
    (one,) = tuned_collectives(
        analyse_sweep(sweeps.write_sweep(tmp_path_factory.mktemp("tuned"), points))
    )
    return one


def test_the_file_has_a_line_for_what_is_shown_and_comments_for_the_rest(tuned):
    text = tuner_text("made", [tuned, replace(tuned, bytes=1 << 20, rival=None)])
    assert "from the sweep made." in text
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == ["allgather,16777216,67108864,ring,simple,16,-1,2,-1,-1"]
    assert "# all-gather of 1 MiB on 2 ranks" in text


def test_sentences_count(tuned):
    (counted,) = tuned_sentences([tuned])
    assert "1 of 1" in counted
    alone = replace(tuned, rival=None)
    (counted, reason) = tuned_sentences([tuned, alone])
    assert "1 of 2" in counted and f"1, {alone.obstacle}" in reason
