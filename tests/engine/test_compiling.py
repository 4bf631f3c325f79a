from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import (
    Configuration,
    ProviderRequest,
    Target,
    TargetKind,
    parse_operation,
)
from gemmetry.domain.errors import Outcome, Stage
from gemmetry.domain.record import StageProgress
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.candidates import Candidate
from gemmetry.engine.compiling import MAX_BATCH, CompilePool, compile_failures, split
from gemmetry.engine.protocol import Compile
from gemmetry.engine.schema import Lane


@pytest.fixture
def make_pool(make_context):
    pools = []

    def make(**settings):
        pools.append(CompilePool(make_context(**{"jobs": 2, **settings})))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def candidates(configurations, sizes=(8,), **options):
    lane = Lane(1, "null", {"seconds_per_compile": 0.02, **options}, Target(TargetKind.NULL))
    names = [f"matmul_{size}x8x8_f32t_f32t_f32t" for size in sizes]
    pairs = [(name, c) for name in names for c in configurations]
    return [
        Candidate(i, lane, parse_operation(name), name, Configuration(c))
        for i, (name, c) in enumerate(pairs)
    ]


def compiled(pool, items, progress=lambda count, name: None):
    """Compile `items`. Returns how those ended that failed, by number."""
    pool.submit(items, progress)
    return compile_failures(items)


@pytest.mark.parametrize(("count", "jobs", "sizes"), [
    (0, 2, []), (1, 2, [1]), (3, 2, [1, 2]), (128, 2, [21, 21, 22] * 2), (49, 2, [12, 12, 12, 13]),
    (24, 1, [24]), (30, 64, [1] * 30),
])  # fmt: skip
def test_batches_are_few_equal_and_enough_for_all_workers(count, jobs, sizes):
    items = candidates(["default"], sizes=range(8, 8 + count))
    batches = split(items, jobs)
    assert [len(batch) for batch in batches] == sizes
    assert [item for batch in batches for item in batch] == items
    assert max(sizes, default=0) <= MAX_BATCH


def test_a_crash_is_narrowed_down_by_halves_that_small_operations_share(make_pool, sent):
    names = ["compile_crash", "default"]
    crash, *others = candidates(names, sizes=range(8, 24), seconds_per_compile=0.0)
    items = [crash, *others[2::2]]
    assert compiled(make_pool(jobs=1), items).keys() == {crash.id}
    batches = [message.dispatches for _, message in sent if isinstance(message, Compile)]
    counts = [len({wire.operation for wire in batch}) for batch in batches]
    assert sorted(counts, reverse=True) == [16, 8, 8, 4, 4, 2, 2, 1, 1]
    assert all(item.facts.compile_ns is not None for item in items[1:])


def test_one_bad_configuration_costs_itself(make_pool):
    names = ["factor_2", "compile_crash", "factor_3", "compile_error", "factor_4", "factor_5"]
    items = candidates(names, sizes=(8, 9))
    seen = []
    failed = compiled(make_pool(), items, lambda count, name: seen.append(name))
    names = {item.id: item.configuration.name for item in items}
    found = sorted((names[number], str(ending.outcome)) for number, ending in failed.items())
    assert found == [("compile_crash", "crash")] * 2 + [("compile_error", "compile_error")] * 2
    right = [item for item in items if item.id not in failed]
    assert all(item.facts.compile_ns >= 0.02e9 for item in right)
    assert {str(item) for item in right} <= set(seen)
    assert {item.stage for item in items} == {Stage.COMPILE}


def test_a_deadline_costs_the_one_that_hangs(make_pool):
    pool = make_pool(deadlines_s={**RunSettings().deadlines_s, Stage.COMPILE: 2.0})
    items = candidates(["factor_2", "hang_compile", "factor_3", "factor_4"])
    failed = compiled(pool, items)
    assert failed.keys() == {item.id for item in items if "hang" in item.configuration.name}
    assert failed[items[1].id].outcome is Outcome.TIMEOUT
    assert "deadlines.compile=4" in failed[items[1].id].reason


def test_a_provider_that_cannot_start_fails_each_quickly(make_pool):
    items = candidates(["default", "fast", "factor_2"], unavailable="not here")
    found = [(one.outcome, one.reason) for one in compiled(make_pool(), items).values()]
    assert found == [(Outcome.UNSUPPORTED, "not here")] * 3


def test_a_gpu_verifies_what_is_compiled_while_the_rest_compiles(make_plan, run_plan, monkeypatch):
    monkeypatch.setattr(Target, "is_gpu", property(lambda _self: True))
    slow = {"configurations": ["factor_2", "compile_error"], "seconds_per_compile": 1.5}
    plan = make_plan(
        providers=(ProviderRequest(name="null"), ProviderRequest(name="null", options=slow)),
        processes=1,
    )
    ran = run_plan(plan)
    assert (ran.outcomes["factor_2"], ran.outcomes["compile_error"]) == ("ok", "compile_error")
    assert ran["compile_error"].stage is Stage.COMPILE
    progress = [(one.stage, one.done) for one in ran.of(StageProgress)]
    assert progress.index((Stage.VERIFY, 1)) < progress.index((Stage.COMPILE, 1))
    verified = [one for one in ran.of(StageProgress) if one.stage is Stage.VERIFY]
    assert verified[-1].done == verified[-1].total == len(ran.records) - 1
