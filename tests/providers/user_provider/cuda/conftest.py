"""Machine code of the examples with changed manifests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

CUBINS = Path(__file__).parents[4] / "examples" / "cubins"


@pytest.fixture
def copied(tmp_path: Path) -> Callable[..., str]:
    """A copy of an example, with changes of its manifest; returns the text of --kernel."""

    def made(name: str, *changes: tuple[str, str]) -> str:
        shutil.copy(CUBINS / f"{name}_gemm.cubin", tmp_path)
        text = (CUBINS / f"{name}_gemm.toml").read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / f"{name}_gemm.toml").write_text(text)
        return f"{tmp_path / name}_gemm.cubin:{name}"

    return made
