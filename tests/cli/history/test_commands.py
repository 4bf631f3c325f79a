"""``gemmetry history``, from experiments to a failing check and its acknowledgement."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gemmetry.history.folder import append, file_name

STORE = Path("history")


@pytest.fixture
def measure(cli):
    """Measures an experiment; those with different seeds are different."""

    def run(name, seed):
        cli("profile", "--providers", "null", "--shapes", "64x64x64", "--default-config",
            "--seed", str(seed), "--experiment", name, status=0)  # fmt: skip

    return run


def test_experiments_are_added_once_and_in_the_order_of_their_times(cli, measure):
    measure("a", 1)
    measure("b", 2)
    added = cli("history", "add", "a", "--store", "history", "--commit", "1a2b", status=0)
    assert "a: 1 dispatch on simulated device" in added.stdout
    again = cli("history", "add", "a", "--store", "history", status=0)
    assert again.stdout == "" and "a is in the history already" in again.stderr
    older = cli("history", "add", "b", "--store", "history", "--time", "2020-01-01")
    assert "b is older than the latest run" in older.stderr
    [series] = cli.json("history", "show", "--store", "history")["series"]
    assert series["runs"] == 2
    assert series["points"][0]["time"] == "2020-01-01T00:00:00+00:00"


def test_damaged_lines_are_named_and_the_rest_is_used(cli, histories):
    synthetic = histories.SyntheticHistory(shapes=1, runs=20)
    synthetic.slow(1.1, 12, provider="triton")
    append(STORE, synthetic.entries())
    path = STORE / file_name(histories.DEVICE)
    content = path.read_bytes()
    path.write_bytes(content + content.splitlines()[0][:100])
    ended = cli("history", "check", "--store", "history", status=1)
    assert f"note: {path.name}:21 was skipped: it ends in the middle" in ended.stderr
    path.write_bytes(b"{half")
    ended = cli("history", "check", "--store", "history", status=2)
    assert "no line of the history can be used" in ended.stderr


def test_an_old_commit_that_is_added_again_is_noticed(cli, measure):
    for number, commit in enumerate(("aaaa", "bbbb", "aaaa")):
        measure(f"n{number}", number)
        added = cli("history", "add", f"n{number}", "--store", "history", "--commit", commit,
                    "--time", f"2026-01-0{number + 1}")  # fmt: skip
        assert ("--time 2026-01-01" in added.stderr) == (number == 2)
    shown = cli("history", "check", "--store", "history", "--undecided", "pass")
    assert "left out, as a commit measured before: 1 run" in shown.stdout


def test_the_device_of_a_change_is_named_where_there_are_several(cli, histories):
    synthetic = histories.SyntheticHistory(shapes=1, runs=12)
    synthetic.slow(1.5, 8, provider="triton")
    runs = synthetic.entries()
    append(STORE, runs)
    alone = cli("history", "check", "--store", "history").stdout
    append(STORE, [msgspec.structs.replace(run, device="another") for run in runs])
    both = cli("history", "check", "--store", "history").stdout
    [name] = [line for line in alone.splitlines() if "✗" in line]
    marked = " ".join(both.split())
    assert f"{name} on another" in marked
    assert f"{name} on {histories.DEVICE}" in marked
