"""Spec -> YAML text that reads back as the same spec."""

from __future__ import annotations

from typing import Any

import yaml

from gemmetry.specs.model import ProfileSpec

_HEADER = """\
# A gemmetry spec; run it with: gemmetry profile --spec THIS_FILE
# yaml-language-server: $schema=gemmetry.schema.json   (made by: gemmetry schema -o ...)
"""


def spec_text(spec: ProfileSpec) -> str:
    """What was given (not what is default), in the order of the model's fields."""
    given = spec.model_dump(mode="json", exclude_unset=True)
    ordered = {name: given[name] for name in ProfileSpec.model_fields if name in given}
    lines = [_HEADER]
    for name, value in ordered.items():
        lines.append(yaml.safe_dump({name: _plain(value)}, sort_keys=False, default_flow_style=None,
                                    allow_unicode=True, width=100))  # fmt: skip
    return "".join(lines)


def _plain(value: Any) -> Any:
    """Without the parts that are empty, which a provider's options often are."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item not in ({}, [], None)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
