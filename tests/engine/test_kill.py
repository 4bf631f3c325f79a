"""Tests of ``kill -9`` at random moments: no stored sample is lost or taken twice, no worker stays.

The first moments are times, so that they hit the start; the others come when some more rounds are
stored, however slow the machine is.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.engine import kill_target

from gemmetry.domain.errors import Outcome
from gemmetry.engine import run
from gemmetry.engine.experiment import Experiment

EARLY_KILLS = 2


def workers_with(marker: bytes) -> list[int]:
    """Processes of workers that have `marker` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"gemmetry.engine.worker" not in (folder / "cmdline").read_bytes():
                continue
            if marker in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def test_kills_at_random_moments_while_the_experiment_grows(tmp_path, stored_rounds, wait_until):
    """Whenever a kill comes, what was stored stays, and the last command completes the run. It
    starts a program and its workers six times, which takes most of its time."""
    folder = tmp_path / "experiment"
    marker = f"{os.getpid()}-{tmp_path}"
    moments = random.Random(4)

    def run_and_kill(end, *, early):
        wanted = len(stored_rounds(folder)) + moments.randint(1, 25)
        process = subprocess.Popen(
            [sys.executable, kill_target.__file__, str(folder), str(end)],
            env={**os.environ, "KILL_TEST": marker}, start_new_session=True,
        )  # fmt: skip
        if not early:
            wait_until(lambda: len(stored_rounds(folder)) >= wanted or process.poll() is not None)
        time.sleep(moments.uniform(0.1, 1.0) if early else moments.uniform(0.0, 0.1))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: not workers_with(f"KILL_TEST={marker}".encode()))

    before = {}
    for number, end in enumerate((16, 16, 16, 20, 24, 24)):
        run_and_kill(end, early=number < EARLY_KILLS)
        now = stored_rounds(folder)
        assert before.items() <= now.items(), "what was stored is still there, unchanged"
        before = now
    assert before, "the run got far enough to be worth killing"

    summary = run(kill_target.make_plan(32), folder)
    assert (summary.kept, summary.samples_kept) != (0, 0)
    assert summary.finished == summary.total == 144
    assert summary.outcomes == {Outcome.OK: 96, Outcome.WRONG: 24, Outcome.COMPILE_ERROR: 24}
    final = stored_rounds(folder)
    assert before.items() <= final.items()
    firsts = {(dispatch, 0) for dispatch, _ in final}
    followers = {(dispatch, number + 1) for dispatch, number in final}
    assert firsts <= final.keys() <= firsts | followers, "no round is missing"
    with Experiment.open(folder) as experiment:
        records = list(experiment.records())
        assert len({record.key for record in records}) == 144
        for record in records:
            if record.outcome is Outcome.OK:
                samples = experiment.samples(record)
                assert len(samples) == record.measurement.sample_count == 20
