"""CUDA C++ on the host: a program of ``on_host`` is compiled by g++."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

SOURCES = Path(str(resources.files("gemmetry.providers.kernels")))


def in_namespace(name: str, source: str, instructions: str, macros: dict[str, object]) -> str:
    """A source of the kernels in a namespace, with its macros. Its `instructions`, a part of the
    text, are those of ``on_host``; memory whose size the launch decides has a fixed one."""
    text = (SOURCES / f"{source}.cu").read_text()
    text = re.sub(r"#include .*", "", text).replace('extern "C" ', "")
    text = re.sub(rf"// ---- {instructions}", "", text, flags=re.DOTALL)
    text = re.sub(r"extern __shared__ (.*?)(\w+)\[\];", r"static \1\2[1 << 18];", text)
    defined = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
    undefined = "".join(f"#undef {macro}\n" for macro in macros)
    return f"{defined}namespace {name} {{\n{text}\n}}\n{undefined}"


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
