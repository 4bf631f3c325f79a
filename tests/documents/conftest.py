"""The recordings of the tests of traces, whose sheets these tests examine."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_SPEC = spec_from_file_location("recordings", Path(__file__).parents[1] / "traces" / "conftest.py")
assert _SPEC is not None and _SPEC.loader is not None
_recordings = module_from_spec(_SPEC)
_SPEC.loader.exec_module(_recordings)

read_real, recording = _recordings.read_real, _recordings.recording
made_traces, made_ranks = _recordings.made_traces, _recordings.made_ranks
