from __future__ import annotations

import dataclasses
from unittest.mock import Mock

import pytest

from gemmetry.domain.dispatch import (
    Configuration,
    NamedDispatch,
    ProviderRequest,
    Target,
    TargetKind,
    parse_operation,
)
from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.engine.planning import enumerate_plan, make_lanes, planned_rows
from gemmetry.providers.null_provider.provider import NullProvider
from gemmetry.providers.registry import load_provider

SMALL = "matmul_8x8x8_f32t_f32t_f32t"


def enumerated(plan):
    """(provider, target, dispatch name) of all rows, and the calls that made records."""
    lanes = make_lanes(plan, load_provider)
    by_id = {item.lane.id: item.lane for item in lanes}
    operations, configurations, rows, finished = {}, {}, [], []
    for batch in enumerate_plan(plan, lanes, lambda *arguments: arguments):
        operations.update(batch.operations)
        configurations.update(batch.configurations)
        rows += batch.dispatches
        finished += batch.finished
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
    names = [
        (by_id[lane].provider, by_id[lane].target.name, f"{operations[op]}_{configurations[c]}")
        for _, op, lane, c in rows
    ]
    return names, finished


def matching(*parts):
    """A selection of what has all parts in its name."""

    def matches(provider, name, _operation):
        return all(part in f"{provider}:{name}" for part in parts)

    return Mock(spec=("include", "matches"), include=parts, matches=matches)


def named(*configurations, operation=SMALL, **more):
    """The named dispatches of a plan."""
    what = {"operation": parse_operation(operation), **more}
    return tuple(NamedDispatch(configuration=one, **what) for one in configurations)


def test_candidates_of_one_operation_follow_each_other(make_plan):
    names, finished = enumerated(make_plan(("wrong",), sizes=(8, 16)))
    assert names == [
        ("null", "null", f"matmul_{m}x8x8_f32t_f32t_f32t_{c}")
        for m in (8, 16)
        for c in ("default", "fast", "wrong")
    ]
    assert finished == []
    halves = [make_plan(("wrong",), sizes=(8, 16), shard=f"{number}/2") for number in (1, 2)]
    rows = [row for half in halves for row in planned_rows(half, make_lanes(half, load_provider))]
    assert sorted(row.id for row, _ in rows) == [1, 2, 3, 4, 5, 6]


NUMPY, NULL = ProviderRequest(name="numpy"), ProviderRequest(name="null")


def test_a_pair_that_is_not_supported_is_one_finished_row(make_plan):
    names, finished = enumerated(make_plan(providers=(NUMPY, NULL)))
    assert names[0] == ("numpy", "null", f"{SMALL}_default")
    ((number, (lane, operation, configuration, reason)),) = finished
    assert (number, lane.id, lane.provider) == (1, 1, "numpy")
    assert (str(operation), configuration.name, bool(reason)) == (SMALL, "default", True)


@pytest.mark.parametrize(("limited", "count"), [({"null"}, 2), ({"numpy"}, 3)])
def test_what_a_provider_does_not_propose_is_left_out(make_plan, monkeypatch, limited, count):
    original = NullProvider.configurations

    def configurations(self, operation, target):
        for one in original(self, operation, target):
            yield dataclasses.replace(one, is_proposed=one.name != "wrong")

    monkeypatch.setattr(NullProvider, "configurations", configurations)
    names, _ = enumerated(make_plan(("wrong",), plan={"proposed_only": frozenset(limited)}))
    assert len(names) == count


def test_a_selection_filters_by_provider_and_name(make_plan):
    plan = make_plan(sizes=(8, 16, 24), plan={"selection": matching("null:", "16x8x8", "fast")})
    assert enumerated(plan)[0] == [("null", "null", "matmul_16x8x8_f32t_f32t_f32t_fast")]


def test_an_empty_selection_lists_the_nearest_names(make_plan, monkeypatch):
    with pytest.raises(EmptySelectionError, match="fats") as caught:
        enumerated(make_plan(plan={"selection": matching(f"{SMALL}_fats")}))
    assert f"{SMALL}_fast" in caught.value.hint
    with pytest.raises(EmptySelectionError):
        enumerated(make_plan(sizes=()))
    tiles = [Configuration("default"), Configuration("tile_8x8")]
    monkeypatch.setattr(NullProvider, "configurations", lambda *_: tiles)
    monkeypatch.setattr(NullProvider, "why_not", lambda self, name, *_: f"{name} is too large")
    with pytest.raises(EmptySelectionError, match="null: tile_9x9 is too large"):
        enumerated(make_plan(plan={"selection": matching("tile_9x9")}))


def test_named_dispatches_join_the_plan_once(make_plan):
    other = "matmul_9x9x9_f32t_f32t_f32t"
    requested = (
        *named("wrong", operation=other), *named("wrong", operation=other, provider="null"),
        *named("fast", "crash"), *named("hang", operation=other),
    )  # fmt: skip
    names, _ = enumerated(make_plan(plan={"named": requested}))
    # Those of an operation are neighbours, which are measured in turns.
    assert [name for _, _, name in names] == [
        f"{SMALL}_default", f"{SMALL}_fast", f"{SMALL}_crash", f"{other}_wrong", f"{other}_hang"
    ]  # fmt: skip


def test_named_dispatches_go_to_every_provider_that_knows_the_configuration(make_plan):
    plan = make_plan(sizes=(), providers=(NUMPY, NULL), plan={"named": named("default")})
    names, finished = enumerated(plan)
    assert [name[0] for name in names] == ["numpy", "null"]
    assert finished[0][1][2] == Configuration("default")


def test_a_named_configuration_that_nobody_knows_is_a_wrong_request(make_plan):
    with pytest.raises(RequestError, match="'fsat'") as caught:
        enumerated(make_plan(plan={"named": named("fsat")}))
    assert "fast" in caught.value.hint
    assert caught.value.exit_status == 2


def test_a_configuration_of_another_target_names_the_device(make_plan):
    operation = "matmul_3456x1024x2048_f16t_f16t_f16t"
    requested = named("tile_config_128x128_32x5_tensorcore_mmasync", operation=operation)
    plan = make_plan(
        providers=(NUMPY, ProviderRequest(name="iree")), targets=(Target(TargetKind.CPU),),
        plan={"named": requested},
    )  # fmt: skip
    with pytest.raises(RequestError, match="numpy, iree") as caught:
        enumerated(plan)
    assert "iree" in caught.value.hint and "--device cuda-sm_80" in caught.value.hint


def test_large_plans_come_in_batches(make_plan):
    plan = make_plan(sizes=range(1, 60_001), plan={"default_configurations_only": True})
    lanes = make_lanes(plan, load_provider)
    sizes = [len(b.dispatches) for b in enumerate_plan(plan, lanes, lambda *a: None)]
    assert sizes[:2] == [50_000, 10_000]
