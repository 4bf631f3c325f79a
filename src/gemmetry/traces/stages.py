"""Measures the duration of each stage of a request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stage(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the duration of a block in seconds to `times`, less that of the stages within it."""
    counted, begin = sum(times.values()), time.perf_counter()
    try:
        yield
    finally:
        counted = sum(times.values()) - counted
        times[name] = times.get(name, 0.0) + time.perf_counter() - begin - counted
