from __future__ import annotations

from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import OperationKind
from gemmetry.engine.catalogue import SAMPLES, support_rows
from gemmetry.providers.base import support_places


def test_the_matrix_covers_every_kind_and_provider():
    assert {parse_operation(name).kind for _, name in SAMPLES} == set(OperationKind)
    providers = {provider for provider, _ in support_places()}
    assert providers == {"numpy", "torch", "cublaslt", "iree", "triton", "cuda"}


def test_every_row_is_supported_somewhere():
    for row in support_rows():
        assert "" in row.refusals.values(), row.operation
