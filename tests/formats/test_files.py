from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmetry.domain.files import completed, write_whole


def test_a_file_has_its_name_when_it_is_complete(tmp_path: Path):
    path = tmp_path / f"{'ü' * 124}.json"  # The longest name of all.
    with completed(path) as temporary:
        temporary.write_bytes(b"half")
        assert temporary.parent == path.parent
        assert not path.exists()
        assert list(path.parent.glob("*.json")) == []
    assert path.read_bytes() == b"half"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [TypeError, OSError, KeyboardInterrupt])
def test_an_error_keeps_the_old_file_and_leaves_no_rest(tmp_path: Path, error):
    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(error), completed(path) as temporary:
        temporary.write_bytes(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("durable", [False, True])
def test_a_durable_file_is_flushed_to_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch, durable
):
    path, flushed = tmp_path / "file", []
    monkeypatch.setattr(os, "fsync", lambda _descriptor: flushed.append(path.exists()))
    write_whole(path, b"x", durable=durable)
    assert flushed == [False] * durable
    assert path.read_bytes() == b"x"
