"""Takes a campaign's results over into the tests' data and the page of measured tables."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests/data/counters/planted_h200"
"""The results that the tests and the page are about."""
PAGE = ROOT / "docs/measured-tables.md"

NAMES = ("planted_severe", "planted_mild", "gemms")
FACTS = "campaign.json"
"""When and with what a campaign was collected."""
PRODUCTS = "gemms.json"
_TABLES = tuple(f"{name}{end}.csv" for name in NAMES for end in ("", "_details"))
_BLOCK = re.compile(r"^Collected on .*?^Of \d+ mild variants[^\n]*", re.MULTILINE | re.DOTALL)


def provenance(folder: Path) -> str:
    """The sentence that says when and with what the results of `folder` were collected."""
    facts = json.loads(existing(folder, FACTS).read_text())
    return (
        f"Collected on {facts['date']} on an {facts['gpu']} in {facts['seconds']} s: driver "
        f"{facts['driver']}, Nsight Compute {facts['ncu']},\ntorch {facts['torch']}, Triton "
        f"{facts['triton']}, `--set {facts['set']}`, clocks unchanged."
    )


def existing(folder: Path, name: str) -> Path:
    """A file of a campaign, which may be compressed."""
    found = [path for end in ("", ".gz") if (path := folder / f"{name}{end}").exists()]
    if not found:
        raise SystemExit(f"{folder} has no {name}: write it with campaign.sh")
    return found[0]


def copy_results(folder: Path, kept: Path) -> None:
    """Copy the files of a campaign to `kept`, tables compressed, and nothing if one is missing."""
    found = {name: existing(folder, name) for name in (*_TABLES, PRODUCTS, FACTS)}
    kept.mkdir(parents=True, exist_ok=True)
    for name, path in found.items():
        if name not in _TABLES:
            shutil.copy(path, kept / name)
            continue
        content = path.read_bytes() if path.suffix != ".gz" else gzip.decompress(path.read_bytes())
        # Without a time, the same results are the same file.
        (kept / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))


def with_block(page: Path, block: str) -> str:
    """The text of `page` with `block` in place of what it has of an earlier campaign."""
    text, count = _BLOCK.subn(lambda _: block, page.read_text())
    if count != 1:
        raise SystemExit(
            f'{page} has {count} blocks from "Collected on" to "Of … mild variants", not one'
        )
    return text
