from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nvmath", reason="nvmath-python is not installed")

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import LaunchError
from gemmetry.providers.cublaslt_provider import bindings
from gemmetry.providers.cublaslt_provider.bindings import problem_of

BF16 = parse_operation("matmul_64x48x32_bf16t_bf16n_bf16t")


def test_the_version_has_points_and_a_machine_without_a_driver_is_named(
    library: Any, monkeypatch: Any
) -> None:
    library._version = 120901
    assert bindings.version() == "12.9.1"

    def fail() -> int:
        raise RuntimeError("CUDA driver is not found (libcuda.so.1: no such file)\nmore")

    monkeypatch.setattr(library, "get_version", fail)
    with pytest.raises(LaunchError, match="loading cuBLASLt: CUDA driver is not found") as caught:
        bindings.version()
    assert "more" not in caught.value.message


def test_algorithms_are_stored_and_read(library: Any) -> None:
    matmul = bindings.Matmul(problem_of(BF16), bindings.handle(0), 1 << 20)
    first, *_ = matmul.proposals(3)
    again = bindings.stored_result(first.stored, first.workspace_bytes)
    assert (again.stored, again.workspace_bytes) == (first.stored, first.workspace_bytes)
    assert matmul.checked(again).stored == first.stored
    for wrong in ("", "00", "x" * 128):
        with pytest.raises(ValueError, match=r"bytes|hexadecimal"):
            bindings.stored_result(wrong, 0)
    matmul.close()


def test_proposals_respect_the_workspace_and_the_sums(library: Any) -> None:
    """A result narrower than the accumulator is never offered sums in its own format."""
    problem = problem_of(BF16)
    schemes = {}
    for limit in (0, 1 << 20):
        matmul = bindings.Matmul(problem, bindings.handle(0), limit)
        schemes[limit] = [
            matmul.configured(one, "REDUCTION_SCHEME") for one in matmul.proposals(100)
        ]
        matmul.close()
    assert set(schemes[0]) == {0} and set(schemes[1 << 20]) == {0, 2}


def test_what_needs_more_workspace_than_allowed_is_not_legal(library: Any) -> None:
    large = bindings.Matmul(problem_of(BF16), bindings.handle(0), 1 << 20)
    split = next(one for one in large.proposals(100) if one.workspace_bytes)
    small = bindings.Matmul(problem_of(BF16), bindings.handle(0), split.workspace_bytes - 1)
    assert large.checked(split) is not None and small.checked(split) is None
    large.close()
    small.close()


def test_addresses_are_set_only_where_they_change(library: Any, monkeypatch: Any) -> None:
    set_attribute, calls = library.matmul_desc_set_attribute, []
    monkeypatch.setattr(
        library,
        "matmul_desc_set_attribute",
        lambda *values: (calls.append(values[1]), set_attribute(*values)),
    )
    problem = problem_of(parse_operation(f"{BF16}_bias"))
    matmul = bindings.Matmul(problem, bindings.handle(0), 0)
    before = len(calls)
    for address in (4096, 4096, 8192):
        matmul.point({"BIAS_POINTER": address})
    assert len(calls) - before == 2
    matmul.close()
