"""What tests of analysed sweeps share."""

from __future__ import annotations

import pytest


@pytest.fixture
def without_plots_and_workbooks(monkeypatch):
    """They take most of the time; ``test_analyze_files.py`` has them written."""
    from gemmetry.documents import sweep_plots as plots
    from gemmetry.sweeps import api as sweeps

    analyze = sweeps.analyze
    monkeypatch.setattr(plots, "sweep_plots", lambda points: {"plot.png": b""})
    monkeypatch.setattr(
        sweeps, "analyze", lambda *args, **options: analyze(*args, **options | {"workbooks": False})
    )
