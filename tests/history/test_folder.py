"""A history on disk: damaged lines, repeated ones, full disks."""

from __future__ import annotations

import errno
import json
import os
import re
import threading

import msgspec
import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.engine.schema import FolderLock
from gemmetry.history import folder as module
from gemmetry.history.folder import (
    ANNOTATIONS,
    SCHEMA,
    Annotation,
    append,
    file_name,
    points_digest,
    read_history,
)


@pytest.fixture
def entries(histories):
    return histories.SyntheticHistory(shapes=2, runs=3).entries()


@pytest.fixture
def file(histories, tmp_path):
    return tmp_path / file_name(histories.DEVICE)


def runs_in(folder):
    """The runs of the only device class."""
    (runs,) = read_history(folder).runs.values()
    return runs


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


def test_what_was_appended_is_read_in_order_of_time(tmp_path, entries, histories):
    append(tmp_path / "new", entries[2:])
    append(tmp_path / "new", entries[:2])
    found = read_history(tmp_path / "new")
    assert (found.runs, found.problems) == ({histories.DEVICE: entries}, [])


def test_half_a_line_is_named_and_the_rest_is_used(tmp_path, entries, file):
    append(tmp_path, entries)
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    assert runs_in(tmp_path) == entries, "a last line needs no end"
    file.write_bytes(content[:-40])
    assert runs_in(tmp_path) == entries[:2]
    problem = f"{file.name}:3 was skipped: it ends in the middle"
    assert read_history(tmp_path).problems == [problem]
    append(tmp_path, entries[2:])
    assert runs_in(tmp_path) == entries, "the next line is whole"
    (problem,) = read_history(tmp_path).problems
    assert ":3 was skipped" in problem
    assert file.read_bytes().startswith(content[:-40]), "nothing was removed"


def test_foreign_lines_are_named_and_skipped(tmp_path, entries, file):
    append(tmp_path, entries)
    newer = {**msgspec.to_builtins(entries[0]), "schema": SCHEMA + 6}
    strange = [newer, {"schema": SCHEMA + 1, "anything": []}, {"schema": SCHEMA, "id": 7}]
    with file.open("ab") as stream:
        for line in (*(json.dumps(one).encode() for one in strange), b"\xff\xfe{"):
            stream.write(line + b"\n")
    assert runs_in(tmp_path) == entries
    causes = [f"schema is {SCHEMA + 6}", f"schema is {SCHEMA + 1}", "no entry", "damaged"]
    problems = read_history(tmp_path).problems
    for number, (problem, cause) in enumerate(zip(problems, causes, strict=True), 4):
        assert problem.startswith(f"{file.name}:{number} was") and cause in problem


def test_the_last_line_of_an_experiment_counts(tmp_path, entries):
    points = entries[0].points[:1]
    grown = msgspec.structs.replace(entries[0], digest=points_digest(points), points=points)
    append(tmp_path, [*entries, grown])
    assert runs_in(tmp_path) == [grown, *entries[1:]]


def test_device_classes_have_files_of_their_own(tmp_path, entries):
    names = ["GPU, 80 GB", "GPU 80-GB", "../../etc"]
    append(tmp_path, [msgspec.structs.replace(entries[0], device=name) for name in names])
    assert contents(tmp_path).keys() == {file_name(name) for name in names}
    assert len(contents(tmp_path)) == 3
    assert set(read_history(tmp_path).runs) == set(names)


def test_annotations_are_stored_next_to_the_runs(tmp_path, entries):
    remark = Annotation(schema=SCHEMA, run=entries[1].id, pattern="*", text="why")
    append(tmp_path, entries)
    append(tmp_path, [remark])
    assert read_history(tmp_path).annotations == [remark]
    assert (tmp_path / ANNOTATIONS).read_text().count("\n") == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_leaves_what_was_stored(tmp_path, entries, file, monkeypatch, number):
    append(tmp_path, entries[:2])
    before = file.read_bytes()
    write = os.write

    def fill(descriptor, line):
        """Half of the line, and nothing the next time."""
        if len(line) > 100:
            return write(descriptor, line[: len(line) - 50])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(module.os, "write", fill)
    with pytest.raises(StorageError, match="cannot append to the history") as caught:
        append(tmp_path, entries[2:])
    assert "unchanged" in caught.value.hint
    assert file.read_bytes() == before
    monkeypatch.undo()
    append(tmp_path, entries[2:])
    assert runs_in(tmp_path) == entries


def test_entries_are_stored_together_or_not_at_all(tmp_path, entries, monkeypatch):
    """The first of two device classes is written, and its disk is full before the second."""
    others = [msgspec.structs.replace(one, device="another") for one in entries]
    append(tmp_path, [entries[0], others[0]])
    before = contents(tmp_path)
    sizes = []
    sync = os.fsync

    def fill(descriptor):
        sizes.append(os.fstat(descriptor).st_size)
        if len(sizes) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(module.os, "fsync", fill)
    with pytest.raises(StorageError, match=os.strerror(errno.ENOSPC)):
        append(tmp_path, [*entries[1:], *others[1:]])
    assert len(sizes) == 2
    assert contents(tmp_path) == before
    monkeypatch.undo()
    append(tmp_path, [*entries[1:], *others[1:]])
    assert read_history(tmp_path).runs == {"another": others, entries[0].device: entries}


def test_one_process_writes_at_a_time_and_another_waits(tmp_path, entries, monkeypatch):
    append(tmp_path, entries[:1])
    lock = FolderLock(tmp_path)
    with monkeypatch.context() as m, pytest.raises(RequestError, match="in use"):
        m.setattr(module, "PATIENCE_S", 0.1)
        append(tmp_path, entries[1:])
    release = threading.Timer(0.2, lock.release)
    release.start()
    append(tmp_path, entries[1:])
    release.join()
    assert runs_in(tmp_path) == entries


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path, entries):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        append(tmp_path / "file" / "store", entries)


def test_points_that_were_changed_are_noticed(tmp_path, entries, file):
    append(tmp_path, entries)
    text = file.read_text()
    median = re.search(r'"median_ns":(\d)', text)
    digit = "9" if median[1] != "9" else "8"
    file.write_text(text[: median.start(1)] + digit + text[median.end(1) :])
    assert runs_in(tmp_path) == entries[1:]
    (problem,) = read_history(tmp_path).problems
    assert problem.startswith(f"{file.name}:1 ")
