"""The evidence for the settings of collectives, as the tuner plugin's file contains it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.tuner import (
    evidence,
    tuned_collectives,
    tuned_entry,
    tuned_sentences,
    tuner_text,
)


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


def test_evidence_names_size_ranks_points_and_source(tuned):
    text = evidence(tuned)
    assert text.startswith(
        "all-gather of 32 MiB on 2 ranks: 300.0 us with 256 threads, 16 channels (3 runs, 9 "
        "collectives, from traces); 256 threads, 4 channels takes 400.0 us, +3"
    )
    assert text.endswith("Set: faster.")


def test_evidence_of_a_single_run_without_a_line(tuned):
    best = replace(tuned.best, runs=1, steps=1)
    text = evidence(replace(tuned, source="nccl_records", ranks=1, best=best, rival=None))
    assert "on 1 rank: " in text
    assert "(1 run, 1 collective, from NCCL's records)." in text
    assert text.endswith(f"Not set: {replace(tuned, rival=None).obstacle}.")


def test_the_file_has_a_line_for_what_is_shown_and_comments_for_the_rest(tuned):
    text = tuner_text("made", [tuned, replace(tuned, bytes=1 << 20, rival=None)])
    assert "from the sweep made." in text
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == ["allgather,16777216,67108864,ring,simple,16,-1,2,-1,-1"]
    assert "# all-gather of 1 MiB on 2 ranks" in text


def test_the_entry_of_a_document(tuned):
    entry = tuned_entry(tuned)
    assert entry["is_set"] is True
    assert (entry["runs"], entry["next_runs"], entry["count"]) == (3, 3, 9)
    assert entry["ratio_ci_low"] < entry["ratio"] < entry["ratio_ci_high"]
    assert entry["ratio"] == pytest.approx(4 / 3, rel=0.01)


def test_sentences_count(tuned):
    assert tuned_sentences([tuned]) == ["A best setting is shown for 1 of 1 collective."]
    (_, reason) = tuned_sentences([tuned, replace(tuned, rival=None)])
    assert reason == f"Without one: 1, {replace(tuned, rival=None).obstacle}."
