"""The part that needs no GPU; streams and graphs are in tests/gpu/test_renewal.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from gemmetry.selftest.provider import all_mutants  # noqa: E402
from gemmetry.selftest.torch_callers import GIVEN, SLUGS, wrapped  # noqa: E402


@pytest.fixture
def operands():
    return [torch.rand(6, 4), torch.rand(4, 5)]


@pytest.fixture
def launch(operands) -> Callable[..., Callable[[], object]]:
    """launch(slug) -> a function that launches on the operands into a new output."""

    def make(slug):
        run, writes = wrapped(slug, lambda inputs, output: torch.mm(*inputs, out=output))

        def once():
            result = run(operands, output := torch.empty(6, 5))
            assert (result is output) is writes
            return result

        return once

    return make


def test_every_one_is_registered():
    assert {item.slug for item in all_mutants()} >= SLUGS
    assert "copies_in_graphs" in GIVEN


@pytest.mark.parametrize("slug", ["cache_by_version", "packs_by_version"])
def test_versions_miss_what_is_written_past_them(launch, operands, slug):
    once = launch(slug)
    first = once()
    assert torch.equal(first, torch.mm(*operands))
    operands[1].data.mul_(-1)
    assert torch.equal(once(), first)
    operands[1].mul_(-1)  # A change that torch counts.
    operands[1].mul_(-1)
    assert torch.equal(once(), -first)


def test_results_in_turn(launch):
    once = launch("two_result_buffers")
    assert len({once().data_ptr() for _ in range(6)}) == 2
    kept = [launch("new_result_buffer")() for _ in range(3)]
    assert len({one.data_ptr() for one in kept}) == 3


def test_addresses_miss_every_change_and_every_eighth_call_is_skipped(launch, operands):
    once, sometimes = launch("cache_by_pointer"), launch("skips_calls")
    first = once()
    right = [torch.equal(sometimes(), torch.mm(*operands)) for _ in range(16)]
    assert [number for number, ok in enumerate(right, 1) if not ok] == [8, 16]
    operands[1].mul_(-1)
    assert torch.equal(once(), first)


def test_one_launch_of_300_is_wrong(launch, operands):
    once, right = launch("wrong_once_in_300"), torch.mm(*operands)
    wrong = [number for number in range(1, 701) if not torch.equal(once(), right)]
    assert wrong == [300, 600]


@pytest.mark.parametrize("slug", ["copies_in_graphs", "without a bug"])
def test_right_outside_of_graphs(launch, operands, slug):
    once = launch(slug)
    for factor in (1, -2):
        operands[0].data.mul_(factor)
        assert torch.equal(once(), torch.mm(*operands))
