"""What the tests of imported results share."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def usual_longest_field() -> Iterator[None]:
    """Python's own limit of a CSV field: it is one of the process, and other readers raise it."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)
