"""A training command that takes milliseconds, for sweeps."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

TRACE = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}]}'

SCRIPT = f"""
echo "$GEMMETRY_THREADS/$GEMMETRY_CHANNELS/$GEMMETRY_REPEAT $NCCL_NTHREADS $*"
echo "$GEMMETRY_OUTPUT" >> runs
if [ -e "fail-$GEMMETRY_THREADS-$GEMMETRY_CHANNELS" ]; then
  echo "RuntimeError: it fails" >&2
  exit 1
fi
if [ -e "hang-$GEMMETRY_THREADS-$GEMMETRY_CHANNELS" ]; then
  touch hanging
  sleep 1000
fi
if [ -e silent ]; then exit 0; fi
for rank in 0 1; do
  mkdir -p "$GEMMETRY_TRACE_DIR/rank$rank"
  echo '{TRACE}' > "$GEMMETRY_TRACE_DIR/rank$rank/t.pt.trace.json"
done
"""


@pytest.fixture
def training(tmp_path, monkeypatch) -> str:
    """A command that writes two traces. It notes the folder of each run in the file ``runs`` of the
    working folder; files there called ``fail-256-8``, ``hang-256-8`` and ``silent`` change what it
    does."""
    monkeypatch.chdir(tmp_path)
    script = Path(tmp_path, "train.sh")
    script.write_text(SCRIPT)
    return shlex.join(["sh", str(script)])
