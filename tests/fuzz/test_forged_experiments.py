"""Experiments that someone has forged or damaged: nothing outside of them is removed, written or
shown."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from tests.fuzz import hostile_traces

import gemmetry
from gemmetry.cli.main import run
from gemmetry.domain.errors import JournalDamagedError, RequestError
from gemmetry.domain.files import remove, within
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.recording import TraceManifest
from gemmetry.engine.schema import CHECKED_TABLES, checksum, with_checksum

PROFILE = ("profile", "--providers", "null", "--shapes", "64x64x64,32x32x32",
           "--verification-level", "quick")  # fmt: skip


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "experiment"
    assert run([*PROFILE, "--experiment", str(folder)]) == 0
    return folder


@pytest.fixture
def forged(made, tmp_path, monkeypatch):
    """A copy of an experiment, next to a folder with a file that is precious."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path / "experiment")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious.txt").write_text("precious")
    return tmp_path / "experiment"


@contextlib.contextmanager
def journal_of(folder):
    with contextlib.closing(sqlite3.connect(folder / "journal.sqlite")) as journal, journal:
        yield journal


def edit(folder, change, table="records"):
    """Apply `change` to the document of each row."""
    with journal_of(folder) as journal:
        for key, text in journal.execute(f"SELECT id, document FROM {table}").fetchall():
            document = json.loads(text)
            change(document)
            changed = (json.dumps(document).encode(), key)
            journal.execute(f"UPDATE {table} SET document = ?, crc = NULL WHERE id = ?", changed)


@pytest.mark.parametrize("name", ["temporary", "previous", "lock", "artifacts/logs", "references"])
@pytest.mark.parametrize("command", [("--shapes", "16x16x16"), ("--fresh",)])
def test_links_out_of_an_experiment_lose_nothing(forged, name, command):
    place = forged / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    outside = forged.parent / "outside"
    place.symlink_to(outside / "precious.txt" if name == "lock" else outside)
    run([*PROFILE, *command, "--experiment", str(forged)])
    assert (outside / "precious.txt").read_text() == "precious"
    assert sorted(path.name for path in outside.iterdir() if path.stat().st_size == 0) == []


