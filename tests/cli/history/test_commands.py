"""``gemmetry history``, from experiments to a failing check and its acknowledgement."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from gemmetry.history.folder import append, file_name, points_digest

STORE = Path("history")
KERNEL = "triton:matmul_192x256x256_bf16t_bf16t_f32t_default"


@pytest.fixture(scope="module")
def nights(tmp_path_factory, histories):
    """The history of 50 nights, in the last eight of which a kernel is 10 % slower; the reference
    of another problem became faster on the 20th."""
    synthetic = histories.SyntheticHistory(shapes=4, runs=50)
    synthetic.slow(1.1, 42, provider="triton", shape=2)
    synthetic.slow(0.8, 20, provider="torch", shape=1)
    folder = tmp_path_factory.mktemp("nights")
    append(folder, synthetic.entries())
    return folder


@pytest.fixture
def stored(cli, nights):
    """`cli` in a folder with that history."""
    shutil.copytree(nights, STORE)
    return cli


def test_experiments_are_added_once_and_in_the_order_of_their_times(cli):
    store = ("--store", "history")
    request = ("profile", "--providers", "null", "--shapes", "64x64x64", "--default-config")
    for name, seed in (("a", "1"), ("b", "2")):
        assert cli(*request, "--seed", seed, "--experiment", name).status == 0
    added = cli("history", "add", "a", *store, "--commit", "1a2b")
    assert added.status == 0
    assert "a: 1 dispatch on simulated device" in added.stdout
    again = cli("history", "add", "a", *store)
    assert (again.status, again.stdout) == (0, "")
    assert "a is in the history already" in again.stderr
    older = cli("history", "add", "b", *store, "--time", "2020-01-01")
    assert "b is older than the latest run" in older.stderr
    [series] = json.loads(cli("history", "show", *store, "--json").stdout)["series"]
    assert series["runs"] == 2
    assert series["points"][0]["time"] == "2020-01-01T00:00:00+00:00"


def test_a_slower_kernel_fails_until_it_is_acknowledged(stored):
    ended = stored("history", "check", "--store", "history")
    assert ended.status == 1
    assert f"✗ {KERNEL}" in ended.stdout
    assert "kernel  1." in ended.stdout
    assert "1 new change within the latest 10 runs, 1 of them fails; 3 older" in ended.stdout
    document = json.loads(stored("history", "check", "--store", "history", "--json").stdout)
    [alarm] = [one for one in document["changes"] if one["alarm"]]
    assert (alarm["dispatch"], alarm["cause"], alarm["verdict"]) == (KERNEL, "kernel", "slower")
    assert alarm["ratio_low"] < 1.1 < alarm["ratio_high"]
    remark = ("history", "annotate", "triton:matmul_192", "--store", "history", "--run",
              alarm["run"], "--text", "known")  # fmt: skip
    assert stored(*remark).status == 0
    ended = stored("history", "check", "--store", "history")
    assert ended.status == 0
    assert "remark: known" in ended.stdout


def test_a_remark_may_keep_the_alarm(stored):
    remark = ("history", "annotate", "*", "--store", "history", "--run", "2026-02-12")
    assert stored(*remark, "--text", "being examined", "--keep-alarm").status == 0
    ended = stored("history", "check", "--store", "history")
    assert ended.status == 1
    assert "remark: being examined" in ended.stdout


def test_only_new_changes_of_the_given_causes_fail(stored):
    check = ("history", "check", "--store", "history")
    assert stored(*check, "--latest", "5").status == 0
    assert stored(*check, "--fail-on", "host,lost").status == 0
    assert stored(*check, "--fail-on", "none").status == 0
    assert stored(*check, "--latest", "50", "--fail-on", "baseline").status == 1
    assert stored(*check, "--threshold", "20%").status == 0


def test_files_for_continuous_integration(stored):
    ended = stored("history", "check", "--store", "history", "-o", "c.xml,c.md,c.json,c.csv")
    assert ended.status == 1
    root = ElementTree.parse("c.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("12", "1", "0")
    [failure] = root.iter("failure")
    assert failure.get("type") == "kernel"
    markdown = Path("c.md").read_text()
    assert "## GEMM history: 1 regression within the latest 10 runs" in markdown
    assert "❌" in markdown
    assert json.loads(Path("c.json").read_text())["has_alarm"] is True
    assert Path("c.csv").read_text().count("\n") == 5


def test_a_dispatch_that_was_lost_fails(cli, histories):
    synthetic = histories.SyntheticHistory(shapes=2, runs=12)
    synthetic.lost = {("iree", 1, 10), ("iree", 1, 11), ("torch", 0, 5)}
    append(STORE, synthetic.entries())
    ended = cli("history", "check", "--store", "history", "-o", "c.xml,c.md")
    assert ended.status == 1
    assert "it was ok and is crash now" in ended.stdout
    assert 'type="lost"' in Path("c.xml").read_text()
    assert "lost" in Path("c.md").read_text()
    assert cli("history", "check", "--store", "history", "--fail-on", "kernel").status == 0


def test_the_history_of_everything_and_of_one_dispatch(stored, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    every = stored("history", "show", "--store", "history", "-o", "s.csv")
    assert every.status == 0
    lines = every.stdout.splitlines()
    assert len(lines) == 2 + 12
    assert max(map(len, lines)) <= 80
    assert sum("█" in line for line in lines) == 12
    assert Path("s.csv").read_text().count("\n") == 13
    one = stored("history", "show", "triton:matmul_192", "--store", "history")
    assert "compared with torch:matmul_192x256x256" in one.stdout
    assert "   change " in one.stdout
    assert "^" in one.stdout
    assert "kernel  1." in one.stdout
    assert all(len(line.rstrip()) <= 80 for line in one.stdout.splitlines())
    document = json.loads(
        stored("history", "show", "iree:*", "--store", "history", "--json").stdout
    )
    assert [len(series["points"]) for series in document["series"]] == [50] * 4
    assert document["series"][0]["reference"].startswith("torch:")


def test_damaged_lines_are_named_and_the_rest_is_used(stored, histories):
    path = STORE / file_name(histories.DEVICE)
    content = path.read_bytes()
    path.write_bytes(content + content.splitlines()[0][:100])
    ended = stored("history", "check", "--store", "history")
    assert ended.status == 1
    assert f"note: {path.name}:51 was skipped: it ends in the middle" in ended.stderr
    path.write_bytes(b"{half")
    ended = stored("history", "check", "--store", "history")
    assert ended.status == 2
    assert "no line of the history can be used" in ended.stderr


def test_hostile_names_do_no_harm(cli, histories):
    synthetic = histories.SyntheticHistory(shapes=1, runs=20)
    runs = synthetic.entries()
    for run in runs:
        run.points[:] = [
            msgspec.structs.replace(p, dispatch="<script>alert(1)</script>\x1b[31m|`")
            for p in run.points
        ]
    append(STORE, [msgspec.structs.replace(run, digest=points_digest(run.points)) for run in runs])
    for command in (("show",), ("check", "-o", "c.xml,c.md"), ("site", "-o", "site")):
        ended = cli("history", *command, "--store", "history")
        assert ended.status == 0
        assert "\x1b" not in ended.stdout
    ElementTree.parse("c.xml")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("check", "--store", "missing"), "no history in missing"),
        (("show", "nothing", "--store", "history"), "no dispatch of the history matches"),
        (("check", "--store", "history", "--fail-on", "kernels"), "unknown cause 'kernels'"),
        (("check", "--store", "history", "--baseline", "nobody"), "unknown baseline 'nobody'"),
        (("check", "--store", "history", "-o", "c.png"), "unknown format of c.png"),
        (("check",), "--store"),
        (("add", "missing", "--store", "history"), "no experiment in missing"),
        (("annotate", "*", "--store", "history", "--run", "zzz", "--text", "a"),
         "no run of the history begins with 'zzz'"),
        (("annotate", "*", "--store", "history", "--run", "2026", "--text", "a"),
         "50 runs of the history begin with '2026'"),
        (("annotate", "no", "--store", "history", "--run", "run000000001", "--text", "a"),
         "no dispatch of the history matches 'no'"),
        (("annotate", "*", "--store", "history", "--run", "run000000001", "--text", " "),
         "the remark is empty"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_with_the_next_step(stored, arguments, expected):
    ended = stored("history", *arguments)
    assert ended.status == 2
    assert expected in ended.stderr
    assert "hint: " in ended.stderr


def test_the_site_is_written(stored):
    ended = stored("history", "site", "--store", "history", "-o", "site", "--title", "Nights")
    assert (ended.status, ended.stderr) == (0, "wrote site/index.html\n")
    assert "<title>Nights</title>" in Path("site/index.html").read_text()
    assert Path("site/points/0.js").exists()


def test_a_history_that_is_too_short_is_undecided(cli, histories):
    append(STORE, histories.SyntheticHistory(shapes=1, runs=4, noise=0.04).entries())
    check = ("history", "check", "--store", "history", "-o", "c.md,c.xml", "--json")
    document = json.loads(cli(*check).stdout)
    assert (document["has_alarm"], document["has_failed"]) == (False, False)
    assert document["devices"][0]["undecided"].startswith("too few runs to judge: 4 of 10; ")
    assert ElementTree.parse("c.xml").getroot().get("failures") == "0"
    ended = cli(*check, "--undecided", "fail")
    assert ended.status == 1
    document = json.loads(ended.stdout)
    assert (document["has_alarm"], document["has_failed"]) == (False, True)
    [device] = document["devices"]
    assert (device["too_short"], device["undecided_series"]) == (True, 3)
    for words in (device["undecided"], "with 4 runs a change of 10 % is found in"):
        assert words in Path("c.md").read_text()
        for command in ("check", "show"):
            assert words in " ".join(cli("history", command, "--store", "history").stdout.split())
        assert cli("history", "site", "--store", "history", "-o", "site").status == 0
        assert words in Path("site/index.html").read_text()
    assert ElementTree.parse("c.xml").getroot().get("failures") == "3"
    passed = cli("history", "check", "--store", "history", "--undecided", "pass", "-o", "c.xml")
    assert passed.status == 0
    assert "Undecided: no new change was found" in passed.stdout
    root = ElementTree.parse("c.xml").getroot()
    assert (root.get("failures"), root.get("skipped")) == ("0", "3")


def test_runs_enough_that_differ_too_much_fail(cli, histories):
    append(STORE, histories.SyntheticHistory(shapes=1, runs=12, noise=0.3).entries())
    ended = cli("history", "check", "--store", "history", "--json")
    document = json.loads(ended.stdout)
    assert document["has_alarm"] is False and document["devices"][0]["undecided"]
    assert "too few" not in document["devices"][0]["undecided"]
    assert (ended.status, document["has_failed"]) == (1, True)


def test_an_old_commit_that_is_added_again_is_noticed(cli):
    request = ("profile", "--providers", "null", "--shapes", "64x64x64", "--default-config")
    for number, commit in enumerate(("aaaa", "bbbb", "aaaa")):
        assert cli(*request, "--seed", str(number), "--experiment", f"n{number}").status == 0
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
