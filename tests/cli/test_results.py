from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.cli.results import Rendering, check_rendering, columns_of, rendering_of
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.specs.model import ProfileSpec


def test_a_spec_says_what_is_rendered():
    spec = ProfileSpec(output=["a.csv"], columns="all,gflops", html="r.html", format="md")
    rendering = rendering_of(spec, json=True, html=Path("default.html"))
    assert rendering.outputs == (Path("a.csv"),)
    assert rendering.columns == ("gemmetry", "gflops")
    assert rendering.html == Path("r.html")
    assert rendering.json
    assert rendering_of(ProfileSpec(), json=False, html=Path("d.html")).html == Path("d.html")


def test_columns_from_lists():
    assert columns_of(["a,b", "c d"]) == ("a", "b", "c", "d")
    assert columns_of(None) == ()


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
