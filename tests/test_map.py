"""``docs/map.md`` names only what exists, and it names every folder of the package."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gemmetry"
TEXT = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
NAMED = [text.removeprefix("python ").split()[0] for text in re.findall(r"`([^`]+)`", TEXT)]
PATHS = [name for name in NAMED if re.fullmatch(r"[\w./*-]*(?:/|\.(?:py|cu|toml))", name)]


def test_every_file_and_folder_on_the_map_exists() -> None:
    places = ("src", "tests", "docs", "examples", "benchmarks")
    known = [path.as_posix() for place in places for path in (ROOT / place).rglob("*")]
    known += [path.as_posix() for path in ROOT.iterdir()]
    everything = "\n".join(known)
    assert "engine/session.py" in PATHS
    # A row may name a file as it is called within the folder that the row names first.
    patterns = {
        name: rf"/{re.escape(name.rstrip('/'))}$".replace(r"\*", "[^/\n]*") for name in PATHS
    }
    missing = [name for name, end in patterns.items() if not re.search(end, everything, re.M)]
    assert missing == []


def test_every_folder_of_the_package_is_on_the_map() -> None:
    rows = dict(re.findall(r"^\| `(\w+)/` \| (.*) \|$", _section("## The rooms"), re.M))
    absent = []
    for folder in _folders():
        top, *inner = folder.split("/")
        if top not in rows or (inner and f"`{inner[-1]}/`" not in rows[top]):
            absent.append(folder)
    assert absent == []


def test_what_the_rows_of_the_rooms_name_is_in_these_rooms() -> None:
    rows = dict(re.findall(r"^\| `(\w+)/` \| (.*) \|$", _section("## The rooms"), re.M))
    named = [
        (room, name.rstrip("/"))
        for room, text in rows.items()
        for name in re.findall(r"`([\w/*]+(?:/|\.py|\.csv))`", text)
    ]
    assert len(named) > 40
    assert [one for one in named if not [*(PACKAGE / one[0]).rglob(one[1])]] == []


def _folders() -> list[str]:
    """The folders of the package, relative to it."""
    files = (path for path in PACKAGE.rglob("*.*") if "__pycache__" not in path.parts)
    found = {path.parent for path in files if path.is_file()} - {PACKAGE}
    return sorted(path.relative_to(PACKAGE).as_posix() for path in found)


def _section(heading: str) -> str:
    return TEXT.partition(f"\n{heading}")[2].partition("\n## ")[0]
