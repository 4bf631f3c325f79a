"""Experiments that someone has forged or damaged: nothing outside of them is removed, written or
shown."""

from __future__ import annotations

import ast
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

import gemmetry
from gemmetry.cli.main import run
from gemmetry.domain.errors import RequestError
from gemmetry.formats.files import remove, within

PROFILE = ("profile", "--providers", "null", "--shapes", "64x64x64,32x32x32")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "experiment"
    assert run([*PROFILE, "--experiment", str(folder)]) == 0
    return folder


@pytest.fixture
def forged(made, tmp_path, monkeypatch):
    """A copy of an experiment, next to a folder with a file that is precious."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path / "experiment")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious.txt").write_text("precious")
    return tmp_path / "experiment"


def edit_records(folder, change):
    """Apply `change` to the document of each record."""
    with sqlite3.connect(folder / "journal.sqlite") as journal:
        for number, text in journal.execute("SELECT id, document FROM records").fetchall():
            document = json.loads(text)
            change(document)
            changed = (json.dumps(document).encode(), number)
            journal.execute("UPDATE records SET document = ? WHERE id = ?", changed)
    journal.close()


@pytest.mark.parametrize("name", ["temporary", "previous", "lock", "artifacts/logs", "references"])
@pytest.mark.parametrize("command", [("--shapes", "16x16x16"), ("--fresh",)])
def test_links_out_of_an_experiment_lose_nothing(forged, name, command):
    place = forged / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    outside = forged.parent / "outside"
    place.symlink_to(outside / "precious.txt" if name == "lock" else outside)
    run([*PROFILE, *command, "--experiment", str(forged)])
    assert (outside / "precious.txt").read_text() == "precious"
    assert sorted(path.name for path in outside.iterdir() if path.stat().st_size == 0) == []


def test_a_forged_manifest_of_traces_removes_nothing(forged):
    (forged / "traces_matmul").mkdir()
    entry = {"number": 1, "folder": "traces_matmul/../../outside", "device": "null:0",
             "provider": "null", "dispatch": "matmul_64x64x64_f32t_f32t_f32t_default"}  # fmt: skip
    manifest = {"schema_version": 1, "configurations": [entry]}
    (forged / "traces_matmul" / "manifest.json").write_text(json.dumps(manifest))
    from gemmetry.domain.errors import JournalDamagedError
    from gemmetry.store.trace_manifest import TraceManifest

    with pytest.raises(JournalDamagedError):
        TraceManifest(forged)


def test_stored_paths_that_leave_the_folder_are_not_followed(forged, capsys):
    secret = forged.parent / "outside" / "secret.txt"
    secret.write_text("the secret")
    (forged / "link.txt").symlink_to(secret)
    for path in (str(secret), "../outside/secret.txt", "link.txt"):
        edit_records(forged, lambda record, path=path: record["facts"].update(source_path=path))
        assert run(["show", str(forged), "*64x64x64*fast"]) == 0
        assert "the secret" not in capsys.readouterr().out
    assert run(["merge", str(forged), str(forged), "--into", "merged/first"]) == 0
    counters = {"folder": "../../outside", "metric_set": "x", "launches": 1, "passes": 1}
    edit_records(forged, lambda record: record.update(counters=counters))
    assert run(["merge", str(forged), str(forged), "--into", "merged/experiment"]) == 2
    assert sorted(path.name for path in secret.parent.iterdir()) == ["precious.txt", "secret.txt"]


@pytest.mark.parametrize("stored", ["/etc/passwd", "../x", "a/../../x", "link/x", "a\0b"])
def test_only_paths_within_a_folder_are_joined(tmp_path, stored):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path)
    with pytest.raises(RequestError):
        within(tmp_path / "folder", stored)
    assert within(tmp_path / "folder", "a/b") == tmp_path / "folder" / "a" / "b"


def test_removal_never_follows_a_link(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside / "tree" / "below", outside):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    (inside / "tree" / "link").symlink_to(outside)
    (inside / "link").symlink_to(outside)
    for path in (inside / "link" / "file", inside / ".." / "outside", outside / "file"):
        with pytest.raises(OSError):
            remove(path, inside=inside)
    remove(inside / "link", inside=inside)
    remove(inside / "tree", inside=inside)
    remove(inside / "absent" / "file", inside=inside)
    assert list(inside.iterdir()) == []
    assert (outside / "file").read_text() == "x"


REMOVING = {"unlink", "rmtree", "rmdir", "remove", "removedirs"}


def test_what_is_removed_goes_through_one_function():
    """Except for the guardian, which imports nothing of gemmetry, and folders that are removed
    only if they are empty; the agents' protocol has its own folders."""
    root = Path(gemmetry.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            of = call.func.value
            name, owner = call.func.attr, of.id if isinstance(of, ast.Name) else ""
            if name in REMOVING and (name != "remove" or owner == "os"):
                found.add((path.relative_to(root).as_posix(), name))
    agents = {one for one in found if one[0].startswith("engine/agents/")}
    assert found - agents == {
        ("formats/files.py", "unlink"), ("formats/files.py", "rmtree"),
        ("engine/workers/guardian.py", "rmtree"), ("store/experiment.py", "rmdir"),
    }  # fmt: skip
