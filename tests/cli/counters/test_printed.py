"""What the commands about counters print, whole: the blocks of ``expected/counters.txt``.

``GEMMETRY_REWRITE=1 pytest tests/cli/counters/test_printed.py`` writes what they print today into
the file; its difference shows what changed.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data" / "counters"
FILES = {
    "raw.csv.gz": DATA / "h200_cublas_bf16_4096_raw.csv.gz",
    "details.csv.gz": DATA / "h200_cublas_bf16_4096_details.csv.gz",
    "severe.csv.gz": DATA / "planted_h200" / "planted_severe.csv.gz",
    "gemms.csv.gz": DATA / "planted_h200" / "gemms.csv.gz",
    "amd.csv.gz": DATA / "mi300x_vcopy_pmc_perf.csv.gz",
}
PAGE = Path(__file__).parents[1] / "expected" / "counters.txt"
BLOCKS = dict(part.split("\n", 1) for part in PAGE.read_text("utf-8").split("$ gemmetry ")[1:])
PRINTED: dict[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def _rewritten():
    yield
    if os.environ.get("GEMMETRY_REWRITE"):
        text = "\n".join(f"$ gemmetry {one}\n{PRINTED[one]}" for one in BLOCKS)
        PAGE.write_text(text, "utf-8")


@pytest.mark.parametrize("command", BLOCKS)
def test_what_a_command_prints(cli, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    for name, path in FILES.items():
        Path(name).symlink_to(path)
    ended = cli(*shlex.split(command))
    notes = "".join(f"! {line}\n" for line in ended.stderr.splitlines())
    PRINTED[command] = f"{ended.stdout}{notes}"
    if not os.environ.get("GEMMETRY_REWRITE"):
        assert PRINTED[command].rstrip("\n") == BLOCKS[command].rstrip("\n")
    lines = ended.stdout.splitlines()
    assert [one for one in lines if len(one) > 80 and len(one.split()) > 1] == []
