from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.errors import StorageError
from gemmetry.domain.names import parse_operation
from gemmetry.domain.target import parse_target
from gemmetry.providers.files import output_folder, write_atomically


def test_files_are_written_whole(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "a" / "b.txt", b"content")
    assert path.read_bytes() == b"content"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.txt"]
    with pytest.raises(StorageError, match=r"b\.txt"):
        write_atomically(path / "c.txt", b"")


def test_each_provider_and_operation_has_a_folder(tmp_path: Path) -> None:
    name = "matmul_4x4x4_f32t_f32t_f32t"
    dispatch = Dispatch(parse_operation(name), Configuration(), "mine", parse_target("cpu"))
    assert output_folder(tmp_path, dispatch) == tmp_path / "mine" / "matmul" / name