def test_a_forged_manifest_of_traces_removes_nothing(forged):
    (forged / "traces_matmul").mkdir()
    entry = {"number": 1, "folder": "traces_matmul/../../outside", "device": "null:0",
             "provider": "null", "dispatch": "matmul_64x64x64_f32t_f32t_f32t_default"}  # fmt: skip
    manifest = {"schema_version": 1, "configurations": [entry]}
    (forged / "traces_matmul" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(JournalDamagedError):
        TraceManifest(forged)


def test_stored_paths_that_leave_the_folder_are_not_followed(forged, capsys):
    secret = forged.parent / "outside" / "secret.txt"
    secret.write_text("the secret")
    (forged / "link.txt").symlink_to(secret)
    for path in (str(secret), "../outside/secret.txt", "link.txt"):
        edit(forged, lambda record, path=path: record["facts"].update(source_path=path))
        assert run(["show", str(forged), "*64x64x64*fast"]) == 0
        assert "the secret" not in capsys.readouterr().out
    assert run(["merge", str(forged), str(forged), "--into", "merged/first"]) == 0
    counters = {"folder": "../../outside", "metric_set": "x", "launches": 1, "passes": 1}
    edit(forged, lambda record: record.update(counters=counters))
    assert run(["merge", str(forged), str(forged), "--into", "merged/experiment"]) == 2
    assert sorted(path.name for path in secret.parent.iterdir()) == ["precious.txt", "secret.txt"]


@pytest.mark.parametrize("stored", ["/etc/passwd", "../x", "a/../../x", "link/x", "a\0b"])
def test_only_paths_within_a_folder_are_joined(tmp_path, stored):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    with pytest.raises(RequestError):
        within(tmp_path / "folder", stored)
    assert within(tmp_path / "folder", "a/b") == tmp_path / "folder" / "a" / "b"


def test_removal_never_follows_a_link(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside / "tree" / "below", outside):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    (inside / "tree" / "link").symlink_to(outside)
    (inside / "link").symlink_to(outside)
    for path in (inside / "link" / "file", inside / ".." / "outside", outside / "file"):
        with pytest.raises(OSError):
            remove(path, inside=inside)
    remove(inside / "link", inside=inside)
    remove(inside / "tree", inside=inside)
    remove(inside / "absent" / "file", inside=inside)
    assert list(inside.iterdir()) == []
    assert (outside / "file").read_text() == "x"


@pytest.mark.parametrize("find", [b'"median_ns":', b'"min_ns":', b'"flops":'])
def test_a_changed_digit_is_named_and_the_same_command_measures_again(forged, capfd, find):
    with journal_of(forged) as journal:
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before, found, after = (forged / "journal.sqlite").read_bytes().partition(find)
    digit = b"8" if after[:1] == b"9" else b"9"
    (forged / "journal.sqlite").write_bytes(before + found + digit + after[1:])
    for options in ([], ["--json"], ["-o", "report.md", "--format", "none"]):
        assert run(["report", str(forged), *options]) == 0
        out, err = capfd.readouterr()
        shown = out + err + (Path("report.md").read_text() if options[:1] == ["-o"] else "")
        assert "1 damaged" in shown and "3 of 4 planned" in shown, options
    assert run([*PROFILE, "--experiment", str(forged)]) == 0
    assert "measured again: matmul_" in capfd.readouterr().err
    assert run(["report", str(forged)]) == 0
    out, _ = capfd.readouterr()
    assert "damaged" not in out and "4 dispatches: 4 ok" in out


@pytest.mark.parametrize(
    ("table", "column", "lost"),
    [("plan", "configuration", 1), ("verdicts", "document", 1), ("environments", "document", 4)],
)
def test_a_flipped_bit_of_any_table_is_named_and_measured_again(forged, capfd, table, column, lost):
    with journal_of(forged) as journal:
        if table == "verdicts":  # that of a dispatch that had been verified when its run was killed
            row = with_checksum((1, "elsewhere", b'{"status":"passed"}'))
            journal.execute("DELETE FROM records WHERE id = 1")
            journal.execute("INSERT INTO verdicts VALUES(?, ?, ?, ?)", row)
        key = journal.execute(f"PRAGMA table_info({table})").fetchone()[1]
        number, value = journal.execute(f"SELECT {key}, {column} FROM {table}").fetchone()
        value = value ^ 64 if isinstance(value, int) else value.replace(b'":"', b'":#', 1)
        journal.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (value, number))
    with Experiment.open(forged) as experiment:
        found = experiment.damaged_dispatches()
        assert len(found) == lost and all(name.startswith("matmul_") for name in found.values())
        assert f"{lost} damaged" in str(experiment.remarks())
        assert len(list(experiment.records())) == 4 - lost
        experiment.result_set()
    assert run([*PROFILE, "--experiment", str(forged)]) == 0
    err = capfd.readouterr().err
    with Experiment.open(forged) as experiment:
        assert experiment.remarks() == [] and experiment.total() == 4
        assert len({record.dispatch for record in experiment.records()}) == 4
    if table != "environments":  # This command states its environment again, so that none is lost.
        assert "measured again: matmul_" in err


def test_a_journal_without_checksums_is_read_and_gets_them(forged):
    with journal_of(forged) as journal:
        for table in CHECKED_TABLES:
            journal.execute(f"ALTER TABLE {table} DROP COLUMN crc")
    with Experiment.open(forged) as experiment:
        assert (len(list(experiment.records())), experiment.remarks()) == (4, [])
    assert run([*PROFILE, "--shapes", "16x16x16", "--experiment", str(forged)]) == 0
    with journal_of(forged) as journal:
        for table in ("plan", "records", "environments"):
            rows = journal.execute(f"SELECT * FROM {table}").fetchall()
            assert any(row[-1] == checksum(row[:-1]) for row in rows), table


