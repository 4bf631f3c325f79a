from __future__ import annotations

import pytest

from gemmetry.dispatches.profile import read_spec
from gemmetry.domain.errors import RequestError
from gemmetry.tuning.run import prepare_tuning
from gemmetry.tuning.search import FULL, Limit

PROVIDERS = [{"name": "null", "options": {"configurations": ["factor_0p7", "factor_0p9"]}}]


def prepared(strategy="exhaustive", limit=None, **values):
    given = {"providers": PROVIDERS, "shapes": "8x8x8, 16x8x8", "device": "null", "name": "tune"}
    return prepare_tuning(read_spec({**given, **values}), strategy=strategy, limit=limit or Limit())


def test_the_search_is_quick_and_the_finals_are_not():
    found = prepared(benchmark_repetitions=18, time_budget="1s")
    names = [found.dispatch(found.spaces[0], 0)]
    plans = [found.search_plan(effort, names) for effort in range(FULL + 1)]
    assert [plan.settings.repetitions for plan in plans] == [2, 6, 18]
    assert {plan.settings.verification_level for plan in plans} == {"quick"}
    assert {plan.settings.processes for plan in plans} == {1}
    finals = found.finals_plan([[0], []])
    assert finals.settings.repetitions is None
    assert (finals.settings.verification_level, finals.settings.processes) == ("standard", 0)
    assert finals.settings.time_budget_s == 1
    assert not found.has_proofs
    paranoid = prepared(verification_level="paranoid")
    assert paranoid.finals_plan([[0], []]).settings.verification_level == "paranoid"
    assert not paranoid.has_proofs


def test_quick_finals_come_with_proofs_of_each_configuration_at_a_small_size():
    found = prepared(verification_level="quick", shapes="8x8192x8192, 500x8192x8192, 400x64x64")
    assert found.has_proofs
    assert found.finals_plan([[0], [], []]).settings.verification_level == "quick"
    plan = found.proofs_plan([[0, 1], [0], [0]])
    assert plan.settings.verification_level == "standard" and not plan.settings.measure
    names = [f"{one.operation}:{one.configuration}" for one in plan.named]
    first, second = (found.spaces[0].configurations[i].name for i in (0, 1))
    # The second and third shape take the same kernel at the same size.
    few, many = ("8x1032x4608", "8x1792x4608"), ("136x1032x4608", "128x1792x4608")
    assert names == [
        f"matmul_{size}_f32t_f32t_f32t:{configuration}"
        for sizes, configuration in ((few, first), (few, second), (many, first))
        for size in sizes
    ]


def test_a_kernel_that_is_built_for_its_size_is_proved_at_that(monkeypatch):
    found = prepared(verification_level="quick", shapes="8x64x64")
    monkeypatch.setattr(type(found.kernels), "rebuilds_quickly", False)
    (proof,) = found.proofs(found.spaces[0], 0)
    assert str(proof.operation) == "matmul_8x64x64_f32t_f32t_f32t"


def test_the_finals_have_the_baseline_of_each_shape_with_finalists_and_no_dispatch_twice():
    found = prepared()
    (default,) = [i for i, c in enumerate(found.spaces[1].configurations) if c.name == "default"]
    plan = found.finals_plan([[], [default, (default + 1) % 3]])
    assert found.baselines == ("null:default",)
    assert {str(one.operation) for one in plan.named} == {"matmul_16x8x8_f32t_f32t_f32t"}
    assert len(plan.named) == 2
    assert len(plan.document["selection"]["dispatches"]) == 2


def test_each_effort_has_an_experiment_of_its_own():
    found = prepared(experiment="t")
    folders = {str(found.search_folder(effort)) for effort in range(FULL + 1)}
    assert folders == {"t/search", "t/search-short1", "t/search-short2"}


def test_a_vendors_library_is_the_baseline_where_it_works():
    pytest.importorskip("torch")
    found = prepared(providers=["numpy"], device="cpu")
    assert found.baselines == ("torch:default",)
    assert [one.name for one in found.spec.providers] == ["numpy", "torch"]
    named = prepared(providers=["numpy"], device="cpu", baseline="numpy")
    assert named.baselines == ("numpy:default",)


def test_the_selection_of_a_request_narrows_the_space():
    found = prepared(dispatches=["configuration=factor_*"])
    assert [[c.name for c in one.configurations] for one in found.spaces] == [
        ["factor_0p7", "factor_0p9"]
    ] * 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"providers": ["null", "numpy"]}, "one provider, not of 2"),
        ({"providers": []}, "of one provider"),
        ({"skip_ref_check": True}, "verifies"),
        ({"profiling_enabled": False}, "tune measures"),
        ({"html": "x.html", "columns": "all"}, "--html and --columns would have no effect"),
        ({"providers": [{"name": "null", "options": {"unsupported": ["matmul"]}}]},
         "nothing to tune.*matmul is among the kinds"),
    ],
)  # fmt: skip
def test_requests_that_cannot_be_planned(values, message):
    with pytest.raises(RequestError, match=message):
        prepared(**values)
