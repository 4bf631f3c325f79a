from __future__ import annotations

from gemmetry.domain.errors import Stage
from gemmetry.domain.settings import DISTRIBUTIONS, RunSettings


def test_default_settings_are_sane():
    settings = RunSettings()
    assert settings.distribution in DISTRIBUTIONS
    assert set(settings.deadlines_s) == set(Stage)
    assert all(seconds > settings.time_budget_s for seconds in settings.deadlines_s.values())
    assert settings.seed == 42
    assert RunSettings().deadlines_s is not RunSettings().deadlines_s
