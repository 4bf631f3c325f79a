from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.cli.console import Rendering, check_rendering, rendering_of
from gemmetry.domain.errors import RequestError, StorageError, UnknownNameError
from gemmetry.domain.specs.model import ProfileSpec


def test_a_spec_says_what_is_rendered():
    spec = ProfileSpec(output=["a.csv"], columns="all,gflops", html="r.html", format="md")
    rendering = rendering_of(spec, json=True)
    assert rendering.outputs == (Path("a.csv"),)
    assert rendering.columns == ("gemmetry", "gflops")
    assert rendering.html == Path("r.html")
    assert rendering.json
    assert rendering_of(ProfileSpec(), json=False).html is None


def test_what_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    check_rendering(Rendering(outputs=(Path("a.csv"),), columns=("summary",)))
    with pytest.raises(RequestError, match="suffix"):
        check_rendering(Rendering(outputs=(Path("a.pdf"),)))
    with pytest.raises(UnknownNameError):
        check_rendering(Rendering(columns=("nope",)))
    folder = tmp_path / "a.csv"
    folder.mkdir()
    with pytest.raises(RequestError, match="folder"):
        check_rendering(Rendering(outputs=(folder,)))


def test_a_place_that_takes_no_file_is_refused_before_anything_runs(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        check_rendering(Rendering(outputs=(blocked / "a.csv",)))
    check_rendering(Rendering(outputs=(tmp_path / "new" / "folder" / "a.csv",)))
    assert sorted(tmp_path.iterdir()) == [blocked]


def test_other_columns_to_append_to_are_refused_before_anything_runs(tmp_path):
    old = tmp_path / "a.csv"
    old.write_text("note,gflops\n")
    rendering = Rendering(outputs=(old,), columns=("gflops",), append=True)
    check_rendering(rendering, tags=["note"])
    with pytest.raises(RequestError, match="columns differ"):
        check_rendering(rendering, tags=[])
