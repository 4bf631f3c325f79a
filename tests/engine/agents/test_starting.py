from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.errors import UnknownNameError
from gemmetry.engine.agents import starters
from gemmetry.engine.agents.starting import load_starter, starter_names


def test_a_starter_is_a_module_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pretend.py").write_text("STARTER = 'what starts'\n")
    monkeypatch.setattr(starters, "__path__", [*starters.__path__, str(tmp_path)])
    assert "pretend" in starter_names()
    assert load_starter("pretend") == "what starts"


def test_an_unknown_starter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError) as refused:
        load_starter("slrm")
    assert refused.value.exit_status == 2
    assert "executor 'slrm'" in str(refused.value)
