"""CUDA C++ on the host: a program of ``on_host`` is compiled by g++."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The program of a source."""

    def build(source: str) -> Path:
        compiler = shutil.which("g++")
        if compiler is None:
            pytest.skip("no g++ is installed")
        folder = tmp_path_factory.mktemp("on_host")
        (folder / "main.cpp").write_text(source)
        headers = f"-I{Path(__file__).parent / 'on_host'}"
        command = [compiler, "-O1", "-w", "-std=c++17", headers, "main.cpp", "-o", "main"]
        built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        return folder / "main"

    return build
