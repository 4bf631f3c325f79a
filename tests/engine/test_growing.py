from __future__ import annotations

import dataclasses

import pytest

from gemmetry.domain.environment import Environment
from gemmetry.domain.plan import ProviderRequest
from gemmetry.domain.settings import TraceSchedule
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine import run, trace_plan
from gemmetry.engine.growing import Recorded, recorded_before, take_over
from gemmetry.store.rows import Lane, PlanBatch

NAMES = ("matmul_8x8x8_f32t_f32t_f32t_default", "matmul_16x8x8_f32t_f32t_f32t_default")


@pytest.fixture
def grid(make_plan):
    """A plan to record sizes with numpy, which a profiler sees nothing of: fast rows that end as
    unsupported, with a number each."""

    def make(*sizes, repeats=1, seed=42, provider="numpy"):
        plan = make_plan(
            sizes=sizes,
            providers=(ProviderRequest(name=provider),),
            targets=(Target(TargetKind.CPU),),
            verify=False,
            seed=seed,
        )
        providers = [{"name": provider, "options": {}}]
        document = {**plan.document, "settings": {"seed": seed}, "providers": providers}
        schedule = TraceSchedule(repeats=repeats)
        return trace_plan(dataclasses.replace(plan, document=document), schedule)

    return make


def test_a_larger_grid_keeps_the_records(grid, tmp_path):
    run(grid(8), tmp_path)
    found = recorded_before(tmp_path, grid(8, 16))
    assert found is not None
    assert list(found.records) == [("cpu", "numpy", NAMES[0])]
    (environment,) = found.environments
    assert found.records["cpu", "numpy", NAMES[0]].environment_id == environment.id


def test_what_is_no_larger_grid_is_left_to_the_usual_rules(grid, make_plan, tmp_path):
    assert recorded_before(tmp_path, grid(8)) is None, "nothing is there"
    run(grid(8), tmp_path)
    assert recorded_before(tmp_path, grid(8)) is None, "the same plan"
    assert recorded_before(tmp_path, grid(8, seed=1)) is None
    assert recorded_before(tmp_path, grid(8, repeats=2)) is not None, "more repeats"
    run(grid(8, repeats=2), tmp_path / "twice")
    assert recorded_before(tmp_path / "twice", grid(8, 16)) is None, "fewer repeats"
    other = recorded_before(tmp_path, grid(8, 16, provider="torch"))
    assert other is not None
    assert other.records == {}


def test_records_whose_folder_is_gone_are_made_again(grid, tmp_path):
    pytest.importorskip("torch")
    run(grid(8, provider="torch"), tmp_path)
    larger = grid(8, 16, provider="torch")
    before = recorded_before(tmp_path, larger)
    assert before is not None
    (record,) = before.records.values()
    assert record.trace is not None
    for file in (tmp_path / record.trace.folder).iterdir():
        file.unlink()
    (tmp_path / record.trace.folder).rmdir()
    after = recorded_before(tmp_path, larger)
    assert after is not None
    assert after.records == {}


def test_what_lacks_repeats_is_recorded_further(grid, tmp_path):
    pytest.importorskip("torch")
    run(grid(8, provider="torch", repeats=2), tmp_path)
    same = recorded_before(tmp_path, grid(8, 16, provider="torch", repeats=2))
    more = recorded_before(tmp_path, grid(8, 16, provider="torch", repeats=3))
    assert same is not None and more is not None
    assert (len(same.records), len(more.records)) == (1, 0)


def test_taking_over_finishes_what_is_known_and_nothing_else(grid, tmp_path):
    run(grid(8), tmp_path)
    found = recorded_before(tmp_path, grid(8, 16))
    assert found is not None
    record = found.records["cpu", "numpy", NAMES[0]]
    lane = Lane(1, "numpy", {}, Target(TargetKind.CPU))
    names = [(1, NAMES[1].removesuffix("_default")), (2, NAMES[0].removesuffix("_default"))]
    batch = PlanBatch(names, [(1, "default")], [(1, 1, 1, 1), (2, 2, 1, 1)])
    (taken,) = take_over(found, [lane], [batch])
    assert list(taken.finished) == [(2, record)]
    assert taken.dispatches == batch.dispatches
    other = dataclasses.replace(record, reason="already told")
    known = dataclasses.replace(batch, finished=[(2, other)])
    (taken,) = take_over(found, [lane], [known])
    assert list(taken.finished) == [(2, other)]
    nothing = Recorded({}, (Environment(),))
    assert list(next(take_over(nothing, [lane], [batch])).finished) == []
