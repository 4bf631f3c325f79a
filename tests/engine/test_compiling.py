from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.domain.outcome import Outcome, Stage
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine.candidate import Candidate
from gemmetry.engine.compiling import CompilePool
from gemmetry.engine.worker_process import WorkerContext
from gemmetry.store.rows import Lane


@pytest.fixture
def make_pool(tmp_path):
    pools = []

    def make(**settings):
        context = WorkerContext(
            settings=RunSettings(jobs=2, **settings),
            generated=tmp_path / "generated",
            references=tmp_path / "references",
            logs=tmp_path / "logs",
        )
        pools.append(CompilePool(context))
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


def test_facts_go_into_the_candidates_and_progress_is_told(make_pool):
    items = candidates(["default", "fast", "factor_2"], sizes=(8, 9))
    seen = []
    assert make_pool().compile(items, lambda count, name: seen.append(name)) == []
    assert sorted(seen) == sorted(str(item) for item in items)
    assert all(item.facts.compile_ns >= 0.02e9 for item in items)
    assert {item.stage for item in items} == {Stage.COMPILE}


def test_one_bad_configuration_costs_itself(make_pool):
    names = ["factor_2", "compile_crash", "factor_3", "compile_error", "factor_4", "factor_5"]
    items = candidates(names, sizes=(8, 9))
    failed = make_pool().compile(items, lambda count, name: None)
    found = sorted((f.candidate.configuration.name, str(f.ending.outcome)) for f in failed)
    assert found == [("compile_crash", "crash")] * 2 + [("compile_error", "compile_error")] * 2
    bad = {id(f.candidate) for f in failed}
    assert all(item.facts.compile_ns is not None for item in items if id(item) not in bad)


def test_a_deadline_costs_the_one_that_hangs(make_pool):
    pool = make_pool(deadlines_s={**RunSettings().deadlines_s, Stage.COMPILE: 0.5})
    items = candidates(["factor_2", "hang_compile", "factor_3"])
    (failed,) = pool.compile(items, lambda count, name: None)
    assert failed.candidate.configuration.name == "hang_compile"
    assert failed.ending.outcome is Outcome.TIMEOUT
    assert failed.ending.reason == "compiling took longer than 0.5 s"


def test_a_provider_that_cannot_start_fails_each_quickly(make_pool):
    items = candidates(["default", "fast", "factor_2"], unavailable="not here")
    failed = make_pool().compile(items, lambda count, name: None)
    assert {f.ending.outcome for f in failed} == {Outcome.UNSUPPORTED}
    assert [f.ending.reason for f in failed] == ["not here"] * 3
