"""Kernels that fail in some threads, on some processors and at some moments: right on ordinary
inputs, and killed by the check that is meant for their kind. Those that fail only while they are
timed are killed in the self-test."""

from __future__ import annotations

import os

import pytest
from tests.selftest.test_rare import RUN, context_of

from gemmetry.selftest.catalogue import all_mutants
from gemmetry.verification.checks import CheckOutcome

REASONS = {
    "two_threads_known": "from a third thread",
    "answer_of_thread": "(from thread",
    "operand_of_thread": "(from thread",
    "later_launches_of_thread": "from another thread that launches again",
    "one_processor_loses_tail": "allowed on one processor only",
    "half_of_k_for_one_processor": "allowed on one processor only",
    "first_output_again": "the first launch was overwritten after it was verified",
    "thread_writes_much_later": "the second launch was overwritten after it was verified",
    "made_for_first_numbers": "the inputs of --seed",
    "every_eleventh_after_slow_start": "of 12: ",
    "launch_lost_after_slow_start": "call 80 of",
    "long_k_after_slow_start": "matmul_3x8x65542_",
}
"""Slug -> what the reason contains."""

MUTANTS = [
    item for item in all_mutants() if getattr(item.recipe, "source", "").startswith("moments.")
]


@pytest.mark.parametrize("slug", REASONS)
def test_a_bug_of_a_moment_is_hidden_at_first_and_killed_for_what_it_is(slug: str) -> None:
    (item,) = (one for one in MUTANTS if one.slug == slug)
    if item.number == 82 and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("only one processor is allowed here anyway")
    context = context_of(item)
    assert context.first_errors.bad_count == 0
    assert context.second.same_as(context.first)
    assert RUN["integers"](context).outcome is CheckOutcome.PASSED
    if "results_stay" in item.killed_by:
        for name in ("second_launch", "every_call", "follows_changes", "unaligned_buffers"):
            assert RUN[name](context).outcome is CheckOutcome.PASSED
        for _ in range(24):
            context.launcher.launch(context.main, sentinel=0)
    result = RUN[item.killed_by[0]](context)
    assert result.is_failure
    assert REASONS[slug] in result.detail


def test_each_kernel_has_a_reason_or_is_killed_after_timing() -> None:
    late: set[str] = {item.slug for item in MUTANTS if item.killed_by == ("after_timing",)}
    assert late | set(REASONS) == {item.slug for item in MUTANTS}
    assert len(late) == 4
