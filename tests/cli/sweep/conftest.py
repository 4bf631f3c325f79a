"""What tests of analysed sweeps share."""

from __future__ import annotations

import pytest

from gemmetry.sweeps import api as sweeps


@pytest.fixture
def without_plots_and_workbooks(monkeypatch, quick_plots):
    """They take most of the time; ``test_analyze_files.py`` has them written."""
    analyze = sweeps.analyze
    monkeypatch.setattr(
        sweeps, "analyze", lambda *args, **options: analyze(*args, **options | {"workbooks": False})
    )
