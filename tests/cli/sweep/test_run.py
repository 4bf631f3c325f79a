"""``gemmetry sweep run``, with a training command that takes milliseconds."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from pathlib import Path

TRACE = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}]}'
PATIENCE_S = 60.0

GOOD = shlex.join(["sh", "-c", f"echo '{TRACE}' > $GEMMETRY_TRACE_DIR/rank0.pt.trace.json"])


def test_a_dry_run_of_an_existing_sweep_marks_what_is_kept(cli):
    def sweep(threads, *words):
        return cli("sweep", "run", "--threads", threads, "--channels", "1,2", "--library", "nccl",
                   "--order", "given", "-o", "sweep", "--command", GOOD, *words,
                   status=0)  # fmt: skip

    sweep("256")
    assert "2 from an earlier run kept" in sweep("256").stderr
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert sweep("256,512", "--dry-run").stdout.splitlines()[:6] == [
        "2 of 4 points would run, in this order; 2 have succeeded earlier:",
        "  256thread/nccl_1channels  (kept)",
        "  256thread/nccl_2channels  (kept)",
        "  512thread/nccl_1channels",
        "  512thread/nccl_2channels",
        "environment of 512thread/nccl_1channels:",
    ]
    points = json.loads(sweep("256,512", "--dry-run", "--json").stdout)["points"]
    assert [one["kept"] for one in points] == [True, True, False, False]
    fresh = sweep("256,512", "--dry-run", "--fresh").stdout
    assert fresh.startswith("4 points would run, in this order:") and "kept" not in fresh
    whole = sweep("256", "--dry-run").stdout
    assert whole.splitlines()[0] == "no point would run: all have succeeded earlier:"
    assert "environment of" not in whole
    trace = Path("sweep/256thread/nccl_1channels/torch_profiler/rank0.pt.trace.json")
    trace.unlink()
    assert sweep("256", "--dry-run").stdout.splitlines()[1] == "  256thread/nccl_1channels"
    before.pop(trace)
    assert before == {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_a_signal_ends_the_training_and_keeps_the_rest(spawn, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        "if [ $GEMMETRY_THREADS = 256 ]; then\n"
        f"  echo '{TRACE}' > $GEMMETRY_TRACE_DIR/rank0.pt.trace.json\n"
        "else echo $$ > pid; sleep 1000; fi\n"
    )
    process = spawn(
        "sweep", "run", "--threads", "256,512", "--order", "given", "--library", "nccl",
        "-o", "sweep", "--command", f"sh {script}",
    )  # fmt: skip
    ends = time.monotonic() + PATIENCE_S
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text()):
        assert process.poll() is None and time.monotonic() < ends
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert "interrupted: 1 of 2 points has its traces in sweep" in errors
    assert "hint: Continue it: the same command with -o sweep." in errors
    point = json.loads((tmp_path / "sweep/512thread/point.json").read_text())
    assert point["outcome"] == "interrupted"
    if sys.platform.startswith("linux"):
        assert not Path("/proc", pid.read_text().strip(), "stat").exists()
