"""Profiling from the command line with the simulated device, end to end."""

from __future__ import annotations

import io
import json
import re
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from gemmetry.engine.journal import Journal

NULL = ("profile", "--providers", "null", "--shapes", "64x64x64")


def test_a_quick_look_has_the_level_quick_unless_another_is_given(cli):
    for more, has_integers in (((), False), (("--verification-level", "standard"), True)):
        (record,) = cli.json(*NULL, "--default-config", "--quick", *more)["records"]
        assert any(mark.startswith("quick: ") for mark in record["marks"])
        assert "values" in record["checks_passed"]
        assert ("integers" in record["checks_passed"]) == has_integers
        assert "--quick" in record["reproduce"]


def test_a_spec_may_come_from_standard_input(cli, monkeypatch):
    def say(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    say("shapes: [8x16x32]\nproviders: null\n")
    read = cli("profile", "--spec", "-", "--dry-run", status=0)
    assert "null:matmul_8x16x32_f32t_f32t_f32t_default" in read.stdout
    for text, error in (
        ("shapes: [8x16x32]\nshaeps: 3\n", "error: standard input:2:1: unknown key 'shaeps'"),
        ("", "standard input is empty"),
    ):
        say(text)
        assert error in cli("profile", "--spec", "-", status=2).stderr
    assert not list(Path().iterdir())


def test_an_interrupt_ends_with_130_and_keeps_what_was_done(spawn, tmp_path):
    Path(tmp_path, "slow.yaml").write_text(
        "providers: [{name: null, options: {configurations: [slow_20]}}]\n"
        "shapes: squares\ntime_budget: 300ms\nexperiment: here\n"
    )
    process = spawn("profile", "--spec", "slow.yaml", "--verification-level", "quick")
    journal = tmp_path / "here" / "journal.sqlite"
    until = time.monotonic() + 300
    while time.monotonic() < until and process.poll() is None:
        if journal.exists() and _count(journal) > 0:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130, stderr
    assert _count(journal) > 0
    assert f"interrupted: {_count(journal)} of 18 dispatches and " in stderr


def test_an_interrupt_says_what_is_stored_and_how_to_continue(cli, monkeypatch):
    """In this process: once something is stored, and before anything is there."""
    finish = Journal.finish

    def break_off(self, records):
        finish(self, dict([*records.items()][:1]))
        if records:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "finish", break_off)
        ended = cli(*NULL, "--experiment", "here", "--fresh")
    assert (ended.status, ended.stdout) == (130, "")
    reported, hint = ended.stderr.splitlines()[-2:]
    assert re.match(r"interrupted: 1 of 2 dispatches and \d+ samples .* in here", reported)
    assert "without --fresh" in hint

    assert "1 from an earlier run are kept" in cli(*NULL, "--experiment", "here", status=0).stderr

    def at_once(*_arguments, **_values):
        raise KeyboardInterrupt

    monkeypatch.setattr("gemmetry.engine.run", at_once)
    ended = cli(*NULL, "--experiment", "there", status=130)
    assert "interrupted: nothing was stored" in ended.stderr


def _count(journal: Path) -> int:
    try:
        with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_a_device_that_disappears_ends_with_3_and_the_same_command_does_the_rest(cli):
    name = "matmul_16x16x16_f32t_f32t_f32t"
    patterns = ",".join(f"{name}_{item}" for item in ("fast", "device_lost_12", "default"))
    command = ("profile", "--providers", "null", "--dispatches", patterns, "--experiment", "e",
               "--verification-level", "standard", "--json")  # fmt: skip
    lost, again = cli(*command, status=3), cli(*command, status=1)
    assert "null is gone" in lost.stderr and "The same command continues" in lost.stderr
    before, after = (
        {one["configuration"]: one["outcome"] for one in json.loads(ended.stdout)["records"]}
        for ended in (lost, again)
    )
    assert "device_lost_12" not in before
    assert after == {"fast": "ok", "default": "ok", "device_lost_12": "crash"}


def test_blocks_with_scale_factors_are_verified_and_measured(cli):
    options = ("--mnkl 24,40,96,1 --cluster_shape_mn 2,1 --ab_dtype Float4E2M1FN --sf_dtype "
               "Float8E8M0FNU --sf_vec_size 16 --c_dtype Float16 --iterations 2")  # fmt: skip
    ended = cli("profile", "--device", "cpu", "--providers", "numpy", *options.split(), "--json",
                status=0)  # fmt: skip
    (record,) = json.loads(ended.stdout)["records"]
    assert record["operation"] == "matmul_24x40x96_e2m1t_e2m1n_f16t_vs16_e8m0"
    assert (record["outcome"], record["verification"]) == ("ok", "passed")
    assert "--cluster-shape-mn has no effect" in ended.stderr


@pytest.mark.parametrize(("refused_m", "status"), [((32, 64), 1), ((32,), 0)])
def test_a_kernel_that_never_runs_makes_the_exit_status_1_and_one_that_runs_does_not(
    cli, refused_m, status
):
    Path("mine.py").write_text(
        f"def f(a, b):\n    if len(a) in {refused_m}:\n        raise ValueError\n    return a @ b\n"
    )
    ended = cli("profile", "--providers", "numpy", "--kernel", "mine.py:f", "--dtypes", "f32",
                "--shapes", "32x32x32,64x64x64", "--quick", "--json", status=status)  # fmt: skip
    outcomes = [one["outcome"] for one in json.loads(ended.stdout)["records"]]
    assert outcomes.count("launch_error") == len(refused_m)
    assert outcomes.count("ok") == 4 - len(refused_m)


def test_a_slow_candidate_leaves_the_race_and_is_verified_as_well(cli):
    Path("slow.py").write_text(
        "import time\n\n\ndef f(a, b):\n    time.sleep(0.004)\n    return a @ b\n"
    )
    common = ("profile", "--providers", "numpy", "--dtypes", "f32", "--layouts", "tt",
              "--time-budget", "200ms")  # fmt: skip
    found = {}
    for option in ("--race", "--no-race"):
        document = cli.json(*common, "--kernel", "slow.py:f", "--shapes", "64x64x64", option,
                            "--interval-width", "0.001", "--experiment", f"x{option}")  # fmt: skip
        for record in document["records"]:
            assert record["verification"] == "passed"
            found[option, record["provider"]] = record["stop_reason"], record["rounds"]
    slow = next(provider for _, provider in found if provider != "numpy")
    assert found["--race", slow][0] == "outclassed"
    assert found["--no-race", slow][0] != "outclassed"
    assert found["--race", slow][1] < found["--no-race", slow][1]
    two = cli.json(*common, "--shapes", "16x16x16,256x256x256", "--experiment", "two")
    reasons = [record["stop_reason"] for record in two["records"]]
    assert len(reasons) == 2 and "outclassed" not in reasons, "operations do not race each other"
