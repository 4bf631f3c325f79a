"""Tests of ``kill -9`` at random moments: no stored sample is lost or taken twice, no worker stays.

The first moments are times, so that they hit the start; the others come when some more rounds are
stored, however slow the machine is.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

from gemmetry.domain.errors import Outcome
from gemmetry.engine import run
from gemmetry.engine.experiment import Experiment

TARGET = Path(__file__).with_name("kill_target.py")
EARLY_KILLS = 2
PATIENCE_S = 300.0
"""How long an event that must happen may take on a loaded machine."""
Rounds = dict[tuple[int, int], bytes]


def stored_rounds(folder: Path) -> Rounds:
    """(dispatch, round) -> samples, as the journal has them."""
    if not (folder / "journal.sqlite").exists():
        return {}
    connection = sqlite3.connect(f"file:{folder / 'journal.sqlite'}?mode=ro", uri=True)
    try:
        rows = connection.execute("SELECT dispatch, round, samples FROM rounds").fetchall()
    finally:
        connection.close()
    return {(dispatch, number): samples for dispatch, number, samples in rows}


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


def kill_target() -> ModuleType:
    """The module that is killed."""
    spec = importlib.util.spec_from_file_location("kill_target", TARGET)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wait_for_rounds(process: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """Until the journal holds `count` rounds."""
    until = time.monotonic() + PATIENCE_S
    while len(stored_rounds(folder)) < count and process.poll() is None:
        assert time.monotonic() < until, "the run gets nowhere"
        time.sleep(0.01)


def kill(process: subprocess.Popen[bytes], folder: Path, before: Rounds) -> Rounds:
    """Kills the run; the rounds that are stored, those from `before` among them."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    now = stored_rounds(folder)
    assert before.items() <= now.items(), "what was stored is still there, unchanged"
    return now


def test_kill_at_random_moments(tmp_path):
    """It starts a program and its workers six times, which takes most of its time."""
    folder = tmp_path / "experiment"
    marker = f"KILL_TEST={os.getpid()}-{tmp_path}"
    environment = {**os.environ, "KILL_TEST": marker.partition("=")[2]}
    moments = random.Random(4)
    before: Rounds = {}
    for number in range(6):
        process = subprocess.Popen(
            [sys.executable, str(TARGET), str(folder)], env=environment, start_new_session=True
        )
        if number < EARLY_KILLS:
            time.sleep(moments.uniform(0.1, 1.0))
        else:
            wait_for_rounds(process, folder, len(before) + moments.randint(1, 25))
            time.sleep(moments.uniform(0.0, 0.1))
        before = kill(process, folder, before)
        deadline = time.monotonic() + PATIENCE_S
        while workers_with(marker.encode()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert workers_with(marker.encode()) == [], "workers end with their parent"
    assert before, "the run got far enough to be worth killing"

    summary = run(kill_target().make_plan(), folder)
    assert (summary.kept, summary.samples_kept) != (0, 0)
    assert summary.finished == summary.total == 144
    assert summary.outcomes == {
        Outcome.OK: 96, Outcome.WRONG: 24, Outcome.COMPILE_ERROR: 24
    }  # fmt: skip
    final = stored_rounds(folder)
    assert before.items() <= final.items()
    firsts = {(dispatch, 0) for dispatch, _ in final}
    followers = {(dispatch, number + 1) for dispatch, number in final}
    assert final.keys() <= firsts | followers, "no round is missing"
    assert firsts <= final.keys()
    with Experiment.open(folder) as experiment:
        records = list(experiment.records())
        assert len({record.key for record in records}) == 144
        for record in records:
            if record.outcome is Outcome.OK:
                samples = experiment.samples(record)
                assert len(samples) == record.measurement.sample_count == 20


def test_kills_while_an_experiment_grows(tmp_path):
    """Whenever a kill comes, what was stored stays, and the last command completes the run."""
    folder = tmp_path / "experiment"
    moments = random.Random(5)
    before: Rounds = {}
    for largest in (9, 10, 12):
        process = subprocess.Popen(
            [sys.executable, str(TARGET), str(folder), str(largest)], start_new_session=True
        )
        wait_for_rounds(process, folder, len(before) + moments.randint(1, 6))
        before = kill(process, folder, before)
    assert before
    summary = run(kill_target().make_plan(13), folder)
    assert summary.finished == summary.total == 5 * 6
    assert before.items() <= stored_rounds(folder).items()
