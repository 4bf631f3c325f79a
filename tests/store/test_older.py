from __future__ import annotations

import dataclasses

import pytest

from gemmetry.engine.experiment import Experiment
from gemmetry.engine.schema import without_unfounded_interval


@pytest.mark.parametrize(
    ("count", "effective", "is_kept"),
    [(1, None, False), (5, 5.0, False), (300, 5.9, False), (6, None, True), (300, 6.0, True)],
)
def test_intervals_that_samples_are_too_few_for_are_dropped(make_record, count, effective, is_kept):
    record = make_record()
    measurement = dataclasses.replace(
        record.measurement, sample_count=count, effective_samples=effective
    )
    record = dataclasses.replace(record, measurement=measurement)
    found = without_unfounded_interval(record).measurement
    assert (found.ci_low_ns, found.ci_high_ns) == ((1.0, 3.0) if is_kept else (None, None))
    assert dataclasses.replace(found, ci_low_ns=1.0, ci_high_ns=3.0) == measurement


def test_records_of_earlier_versions_are_read_so(tmp_path, open_experiment, make_record):
    """A single sample was stored with an interval that was a point."""
    record = make_record()
    point = dataclasses.replace(record.measurement, ci_low_ns=2.0, ci_high_ns=2.0, sample_count=1)
    with open_experiment(tmp_path) as experiment:
        experiment.finish({1: dataclasses.replace(record, measurement=point)})
    stored = Experiment.open(tmp_path)
    [read] = stored.records()
    stored.close()
    assert read.measurement.median_ns == 2.0
    assert read.measurement.ci_low_ns is read.measurement.ci_high_ns is None
