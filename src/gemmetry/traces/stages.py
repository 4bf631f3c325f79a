"""How long each stage of a request took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stage(times: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds of a block to `times`, less those that stages within it told."""
    told, begin = sum(times.values()), time.perf_counter()
    try:
        yield
    finally:
        told = sum(times.values()) - told
        times[name] = times.get(name, 0.0) + time.perf_counter() - begin - told
