from __future__ import annotations

import numpy as np

from gemmetry.domain.names import parse_operation
from gemmetry.verification.inputs import exact as case_cache
from gemmetry.verification.inputs.exact import CaseCache, integers


def test_cases_are_kept_within_their_limit(monkeypatch):
    operations = [parse_operation(f"matmul_8x8x{k}_f32t_f32t_f32t") for k in (8, 16, 32)]
    made = []

    def get(cache, operation):
        def make():
            made.append(operation)
            return integers(operation, 1, np.matmul)

        return cache.get(operation, ("integers",), make)

    cache = CaseCache()
    cases = [get(cache, operation) for operation in operations[:2]]
    assert get(cache, operations[0]) is cases[0]
    assert made == operations[:2]
    monkeypatch.setattr(case_cache, "CASE_CACHE_BYTES", cases[1].nbytes)
    get(cache, operations[2])
    get(cache, operations[1])
    assert made == [*operations, operations[1]]


def test_cases_of_one_operation_beyond_the_limit_leave_the_first_ones(monkeypatch):
    operation = parse_operation("matmul_8x8x8_f32t_f32t_f32t")
    case = integers(operation, 1, np.matmul)
    monkeypatch.setattr(case_cache, "CASE_CACHE_BYTES", 2 * case.nbytes)
    cache = CaseCache()
    made = []

    def make():
        made.append(name)
        return case

    for name in "abcabc":  # Two dispatches, each of which needs three cases in this order.
        cache.get(operation, (name,), make)
    assert made == ["a", "b", "c", "c"]
