from __future__ import annotations

import json

import pytest

from gemmetry.domain.errors import StorageError
from gemmetry.sweeps.workload.failures import whole_file, write_json


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "new" / "facts.json"
    with whole_file(path) as partial:
        partial.write_text("half")
        assert not path.exists()
        assert list(path.parent.glob("*.json")) == []
    assert path.read_text() == "half"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "facts.json"
    write_json(path, {"a": 1})
    with pytest.raises(KeyError), whole_file(path) as partial:
        partial.write_text("half")
        raise KeyError
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*/file/facts\.json"):
        write_json(tmp_path / "file" / "facts.json", {})
