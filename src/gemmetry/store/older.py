"""Records as earlier versions stored them, shown as this version would."""

from __future__ import annotations

from dataclasses import replace

from gemmetry.domain.record import Record
from gemmetry.statistics.intervals import minimum_samples


def without_unfounded_interval(record: Record) -> Record:
    """The record without an interval of the median that its samples are too few for: earlier
    versions stored [min, max] then, of a single sample a point."""
    m = record.measurement
    if m is None or m.ci_low_ns is None:
        return record
    worth = m.sample_count if m.effective_samples is None else m.effective_samples
    if int(worth) >= minimum_samples():
        return record
    return replace(record, measurement=replace(m, ci_low_ns=None, ci_high_ns=None))
