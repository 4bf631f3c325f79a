from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gemmetry.formats.counters.ncu_report import python_folders, report_library


@pytest.fixture(autouse=True)
def opt(monkeypatch, tmp_path):
    """Where packages install Nsight Compute, on a machine without the library from PyPI."""
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if not _has_library(one)])
    yield tmp_path / "opt"
    sys.modules.pop("ncu_report", None)


def _has_library(folder):
    return Path(folder, "ncu_report").is_dir()


def install(root, library="VERSION = 'x'\n"):
    folder = root / "extras" / "python"
    folder.mkdir(parents=True)
    (folder / "ncu_report.py").write_text(library)
    (root / "ncu").write_bytes(b"\x7fELF")
    return root


def test_nothing_is_found_where_nothing_is(opt, tmp_path):
    assert report_library(None, opt) is None
    assert report_library(tmp_path / "bin" / "ncu", opt) is None


def test_the_library_next_to_a_linked_ncu(opt, tmp_path):
    root = install(tmp_path / "nsight")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ncu").symlink_to(root / "ncu")
    before = list(sys.path)
    library = report_library(tmp_path / "bin" / "ncu", opt)
    assert library.VERSION == "x"
    assert Path(library.__file__).parents[2] == root
    assert sys.path == before
    # The program may lie within the installation.
    program = root / "target" / "linux-desktop-glibc_2_11_3-x64" / "ncu"
    assert list(python_folders(program, opt)) == [root / "extras" / "python"]


@pytest.mark.parametrize("place", ["toolkit", "opt"])
def test_the_script_of_a_toolkit_names_the_version(place, opt, tmp_path):
    toolkit = tmp_path / "cuda"
    names = ["2024.1.0", "2025.3.1", "2025.10.0"]
    roots = {
        name: install(opt / name if place == "opt" else toolkit / f"nsight-compute-{name}")
        for name in names
    }
    (toolkit / "bin").mkdir(parents=True)
    script = toolkit / "bin" / "ncu"
    script.write_text('#!/usr/bin/env bash\nVERSION="2025.3.1"\nexec "$x" "$@"\n')
    found = list(dict.fromkeys(one.parents[1] for one in python_folders(script, opt)))
    assert found == [roots[name] for name in ("2025.3.1", "2025.10.0", "2024.1.0")]


def test_without_ncu_the_newest_that_can_be_imported(opt):
    install(opt / "2024.9.0")
    install(opt / "2024.10.0", "VERSION = 'newer'\n")
    assert report_library(None, opt).VERSION == "newer"
    sys.modules.pop("ncu_report")
    install(opt / "2025.1", "import _for_another_processor\n")
    assert report_library(None, opt).VERSION == "newer"
