"""Converts records stored by earlier versions to this version's form."""

from __future__ import annotations

from dataclasses import replace

from gemmetry.domain.record import Record
from gemmetry.statistics.intervals import minimum_samples


def without_unfounded_interval(record: Record) -> Record:
    """The record without an interval of the median for which it has too few samples: earlier
    versions stored [min, max] instead, which is a point for a single sample."""
    m = record.measurement
    if m is None or m.ci_low_ns is None:
        return record
    worth = m.sample_count if m.effective_samples is None else m.effective_samples
    if int(worth) >= minimum_samples():
        return record
    return replace(record, measurement=replace(m, ci_low_ns=None, ci_high_ns=None))