def test_no_bit_of_a_write_ahead_log_changes_results_unnoticed(made, tmp_path):
    """A process that was killed leaves its log; SQLite drops what is behind a wrong checksum."""
    killed = tmp_path / "killed"
    shutil.copytree(made, killed)
    with sqlite3.connect(killed / "journal.sqlite", isolation_level=None) as journal:
        journal.execute("PRAGMA journal_mode=WAL")
        rows = journal.execute("SELECT * FROM records").fetchall()
        journal.execute("DELETE FROM records")
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for row in rows:
            journal.execute(f"INSERT INTO records VALUES({', '.join('?' * len(row))})", row)
        copies = {name: (killed / name).read_bytes()
                  for name in ("journal.sqlite", "journal.sqlite-wal")}  # fmt: skip
    journal.close()

    def stored(log):
        for name in ("journal.sqlite-shm", "journal.sqlite-wal"):
            (killed / name).unlink(missing_ok=True)
        (killed / "journal.sqlite").write_bytes(copies["journal.sqlite"])
        (killed / "journal.sqlite-wal").write_bytes(log)
        with Experiment.open(killed) as experiment:
            return [record.dispatch for record in experiment.records()], experiment.remarks()

    whole = copies["journal.sqlite-wal"]
    every, remarks = stored(whole)
    assert (len(every), remarks) == (4, [])
    assert len(stored(whole[: len(whole) // 2])[0]) < 4
    random = np.random.default_rng(7)
    places = [*range(0, 56, 3), *random.integers(len(whole), size=60).tolist()]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        found, remarks = stored(bytes(changed))
        assert found == every or "log is damaged" in str(remarks), place


REMOVING = re.compile(r"\.(unlink|rmtree|rmdir|removedirs|(?<=\bos\.)remove)\s*\(")
"""Of lists and sets, `remove` is none."""


def test_what_is_removed_goes_through_one_function():
    """Except for the guardian, which imports nothing of gemmetry, and folders that are removed
    only if they are empty."""
    root = Path(gemmetry.__file__).parent
    found = {
        (path.relative_to(root).as_posix(), name)
        for path in root.rglob("*.py")
        for name in REMOVING.findall(path.read_text())
    }
    assert found == {
        ("domain/files.py", "unlink"), ("domain/files.py", "rmtree"),
        ("engine/guardian.py", "rmtree"), ("engine/experiment.py", "rmdir"),
    }  # fmt: skip


HOSTILE = "\x1b[31m\x1b]0;owned\x07\x9b31m\u202e<img src=x onerror=alert(1)>[link](javascript:1)"
COMMANDS = Path(__file__).with_name("hostile_commands.txt").read_text().splitlines()[1:]


def hostile_texts(value, key=""):
    """`value` with its texts made hostile; what decides how a file is read stays."""
    if isinstance(value, dict):
        return {name: hostile_texts(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [hostile_texts(one, key) for one in value]
    fixed = {"provider", "outcome", "status", "operation", "method", "environment_id", "stage",
             "target"}  # fmt: skip
    return f"{value}{HOSTILE}" if isinstance(value, str) and key not in fixed else value


def test_hostile_names_stay_inactive_wherever_they_are_printed(forged, capfd):
    """No control or bidirectional character reaches a terminal or a text, and no HTML a page or
    Markdown."""
    for table in ("records", "environments"):
        edit(forged, lambda document: document.update(hostile_texts(document)), table)
    manifest = json.loads((forged / "manifest.json").read_text())
    manifest["name"] += HOSTILE
    manifest["commands"] = [HOSTILE]
    (forged / "manifest.json").write_text(json.dumps(manifest))
    with journal_of(forged) as journal:
        journal.execute("UPDATE records SET dispatch = dispatch || ?, crc = NULL", (HOSTILE,))
    for line in COMMANDS:
        status = run([word.format(e=forged) for word in line.split()])
        out, err = capfd.readouterr()
        assert status in (0, 1, 2, 3), (line, err)
        if "--json" not in line:
            check_inactive(out, line, "")
        check_inactive(err, line, "")
    for path in Path.cwd().rglob("*"):
        if path.suffix in (".md", ".csv", ".html", ".xml") and path.is_file():
            check_inactive(path.read_text(encoding="utf-8"), path.name, path.suffix)


def check_inactive(text, where, suffix):
    for character in "\x1b\x07\x9b\u202e":
        assert character not in text, (where, text[max(0, text.index(character) - 200) :][:400])
    if suffix in (".html", ".md"):
        lines = text.split("\n")
        # Lines of a block of code are not read as HTML in Markdown.
        shown = "\n".join(one for one in lines if suffix == ".html" or not one.startswith("    "))
        at = shown.find("<img src=x")
        assert at < 0, (where, shown[max(0, at - 200) : at + 100])


NAMES = {
    "path": "../../etc/passwd", "absolute": "/etc/passwd", "dots": "..", "nul": "a\x00b",
    "escape": "\x1b[31mred\x07", "long": "n" * 300, "script": "<script>alert(1)</script>",
    "formula": '=HYPERLINK("http://x","y")',
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_hostile_name_of_a_provider_or_a_counter_is_refused_or_harmless(forged, capfd, name):
    """On the command line it is refused; in a stored record or a report of counters it is shown."""
    if "\x00" not in name:  # no argument can hold it
        for option in (("--providers", name), ("--counters", name)):
            command = ("profile", "--providers", "null", "--shapes", "8x8x8", "--experiment", "new")
            assert run([*command, *option]) == 2, option
            err = capfd.readouterr().err
            assert "hint: " in err
            check_inactive(err, name, "")
        assert not Path("new", "journal.sqlite").exists()
    with journal_of(forged) as journal:
        journal.execute("UPDATE records SET provider = ?, crc = NULL", (name,))
    edit(forged, lambda record: record.update(provider=name))
    quoted = name.replace('"', '""')
    counters = (
        f'"ID","Kernel Name","Device","CC","{quoted}"\n"","","","","%"\n"0","k","0","9.0","5"\n'
    )
    Path("counters.csv").write_text(counters)
    before = sorted(path.name for path in Path("outside").parent.iterdir())
    lines = [f"report {forged}", f"show {forged}", f"compare {forged} {forged}",
             "counters import counters.csv", "counters diagnose counters.csv"]  # fmt: skip
    for suffix in ("md", "csv", "html", "xlsx", "json"):
        lines += [f"report {forged} -o out/r.{suffix}",
                  f"counters import counters.csv -o out/c.{suffix}"]  # fmt: skip
    Path("out").mkdir()
    for text in lines:
        line = text.split()
        status = run(line)
        out, err = capfd.readouterr()
        assert status == 0 or line[0] != "counters" or line[1] == "diagnose", (line, err)
        assert status < 2 or err.startswith("error: "), (line, err)
        check_inactive(out + err, line, "")
        assert status in (0, 1, 2) and "Traceback" not in err and "\x00" not in out
    written = {path.suffix for path in Path("out").iterdir()}
    assert {".md", ".csv", ".html", ".xlsx"} <= written
    for path in Path("out").iterdir():
        if path.suffix == ".xlsx":
            hostile_traces.check_workbook(path.read_bytes())
        elif path.suffix != ".json":
            text = path.read_text(encoding="utf-8")
            check_inactive(text, path.name, path.suffix)
            assert "<script>alert" not in text or path.suffix == ".csv", path
            if path.suffix == ".csv":
                hostile_traces.check_csv(text)
    assert sorted({*before, "out"}) == sorted(path.name for path in Path.cwd().iterdir())
