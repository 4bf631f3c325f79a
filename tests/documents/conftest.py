"""The recordings of the tests of traces, whose sheets these tests examine."""

from __future__ import annotations

from tests.traces.conftest import made_ranks, made_traces, read_real, recording  # noqa: F401
