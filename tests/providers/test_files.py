from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Configuration, Dispatch, parse_target
from gemmetry.domain.errors import StorageError
from gemmetry.domain.names import parse_operation
from gemmetry.providers.base import locked, output_folder, write_atomically


def test_files_are_written_whole(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "a" / "b.txt", b"content")
    assert path.read_bytes() == b"content"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.txt"]
    with pytest.raises(StorageError, match=r"b\.txt"):
        write_atomically(path / "c.txt", b"")


def test_a_folder_is_changed_by_one_at_a_time(tmp_path: Path) -> None:
    order = []

    def change(name: str) -> None:
        with locked(tmp_path / "a"):
            order.append(name)

    with locked(tmp_path / "a"):
        second = threading.Thread(target=change, args=("second",))
        second.start()
        second.join(0.05)
        order.append("first")
    second.join()
    assert order == ["first", "second"]
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"), locked(tmp_path / "file"):
        pass


def test_each_provider_and_operation_has_a_folder(tmp_path: Path) -> None:
    name = "matmul_4x4x4_f32t_f32t_f32t"
    dispatch = Dispatch(parse_operation(name), Configuration(), "mine", parse_target("cpu"))
    assert output_folder(tmp_path, dispatch) == tmp_path / "mine" / "matmul" / name
