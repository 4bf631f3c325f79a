from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.results import emit as files
from gemmetry.results.emit import files_in, write_atomically, written_together


def test_folders_are_made_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a" / "b" / "out.csv"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [item.name for item in path.parent.iterdir()] == ["out.csv"]
    (tmp_path / "usual").write_bytes(b"x")
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


def _full(*_arguments, **_keywords):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _refused(*_arguments, **_keywords):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize(
    ("place", "name", "fails", "hint"),
    [(os, "fsync", _full, "free some space"), (Path, "open", _refused, "may write")],
)
def test_what_cannot_be_written_keeps_the_old_file(tmp_path, monkeypatch, place, name, fails, hint):
    path = tmp_path / "out.csv"
    write_atomically(path, b"old")
    with monkeypatch.context() as patched, pytest.raises(StorageError) as caught:
        patched.setattr(place, name, fails)
        write_atomically(path, b"new")
    assert caught.value.exit_status == 3
    assert hint in caught.value.hint
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["out.csv"]


def test_a_file_for_a_folder_and_a_folder_for_the_file_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        write_atomically(tmp_path / "file" / "out.csv", b"x")
    with pytest.raises(RequestError):
        write_atomically(tmp_path, b"x")


def test_links_and_devices_stay_what_they_are(tmp_path):
    target, link = tmp_path / "real.csv", tmp_path / "link.csv"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    write_atomically(Path(os.devnull), b"gone")
    assert not Path(os.devnull).is_file()


def test_files_that_belong_together_are_replaced_together(tmp_path, monkeypatch):
    for name in ("a.csv", "b.csv", "c.csv"):
        write_atomically(tmp_path / name, b"old")
    real = files.sync

    def fills(path):
        if ".c.csv." in path.name:
            _full()
        real(path)

    monkeypatch.setattr(files, "sync", fills)
    with pytest.raises(StorageError) as caught, written_together():
        for name in ("a.csv", "b.csv", "b.csv", "c.csv"):
            write_atomically(tmp_path / name, b"new")
    assert "c.csv" in caught.value.message
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.csv": b"old", "b.csv": b"old", "c.csv": b"old",
    }  # fmt: skip
    with written_together():
        for number in range(2):
            write_atomically(tmp_path / "a.csv", f"new {number}".encode())
        write_atomically(tmp_path / "deep" / "d.csv", b"d")
        assert files_in(tmp_path, ".csv")["a.csv"].read_bytes() == b"new 1"
        assert (tmp_path / "a.csv").read_bytes() == b"old"
    assert (tmp_path / "a.csv").read_bytes() == b"new 1"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["d.csv"]
