"""Puts the pages of ``docs/`` into the wheel, for ``gemmetry help``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Pages(BuildHookInterface):
    """Adds each page next to the modules; an editable installation reads those of the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the pages to what is built."""
        if version == "editable":
            return
        for page in sorted(Path(self.root, "docs").glob("*.md")):
            build_data["force_include"][str(page)] = f"gemmetry/pages/{page.name}"
