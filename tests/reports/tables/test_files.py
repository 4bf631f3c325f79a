from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.reports.tables.files import write_atomically


def test_folders_are_made_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a" / "b" / "out.csv"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [item.name for item in path.parent.iterdir()] == ["out.csv"]


def test_a_full_disk_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.csv"
    write_atomically(path, b"old")

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=os.strerror(errno.ENOSPC)) as caught:
        write_atomically(path, b"new")
    assert caught.value.exit_status == 3
    assert "free some space" in caught.value.hint
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["out.csv"]


def test_a_folder_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    def refuse(*_arguments, **_keywords):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StorageError, match="Permission denied") as caught:
        write_atomically(tmp_path / "out.csv", b"x")
    assert "may write" in caught.value.hint


def test_a_file_in_the_place_of_a_folder_is_reported(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        write_atomically(tmp_path / "file" / "out.csv", b"x")


def test_a_folder_as_the_file_is_a_wrong_request(tmp_path):
    with pytest.raises(RequestError, match="is a folder"):
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


def test_permissions_are_those_of_a_new_file(tmp_path):
    write_atomically(tmp_path / "ours", b"x")
    (tmp_path / "usual").write_bytes(b"x")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode
