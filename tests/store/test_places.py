from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.engine.schema import JOURNAL_NAME, missing_experiment


@pytest.fixture(autouse=True)
def experiments(tmp_path, monkeypatch):
    """Three experiments in the default folder, one in the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("gemmetry-out/run", "gemmetry-out/profile-12ab", "gemmetry-out/profile-99ff",
                 "before"):  # fmt: skip
        Path(name).mkdir(parents=True)
        (Path(name) / JOURNAL_NAME).touch()


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("run", "Did you mean gemmetry-out/run?"),
        ("profile-12ab", "Did you mean gemmetry-out/profile-12ab?"),
        ("profile", "Did you mean gemmetry-out/profile-12ab or gemmetry-out/profile-99ff?"),
        ("gemmetry-out/profile-12ac", "Did you mean gemmetry-out/profile-12ab?"),
        ("befor", "Did you mean before?"),
        ("gemmetry-out", "Did you mean gemmetry-out/profile-12ab, gemmetry-out/profile-99ff or "
         "gemmetry-out/run?"),
        ("nowhere", "Give the folder that a profile run printed as its experiment."),
    ],
)  # fmt: skip
def test_what_may_be_meant_is_suggested(path, hint):
    error = missing_experiment(Path(path))
    assert error.message.startswith(f"no experiment in {path}: ")
    assert error.hint == hint


def test_the_cause_is_a_missing_folder_or_one_without_a_journal():
    assert missing_experiment(Path("none")).message.endswith("there is no such folder")
    Path("empty").mkdir()
    assert missing_experiment(Path("empty")).message.endswith(f"it has no {JOURNAL_NAME}")
    Path("file").touch()
    assert missing_experiment(Path("file")).message.endswith("it is a file")
