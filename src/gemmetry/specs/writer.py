"""Writes a spec as YAML text that reads back as the same spec."""

from __future__ import annotations

import json
from typing import Any

from gemmetry.specs.model import ProfileSpec

_HEADER = """\
# A gemmetry spec; run it with: gemmetry profile --spec THIS_FILE
# `gemmetry help specs` explains the keys, and how an editor checks them (gemmetry schema -o FILE).
"""


def spec_text(spec: ProfileSpec) -> str:
    """The given values (without defaults), in the order of the model's fields."""
    given = spec.model_dump(mode="json", exclude_unset=True)
    # JSON values are YAML too, and quoted texts cannot be taken for numbers or null.
    lines = [f"{name}: {json.dumps(_plain(value), ensure_ascii=False)}\n"
             for name, value in given.items()]  # fmt: skip
    return _HEADER + ("".join(lines) or "{}\n")  # Without any key the file would not be a request.


def _plain(value: Any) -> Any:
    """The value without its empty parts, as a provider's options often are empty."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item not in ({}, [], None)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
