"""The documentation says what the command line does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmetry.cli.reference import command_reference
from gemmetry.specs.keys import ALIASES, KEYS, RETIRED
from gemmetry.specs.loader import load_spec

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    assert (DOCS / "command-line.md").read_text() == command_reference(), (
        "run: python -m gemmetry.cli.reference > docs/command-line.md"
    )


def test_every_option_and_alias_is_on_the_page():
    page = command_reference()
    for key in KEYS.values():
        assert key.option in page or f"`{key.name} " in page
    for alias in ALIASES:
        assert f"--{alias.replace('_', '-')}" in page
    for old in RETIRED:
        assert old.option in page


def examples() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (DOCS / "specs.md").read_text(), re.S)


@pytest.mark.parametrize("number", range(len(examples())))
def test_the_spec_examples_are_valid(tmp_path, number):
    path = tmp_path / "spec.yaml"
    path.write_text(examples()[number])
    assert load_spec(path).model_fields_set
