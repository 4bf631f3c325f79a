"""The support matrix in the docs is the providers' own answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.api.support import PLACES, SAMPLES, support_rows
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import OperationKind

PAGE = Path(__file__).parents[2] / "docs" / "support.md"


def test_the_page_is_up_to_date():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from gemmetry.cli.support_page import support_page

    assert PAGE.read_text() == support_page(), (
        "run: python -m gemmetry.cli.support_page > docs/support.md"
    )


def test_every_kind_and_provider_is_asked():
    assert {parse_operation(name).kind for _, name in SAMPLES} == set(OperationKind)
    assert {provider for provider, _ in PLACES} == {"numpy", "torch", "iree", "triton"}


def test_every_row_has_somebody_who_can():
    for row in support_rows():
        assert "" in row.refusals.values(), row.asked
