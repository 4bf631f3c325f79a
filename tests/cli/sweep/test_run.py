"""``gemmetry sweep run``, with a training command that takes milliseconds."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from pathlib import Path

from gemmetry.sweeps.run import JobProgress

TRACE = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}]}'
PATIENCE_S = 60.0

GOOD = shlex.join(["sh", "-c", f"echo '{TRACE}' > $GEMMETRY_TRACE_DIR/rank0.pt.trace.json"])
OPTIONS = ("--threads", "256,512", "--channels", "1,2", "--library", "nccl", "-o", "sweep")


def test_a_dry_run_of_an_existing_sweep_marks_what_is_kept(cli):
    some = ("--threads", "256", "--channels", "1,2", "--library", "nccl", "-o", "sweep")
    assert cli("sweep", "run", *some, "--command", GOOD).status == 0
    again = cli("sweep", "run", *some, "--command", GOOD)
    assert again.status == 0 and "2 from an earlier run kept" in again.stderr
    command = (*OPTIONS, "--order", "given", "--command", GOOD, "--dry-run")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    lines = cli("sweep", "run", *command).stdout.splitlines()
    assert lines[:6] == [
        "2 of 4 points would run, in this order; 2 have succeeded earlier:",
        "  256thread/nccl_1channels  (kept)",
        "  256thread/nccl_2channels  (kept)",
        "  512thread/nccl_1channels",
        "  512thread/nccl_2channels",
        "environment of 512thread/nccl_1channels:",
    ]
    points = json.loads(cli("sweep", "run", *command, "--json").stdout)["points"]
    assert [one["kept"] for one in points] == [True, True, False, False]
    fresh = cli("sweep", "run", *command, "--fresh").stdout
    assert fresh.startswith("4 points would run, in this order:") and "kept" not in fresh
    whole = cli("sweep", "run", *some, "--order", "given", "--command", GOOD, "--dry-run").stdout
    assert whole.splitlines()[0] == "no point would run: all have succeeded earlier:"
    assert "environment of" not in whole
    (Path("sweep") / "256thread/nccl_1channels/torch_profiler/rank0.pt.trace.json").unlink()
    lines = cli("sweep", "run", *command).stdout.splitlines()
    assert lines[1] == "  256thread/nccl_1channels"
    before.pop(Path("sweep/256thread/nccl_1channels/torch_profiler/rank0.pt.trace.json"))
    assert before == {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def test_an_interrupt_names_what_is_there_and_how_to_continue(cli, monkeypatch):
    class Interrupted(JobProgress):
        def __call__(self, event):
            super().__call__(event)
            if getattr(event, "end", None) is not None and event.number == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr("gemmetry.sweeps.run.JobProgress", Interrupted)
    ended = cli("sweep", "run", *OPTIONS, "--command", GOOD, status=130)
    assert "interrupted: 2 of 4 points have their traces in sweep" in ended.stderr
    assert "hint: Continue it: the same command with -o sweep." in ended.stderr
    monkeypatch.undo()


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
    assert "1 of 2 points has its traces in sweep" in errors
    point = json.loads((tmp_path / "sweep/512thread/point.json").read_text())
    assert point["outcome"] == "interrupted"
    if sys.platform.startswith("linux"):
        stat = Path("/proc", pid.read_text().strip(), "stat")
        assert not stat.exists()
