from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("nvmath", reason="nvmath-python is not installed")

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import LaunchError
from gemmetry.providers.cublaslt_provider import bindings
from gemmetry.providers.cublaslt_provider.bindings import problem_of

BF16 = "matmul_64x48x32_bf16t_bf16n_bf16t"


@pytest.fixture
def matmul(library: Any) -> Iterator[Callable[..., bindings.Matmul]]:
    """Makes the product with a limit of its workspace; the end frees it."""
    with contextlib.ExitStack() as stack:

        def make(limit: int, name: str = BF16) -> bindings.Matmul:
            made = bindings.Matmul(problem_of(parse_operation(name)), bindings.handle(0), limit)
            stack.callback(made.close)
            return made

        yield make


def test_the_version_has_points_and_a_machine_without_a_driver_is_named(library, monkeypatch):
    library._version = 120901
    assert bindings.version() == "12.9.1"

    error = RuntimeError("CUDA driver is not found (libcuda.so.1: no such file)\nmore")
    monkeypatch.setattr(library, "get_version", Mock(side_effect=error))
    with pytest.raises(LaunchError, match="loading cuBLASLt: CUDA driver is not found") as caught:
        bindings.version()
    assert "more" not in caught.value.message


def test_algorithms_are_stored_and_read(matmul: Any) -> None:
    product = matmul(1 << 20)
    first, *_ = product.proposals(3)
    again = bindings.stored_result(first.stored, first.workspace_bytes)
    assert (again.stored, again.workspace_bytes) == (first.stored, first.workspace_bytes)
    assert product.checked(again).stored == first.stored
    for wrong in ("", "00", "x" * 128):
        with pytest.raises(ValueError, match=r"bytes|hexadecimal"):
            bindings.stored_result(wrong, 0)


def test_proposals_respect_the_workspace_and_the_sums(matmul: Any) -> None:
    """A result narrower than the accumulator is never offered sums in its own format."""
    for limit, schemes in ((0, {0}), (1 << 20, {0, 2})):
        product = matmul(limit)
        proposals = product.proposals(100)
        assert {product.configured(one, "REDUCTION_SCHEME") for one in proposals} == schemes
    split = next(one for one in proposals if one.workspace_bytes)
    assert product.checked(split) is not None
    assert matmul(split.workspace_bytes - 1).checked(split) is None, "it needs more than allowed"


def test_addresses_are_set_only_where_they_change(library, matmul, monkeypatch) -> None:
    product = matmul(0, f"{BF16}_bias")
    watched = Mock(wraps=library.matmul_desc_set_attribute)
    monkeypatch.setattr(library, "matmul_desc_set_attribute", watched)
    for address in (4096, 4096, 8192):
        product.point({"BIAS_POINTER": address})
    assert watched.call_count == 2
