from __future__ import annotations

import pytest

from gemmetry.api.catalogue import InstalledCatalogue
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.target import TargetKind


def test_answers_come_from_the_registry():
    catalogue = InstalledCatalogue()
    assert "null" in catalogue.provider_names()
    assert catalogue.unavailable("null", {}) is None
    assert [t.kind for t in catalogue.targets("null", {"devices": 2})] == [TargetKind.NULL] * 2
    assert catalogue.provider("null") is catalogue.provider("null", {})
    assert catalogue.provider("null") is not catalogue.provider("null", {"devices": 2})
    with pytest.raises(UnknownNameError):
        catalogue.provider("nobody")
