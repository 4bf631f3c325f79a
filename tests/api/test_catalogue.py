from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from gemmetry.domain.dispatch import TargetKind, parse_operation
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.operation import OperationKind
from gemmetry.engine.catalogue import SAMPLES, InstalledCatalogue, support_rows
from gemmetry.providers import registry
from gemmetry.providers.base import support_places


def test_answers_come_from_the_registry():
    catalogue = InstalledCatalogue()
    assert "null" in catalogue.provider_names()
    assert catalogue.unavailable("null", {}) is None
    assert [t.kind for t in catalogue.targets("null", {"devices": 2})] == [TargetKind.NULL] * 2
    assert catalogue.provider("null") is catalogue.provider("null", {})
    assert catalogue.provider("null") is not catalogue.provider("null", {"devices": 2})
    with pytest.raises(UnknownNameError):
        catalogue.provider("nobody")


def test_a_broken_plugin_is_listed_as_unavailable(monkeypatch, tmp_path):
    (tmp_path / "broken_listed_plugin.py").write_text("raise KeyError('surprise')")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("broken", "broken_listed_plugin:Thing", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [point])
    catalogue = InstalledCatalogue()
    assert "KeyError: 'surprise'" in (catalogue.unavailable("broken", {}) or "")
    assert list(catalogue.targets("broken", {})) == []
    assert catalogue.provider("broken").name == "broken"


def test_the_matrix_covers_every_kind_and_provider():
    assert {parse_operation(name).kind for _, name in SAMPLES} == set(OperationKind)
    providers = {provider for provider, _ in support_places()}
    assert providers == {"numpy", "torch", "cublaslt", "iree", "triton", "cuda"}


def test_every_row_is_supported_somewhere():
    for row in support_rows():
        assert "" in row.refusals.values(), row.operation
