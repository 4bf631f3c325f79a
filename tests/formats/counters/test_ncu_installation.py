from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gemmetry.formats.counters import ncu_installation
from gemmetry.formats.counters.ncu_installation import (
    installations,
    ncu_executable,
    python_folders,
    report_library,
)


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(ncu_installation, "installations", lambda: installations(tmp_path / "opt"))
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if "ncu_report" not in _in(one)])


def _in(folder):
    return [one.name for one in Path(folder).iterdir()] if Path(folder).is_dir() else []


def install(root, library="VERSION = 'x'\n"):
    folder = root / "extras" / "python"
    folder.mkdir(parents=True)
    (folder / "ncu_report.py").write_text(library)
    start = root / "ncu"
    start.write_text("#!/bin/sh\n")
    start.chmod(0o755)
    return root


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_nothing_is_found_where_nothing_is():
    assert (report_library(), ncu_executable(), python_folders()) == (None, None, [])


def test_the_library_next_to_a_linked_ncu(tmp_path, monkeypatch):
    root = install(tmp_path / "nsight")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ncu").symlink_to(root / "ncu")
    before = list(sys.path)
    library = report_library()
    assert library.VERSION == "x"
    assert Path(library.__file__).parents[2] == root
    assert sys.path == before
    assert ncu_executable() == tmp_path / "bin" / "ncu"
    sys.modules.pop("ncu_report")


def test_the_script_of_a_toolkit_names_the_version(tmp_path):
    toolkit = tmp_path / "cuda"
    for version in ("2024.1.0", "2025.3.1", "2025.10.0"):
        install(toolkit / f"nsight-compute-{version}")
    script(toolkit / "bin" / "ncu", '#!/usr/bin/env bash\nVERSION="2025.3.1"\nexec "$x" "$@"\n')
    (tmp_path / "bin").symlink_to(toolkit / "bin")
    found = [one.name for one in installations(tmp_path / "opt")]
    assert found == [f"nsight-compute-{one}" for one in ("2025.3.1", "2025.10.0", "2024.1.0")]


def test_without_ncu_on_the_path_the_newest_in_opt(tmp_path):
    for version in ("2024.9.0", "2024.10.0"):
        install(tmp_path / "opt" / version)
    assert python_folders()[0] == tmp_path / "opt" / "2024.10.0" / "extras" / "python"
    assert ncu_executable() == tmp_path / "opt" / "2024.10.0" / "ncu"


def test_a_library_that_cannot_be_imported_is_passed_over(tmp_path):
    install(tmp_path / "opt" / "2025.1", "import _for_another_processor\n")
    install(tmp_path / "opt" / "2024.1", "VERSION = 'old'\n")
    assert report_library().VERSION == "old"
    sys.modules.pop("ncu_report")
