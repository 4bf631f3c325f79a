"""The best way to run each collective, and what a tuner is given of it."""

from __future__ import annotations

import pytest

from gemmetry.sweeps.points import analyse_sweep
from gemmetry.sweeps.tuner import tuned_collectives


def test_records_of_nccl_have_precedence_where_every_point_has_them(sweeps, tmp_path, records):
    made = [
        sweeps.MadePoint(steps=1, layers=3, channels=channels, repeat=repeat, elements=1 << 23)
        for channels in (4, 8) for repeat in (1, 2)
    ]  # fmt: skip
    folder = sweeps.write_sweep(tmp_path / "sweep", made)
    for point in made:
        for rank in range(2):
            durations = [1000 // point.channels + point.repeat] * 5
            records(sweeps.point_folder(folder, point) / "nccl", rank, durations)
    (one,) = tuned_collectives(analyse_sweep(folder))
    assert (one.source, one.nodes, one.way.channels) == ("nccl_records", 1, 8)
    assert one.best.mean_ms == pytest.approx((0.126 * 0.127) ** 0.5)
    assert one.best.steps == 10
