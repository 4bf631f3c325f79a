from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from gemmetry.cli.console import (
    Rendering,
    Source,
    check_rendering,
    command_line,
    note,
    plan_request,
    read_request,
    rendering_of,
    stderr_console,
    stdout_console,
)
from gemmetry.cli.main import run
from gemmetry.cli.options import Written
from gemmetry.domain.errors import RequestError, SpecError, StorageError, UnknownNameError
from gemmetry.domain.specs.model import ProfileSpec
from gemmetry.domain.tables import Column, Table

COMMAND = "gemmetry trace report gemmetry-out/profile-0123456789 -o report.html"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_results_and_notes_go_to_different_streams(capsys):
    stdout_console().print("result")
    stderr_console().print("progress")
    note("note")
    assert capsys.readouterr() == ("result\n", "progress\nnote\n")


def test_notes_and_errors_break_between_words_on_a_terminal(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    status = run(["profile", "--shapes", "64,64,64", "--providers", "nobody"])
    note("the traces of this run can be read with a command that is longer than a line:",
         command=COMMAND)  # fmt: skip
    assert status == 2
    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    lines = text.splitlines()
    assert sum(line.startswith(("error: ", "hint: ")) for line in lines) >= 2
    assert len(lines) > 5
    assert all(len(line) <= 60 for line in lines)
    words = " ".join(text.replace(" \\\n", " ").split())
    for part in ("unknown provider 'nobody'", "'64,64,64' may be one shape or 3 squares", COMMAND):
        assert part in words


@pytest.mark.parametrize(("columns", "width"), [("80", 80), ("many", 160), ("", 160)])
def test_piped_tables_are_wide_unless_a_width_is_given(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    assert stdout_console().width == width


def test_the_command_line_can_be_copied(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/gemmetry", "profile", "--dispatches", "a* b"])
    assert command_line() == "gemmetry profile --dispatches 'a* b'"


def test_options_win_over_settings_and_settings_over_the_file(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text("seed: 1\nname: file\ntags: {a: b}\n")
    source = Source(given={"seed": "3"}, spec=spec, settings=["seed=2", "name=set"])
    request = read_request(source, generated_dir="here", tags={"other": "x"})
    assert (request.seed, request.name, request.generated_dir) == (3, "set", "here")
    assert request.tags == {"a": "b"}


def test_mistakes_of_set_and_of_options_stand_where_they_were_made():
    for given, settings, places, hint in (
        ({"dtypes": ["f99"]}, ["foo=1", "deadlines.nap=1"],
         {"--set foo", "--set deadlines.nap", "--dtypes"}, "gemmetry help specs"),
        ({"seed": "x"}, ["seed=y"], {"--seed"}, "--help"),
    ):  # fmt: skip
        with pytest.raises(SpecError) as raised:
            read_request(Source(given=given, settings=settings))
        assert {text.partition(":")[0] for text in raised.value.mistakes} == places
        assert hint in raised.value.hint


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
    given = {"dtypes": ["f16,f32", "bf16"], "dispatches": ["x{1,2}", "y"]}
    spec = read_request(Source(given=given))
    assert spec.dtypes == ("f16", "f32", "bf16") and spec.dispatches == ("x{1,2}", "y")


def test_a_spec_says_what_is_rendered():
    spec = ProfileSpec(output=["a.csv"], columns="all,gflops", html="r.html", format="md")
    found = rendering_of(spec, json=True)
    assert (found.outputs, found.html, found.json) == ((Path("a.csv"),), Path("r.html"), True)
    assert found.columns == ("gemmetry", "gflops")
    assert rendering_of(ProfileSpec(), json=False).html is None


def test_what_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    folder, blocked = tmp_path / "a.csv", tmp_path / "file"
    folder.mkdir()
    blocked.write_text("")
    before = sorted(tmp_path.iterdir())
    check_rendering(Rendering(outputs=(tmp_path / "new" / "folder" / "a.csv",)))
    check_rendering(Rendering(columns=("summary",)))
    for rendering, error, named in (
        (Rendering(outputs=(Path("a.pdf"),)), RequestError, "suffix"),
        (Rendering(columns=("nope",)), UnknownNameError, "nope"),
        (Rendering(outputs=(folder,)), RequestError, "folder"),
        (Rendering(outputs=(blocked / "b.csv",)), StorageError, "cannot write"),
    ):
        with pytest.raises(error, match=named):
            check_rendering(rendering)
    assert sorted(tmp_path.iterdir()) == before


def test_other_columns_to_append_to_are_refused_before_anything_runs(tmp_path):
    old = tmp_path / "a.csv"
    old.write_text("note,gflops\n")
    rendering = Rendering(outputs=(old,), columns=("gflops",), append=True)
    check_rendering(rendering, tags=["note"])
    with pytest.raises(RequestError, match="columns differ"):
        check_rendering(rendering, tags=[])


def test_an_empty_table_is_still_a_table_and_a_file_that_cannot_be_is_refused(tmp_path, capsys):
    table = Table("things", (Column("name"), Column("ok")))
    Written(json=False, output=[tmp_path / "t.csv"]).emit(table)
    assert (tmp_path / "t.csv").read_text() == "name,ok\n"
    assert capsys.readouterr().out.split() == ["name", "ok"]
    for name, error in (("t.pdf", RequestError), ("t.csv/t.md", StorageError)):
        with pytest.raises(error):
            Written(json=True, output=[tmp_path / name]).emit(table)
    assert capsys.readouterr().out == "", "nothing is shown before"
