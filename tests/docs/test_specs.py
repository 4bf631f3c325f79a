"""The spec files shown in ``docs/specs.md`` are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmetry.domain.specs.loader import load_spec

PAGE = Path(__file__).parents[2] / "docs" / "specs.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_valid_spec(tmp_path, example):
    path = tmp_path / "spec.yaml"
    path.write_text(example)
    assert load_spec(path).model_fields_set
