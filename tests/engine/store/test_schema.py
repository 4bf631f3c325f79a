from __future__ import annotations

import dataclasses
import errno
import re
import sqlite3
from pathlib import Path

import pytest

from gemmetry.domain.errors import JournalDamagedError, StorageError
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.schema import (
    JOURNAL_NAME,
    FolderLock,
    Manifest,
    connect_writer,
    create,
    create_journal,
    indented,
    missing_experiment,
    plan_differences,
    read_manifest,
    storage_errors,
    without_unfounded_interval,
    write_manifest,
)

MANIFEST = Manifest(name="n", plan_hash="h")


def made(folder):
    """Makes an empty experiment."""
    create(folder, MANIFEST, "", lambda connection: None)


def test_a_journal_exists_only_when_it_is_whole_and_an_old_one_goes_with_its_log(tmp_path):
    def fail(connection):
        connection.execute("INSERT INTO operations VALUES(1, 'a')")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create(tmp_path, MANIFEST, "", fail)
    assert list(tmp_path.iterdir()) == []
    made(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.sqlite", "manifest.json"]
    first = read_manifest(tmp_path).created
    (tmp_path / "journal.sqlite-wal").write_bytes(b"log")
    made(tmp_path)
    assert first < read_manifest(tmp_path).created, "also of experiments of one second"
    assert not (tmp_path / "journal.sqlite-wal").exists()
    assert (tmp_path / "previous" / "journal.sqlite-wal").read_bytes() == b"log"


def test_a_dead_process_holds_no_lock(tmp_path, forked):
    code = (
        "import os, sys; from pathlib import Path;"
        "from gemmetry.engine.schema import FolderLock;"
        "lock = FolderLock(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    assert forked(code, str(tmp_path)).returncode == -9
    FolderLock(tmp_path).release()


def test_a_manifest_reads_back(tmp_path):
    assert read_manifest(tmp_path) is None
    manifest = Manifest(name="n", plan_hash="h", document={"a": [1]}, created="2026-01-01")
    manifest = manifest.with_command("one").with_command("two").with_command("one")
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert manifest.commands == ("one", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


NEWER = '{"name": "n", "plan_hash": "h", "format_version": 9}'


@pytest.mark.parametrize("text", ["", "{", '{"name": 1}', NEWER])
def test_a_manifest_that_does_not_read_is_reported(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(JournalDamagedError):
        read_manifest(tmp_path)


def test_differences_of_plans_are_reported_by_key_and_value():
    theirs = {"name": "n", "trace": {"repeats": 5, "wait": 1}, "long": ["x"] * 50, "gone": None}
    ours = {"name": "n", "trace": {"repeats": 3, "wait": 1}, "long": ("x",) * 51, "new": "a"}
    reported = plan_differences(theirs, ours)
    assert reported == 'trace.repeats (5, now 3), long, new (null, now "a")'
    assert plan_differences(theirs, {**theirs, "long": ("x",) * 50}) == ""
    many = {str(number): number for number in range(9)}
    assert plan_differences({}, many).endswith("3 (null, now 3) and 5 more")


def test_a_document_is_indented_and_has_null_for_what_json_lacks():
    text = indented({"loss": float("nan"), "ranks": [0]})
    assert text == b'{\n  "loss": null,\n  "ranks": [\n    0\n  ]\n}\n'


@pytest.mark.parametrize(("path", "suggested"), [
    ("run", ["gemmetry-out/run"]),
    ("profile", ["gemmetry-out/profile-12ab", "gemmetry-out/profile-99ff"]),
    ("gemmetry-out/profile-12ac", ["gemmetry-out/profile-12ab"]),
    ("befor", ["before"]),
    ("gemmetry-out",
     ["gemmetry-out/profile-12ab", "gemmetry-out/profile-99ff", "gemmetry-out/run"]),
    ("nowhere", []),
])  # fmt: skip
def test_what_may_be_meant_is_suggested(tmp_path, monkeypatch, path, suggested):
    monkeypatch.chdir(tmp_path)
    for name in ("gemmetry-out/run", "gemmetry-out/profile-12ab", "gemmetry-out/profile-99ff",
                 "before"):  # fmt: skip
        Path(name).mkdir(parents=True)
        (Path(name) / JOURNAL_NAME).touch()
    error = missing_experiment(Path(path))
    assert path in error.message
    hint, _, end = error.hint.partition("Did you mean ")[2].partition("?")
    assert (re.split(", | or ", hint) if hint else []) == suggested
    assert error.hint and end == ""


def test_the_cause_is_a_missing_folder_or_one_without_a_journal(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, cause in (("none", "there is no such folder"), ("file", "it is a file"),
                        ("empty", f"it has no {JOURNAL_NAME}")):  # fmt: skip
        assert missing_experiment(tmp_path / name).message.endswith(cause)


def test_commits_are_durable(tmp_path):
    create_journal(tmp_path / "j").close()
    connection = connect_writer(tmp_path / "j")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    connection.close()


def _sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(("error", "expected", "wording"), [
    (_sqlite_error(sqlite3.SQLITE_FULL), StorageError, "no space left"),
    (_sqlite_error(sqlite3.SQLITE_IOERR_WRITE), StorageError, "reading or writing"),
    (_sqlite_error(sqlite3.SQLITE_READONLY), StorageError, "cannot use"),
    (_sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX), JournalDamagedError, "damaged"),
    (_sqlite_error(sqlite3.SQLITE_NOTADB), JournalDamagedError, "damaged"),
    (OSError(errno.ENOSPC, "No space left on device"), StorageError, "no space left"),
    (OSError(errno.EACCES, "Permission denied"), StorageError, "cannot write"),
    (OSError(errno.EROFS, "Read-only file system"), StorageError, "cannot write"),
])  # fmt: skip
def test_errors_are_reported_with_what_to_do(tmp_path, error, expected, wording):
    with pytest.raises(expected, match=wording) as caught, storage_errors(tmp_path):
        raise error
    assert caught.value.hint
    assert str(tmp_path) in caught.value.message


@pytest.mark.parametrize(("count", "effective", "is_kept"), [
    (1, None, False), (5, 5.0, False), (300, 5.9, False), (6, None, True), (300, 6.0, True),
])  # fmt: skip
def test_intervals_that_samples_are_too_few_for_are_dropped(make_record, count, effective, is_kept):
    counts = {"sample_count": count, "effective_samples": effective}
    measurement = dataclasses.replace(make_record().measurement, **counts)
    found = without_unfounded_interval(make_record(measurement=measurement)).measurement
    assert (found.ci_low_ns, found.ci_high_ns) == ((1.0, 3.0) if is_kept else (None, None))
    assert dataclasses.replace(found, ci_low_ns=1.0, ci_high_ns=3.0) == measurement


def test_records_of_earlier_versions_are_read_so(tmp_path, open_experiment, make_record):
    """A single sample was stored with an interval that was a point."""
    usual = make_record().measurement
    point = dataclasses.replace(usual, ci_low_ns=2.0, ci_high_ns=2.0, sample_count=1)
    with open_experiment() as experiment:
        experiment.finish({1: make_record(measurement=point)})
    with Experiment.open(tmp_path) as stored:
        (read,) = [one.measurement for one in stored.records()]
    assert (read.median_ns, read.ci_low_ns, read.ci_high_ns) == (2.0, None, None)
