"""Sphinx settings: Markdown through MyST, the furo theme, nothing fetched from elsewhere."""

from __future__ import annotations

from importlib.metadata import version as installed_version

project = "gemmetry"
author = "the gemmetry contributors"
copyright = author
version = release = installed_version("gemmetry")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"gemmetry {version}"
html_copy_source = False
html_show_sourcelink = False
