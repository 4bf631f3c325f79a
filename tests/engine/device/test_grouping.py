from __future__ import annotations

from gemmetry.domain.dispatch import Configuration, Target, TargetKind, parse_operation
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.candidates import Candidate, job_of
from gemmetry.engine.schema import Lane
from gemmetry.engine.slots import MAX_GROUP, UNKNOWN_GPU_BUDGET_BYTES, Budget, groups, longest_first

GPU = Target(TargetKind.CUDA, "sm_90", 0)
ENOUGH = {"memory_budget_bytes": 1 << 40}


def candidates(m: int, count: int, start: int = 0) -> list[Candidate]:
    name = f"matmul_{m}x{m}x{m}_f32t_f32t_f32t"
    lane = Lane(1, "null", {}, GPU)
    return [
        Candidate(start + i, lane, parse_operation(name), name, Configuration(f"c{i}"))
        for i in range(count)
    ]


def budget_of(target=GPU, devices=1, processes=1, **settings):
    job = job_of(RunSettings(**settings))
    return Budget(target, job, devices=devices, processes=processes)


def sizes(items, **settings):
    return [len(group) for group in groups(items, budget_of(**{**ENOUGH, **settings}))]


def test_large_operations_are_alone_and_small_ones_share():
    assert sizes(candidates(1024, 20) + candidates(1025, 2)) == [20, 2]
    assert sizes(candidates(16, 3) + candidates(17, 2)) == [5]
    assert sizes(candidates(16, 3) + candidates(1024, 2)) == [3, 2]
    assert sizes(candidates(16, MAX_GROUP + 10)) == [MAX_GROUP, 10]


def test_no_small_operation_is_split_because_it_shares_a_group():
    three = candidates(16, 50) + candidates(17, 50) + candidates(18, 10)
    assert sizes(three) == [50, 60]
    huge = candidates(16, 10) + candidates(17, MAX_GROUP + 1) + candidates(18, 5)
    assert sizes(huge) == [10, MAX_GROUP, 6], "the rest of a huge one shares"
    one_set = parse_operation("matmul_16x16x16_f32t_f32t_f32t").bytes
    two = candidates(16, 3) + candidates(17, 3)
    assert sizes(two, cold_cache=False, memory_budget_bytes=5 * one_set) == [3, 3]


def test_what_takes_longest_comes_first_for_several_devices():
    small, large, many = candidates(256, 2), candidates(1024, 2, 2), candidates(16, 5, 4)
    alone = candidates(2048, 1, 9)
    alone[0].runs_alone = True
    found = longest_first([*small, *large, *many, *alone], MAX_GROUP)
    assert found == [*many, *large, *small, *alone]
    assert sizes(found) == [5, 2, 2, 1]


def test_small_operations_that_share_a_group_count_together():
    """They are one group, which takes longer than that of a large operation."""
    large = candidates(1024, 2)
    small = [one for size in range(8, 28) for one in candidates(size, 1)]
    assert longest_first([*large, *small], MAX_GROUP) == [*small, *large]
    four, pair = candidates(1024, 4), [*candidates(17, 3), *candidates(16, 3)]
    assert longest_first([*pair, *four], 5) == [*four, *pair], "no more than five share"


def test_small_operations_are_the_work_of_all_devices():
    small = [one for size in range(8, 72) for one in candidates(size, 1)]
    for devices in (1, 2, 8, 100):
        budget = budget_of(devices=devices, **ENOUGH)
        found = sizes(longest_first(small, budget.most_shared), devices=devices)
        assert found == [max(1, 64 // devices)] * min(devices, 64)
    assert sizes(candidates(16, 50), devices=8) == [50], "one operation"


def test_groups_stay_within_memory():
    budget = 3 * parse_operation("matmul_1024x1024x1024_f32t_f32t_f32t").bytes
    found = sizes(candidates(1024, 7), cold_cache=False, memory_budget_bytes=budget)
    assert found == [3, 3, 1]
    assert sizes(candidates(1024, 2), memory_budget_bytes=1) == [1, 1], "one always runs"


def test_a_dispatch_that_runs_alone_shares_with_none():
    items = candidates(16, 3)
    items[1].runs_alone = True
    assert sizes(items) == [1, 1, 1]


def test_the_budget_is_half_of_what_the_device_had_free():
    budget = budget_of()
    assert budget.limit_bytes == UNKNOWN_GPU_BUDGET_BYTES
    for free in (100, 60, 0):
        budget.observe(free)
    assert budget.limit_bytes == 50
    assert budget_of(memory_budget_bytes=7).limit_bytes == 7
    assert budget_of(Target(TargetKind.CPU)).limit_bytes > 0, "a CPU has one at once"


def test_what_the_driver_reports_counts_until_a_worker_reports():
    budget = budget_of()
    budget.expect(0)
    assert not budget.is_known
    budget.expect(1000)
    budget.expect(400)
    assert budget.is_known
    assert budget.limit_bytes == 200
    budget.observe(300)
    assert budget.limit_bytes == 150


def test_every_process_holds_buffers_of_its_own():
    (one,) = candidates(8192, 1)
    alone, shared = budget_of(), budget_of(processes=3)
    assert shared.needed_bytes(one) == 3 * alone.needed_bytes(one)
    assert shared.limit_bytes == 3 * UNKNOWN_GPU_BUDGET_BYTES
