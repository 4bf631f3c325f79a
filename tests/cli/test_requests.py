from __future__ import annotations

import pytest

from gemmetry.cli.console import Source, given_values, plan_request, read_request
from gemmetry.domain.errors import SpecError, StorageError


def test_options_win_over_settings_and_settings_over_the_file(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text("seed: 1\nname: file\ntags: {a: b}\n")
    source = Source(given={"seed": "3"}, spec=spec, settings=["seed=2", "name=set"])
    request = read_request(source, generated_dir="here", tags={"other": "x"})
    assert (request.seed, request.name, request.generated_dir) == (3, "set", "here")
    assert request.tags == {"a": "b"}


def test_mistakes_of_set_and_of_options_stand_where_they_were_made():
    with pytest.raises(SpecError) as raised:
        read_request(Source(given={"dtypes": ["f99"]}, settings=["foo=1", "deadlines.nap=1"]))
    places = {text.partition(":")[0] for text in raised.value.mistakes}
    assert places == {"--set foo", "--set deadlines.nap", "--dtypes"}
    assert "gemmetry help specs" in raised.value.hint
    with pytest.raises(SpecError) as raised:
        read_request(Source(given={"seed": "x"}, settings=["seed=y"]))
    assert raised.value.mistakes[0].startswith("--seed: ")
    assert "--help" in raised.value.hint


def test_paths_in_a_file_are_relative_to_it(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "specs"
    folder.mkdir()
    (folder / "shapes.txt").write_text("2x3x4\n")
    (tmp_path / "shapes.txt").write_text("5x6x7\n")
    spec = folder / "spec.yaml"
    spec.write_text("shapes: shapes.txt\nproviders: null\n")
    monkeypatch.chdir(tmp_path)

    def operations(**given):
        source = Source(given=given, spec=spec)
        return [str(o) for o in plan_request(read_request(source), source).plan.operations]

    assert operations() == ["matmul_2x3x4_f32t_f32t_f32t"]
    assert operations(shapes=["shapes.txt"]) == ["matmul_5x6x7_f32t_f32t_f32t"]
    assert "device: null:0" in capsys.readouterr().err


def test_a_spec_that_cannot_be_saved_is_reported(tmp_path):
    with pytest.raises(StorageError, match="spec"):
        read_request(Source(given={}, save=tmp_path / "missing" / "spec.yaml"))


def test_lists_become_one_text_but_patterns_stay_apart():
    assert given_values({"dtypes": ["a,b", "c"], "dispatches": ["x{1,2}", "y"], "seed": "1"}) == {
        "dtypes": "a,b,c",
        "dispatches": ["x{1,2}", "y"],
        "seed": "1",
    }
