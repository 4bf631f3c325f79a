"""How trials become runs of the engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmetry import engine
from gemmetry.dispatches.profile import read_spec
from gemmetry.domain.record import Message, ignore_events
from gemmetry.tuning.dispatcher import table
from gemmetry.tuning.run import EngineMeasure, prepare_tuning
from gemmetry.tuning.search import FULL, Limit, SearchTrial

FACTORS = [{"name": "null", "options": {"configurations": ["factor_0p7", "factor_0p9"]}}]


def searching(**values):
    given = {"providers": FACTORS, "shapes": "8x8x8, 16x8x8", "device": "null", "name": "tune"}
    return prepare_tuning(read_spec({**given, **values}), strategy="exhaustive", limit=Limit())


CONFIGURATIONS = ["factor_0p7", "wrong", "noisy_3"]
PROVIDERS = [{"name": "null", "options": {"configurations": CONFIGURATIONS}}]


@pytest.fixture
def prepared(tmp_path):
    return searching(providers=PROVIDERS, experiment=str(tmp_path / "t"))


def test_only_what_passes_at_level_standard_is_proved(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "_PROOF_SIZES", ((40, 32), (72, 56), (96, 96)))  # a GPU's are large
    prepared = searching(
        providers=PROVIDERS, experiment=str(tmp_path / "t"), verification_level="quick"
    )
    names = [one.name for one in prepared.spaces[0].configurations]
    right, wrong = map(names.index, ("factor_0p7", "wrong"))
    measure = EngineMeasure(prepared, ignore_events, command="")
    assert measure.proven([[wrong, right], [wrong]]) == [[right], []]


def test_stored_trials_are_not_run_again_unless_the_search_is_fresh(prepared, monkeypatch):
    trial, runs, real = SearchTrial(0, 0), [], engine.run
    first = EngineMeasure(prepared, ignore_events, command="")([trial])

    def run(*given, **options):
        runs.append(options["fresh"])
        return real(*given, **options)

    monkeypatch.setattr(engine, "run", run)
    assert EngineMeasure(prepared, ignore_events, command="")([trial]) == first
    assert runs == []
    measure = EngineMeasure(prepared, ignore_events, command="", fresh=True)
    measure([trial])
    measure([SearchTrial(0, 1)])
    assert runs == [True, False]


def test_a_search_ends_in_the_middle_of_a_run_and_keeps_what_is_measured(prepared):
    ticks = iter(range(100))
    limited = replace(prepared, seconds=1.5)
    trials = [SearchTrial(space, one) for space in (0, 1) for one in range(5)]
    found = EngineMeasure(limited, ignore_events, command="", clock=lambda: next(ticks))(trials)
    assert 0 < len(found) < len(trials)
    assert set(EngineMeasure(prepared, ignore_events, command="")(trials)) == set(trials)


def test_each_batch_says_how_far_the_search_is(prepared):
    """A clock that only the runs move: each takes three seconds."""
    lines, ticks = [], iter(range(0, 100, 3))

    def listen(event):
        if isinstance(event, Message) and event.text.startswith("search"):
            lines.append(event.text)

    total = sum(map(len, prepared.spaces))
    measure = EngineMeasure(prepared, listen, command="", clock=lambda: next(ticks))
    measure([SearchTrial(0, 0), SearchTrial(1, 0)])
    measure([SearchTrial(0, 1), SearchTrial(0, 0)])
    left = f"{1.5 * (total - 3):g} s"
    assert lines == [
        f"search: 0 of {total} evaluations",
        f"search: 3 of {total} evaluations, about {left} left",
    ]
    again = EngineMeasure(prepared, listen, command="", clock=lambda: next(ticks))
    again([SearchTrial(0, 0)])
    again([SearchTrial(1, 1)])
    assert lines[2:] == [f"search: 1 of {total} evaluations"]


def test_the_search_is_quick_and_the_finals_are_not():
    found = searching(benchmark_repetitions=18, time_budget="1s")
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
    paranoid = searching(verification_level="paranoid")
    assert paranoid.finals_plan([[0], []]).settings.verification_level == "paranoid"
    assert not paranoid.has_proofs


def test_quick_finals_come_with_proofs_of_each_configuration_at_a_small_size():
    found = searching(verification_level="quick", shapes="8x8192x8192, 500x8192x8192, 400x64x64")
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
    found = searching(verification_level="quick", shapes="8x64x64")
    monkeypatch.setattr(type(found.kernels), "rebuilds_quickly", False)
    (proof,) = found.proofs(found.spaces[0], 0)
    assert str(proof.operation) == "matmul_8x64x64_f32t_f32t_f32t"


def test_the_finals_have_the_baseline_of_each_shape_with_finalists_and_no_dispatch_twice():
    found = searching()
    (default,) = [i for i, c in enumerate(found.spaces[1].configurations) if c.name == "default"]
    plan = found.finals_plan([[], [default, (default + 1) % 3]])
    assert found.baselines == ("null:default",)
    assert {str(one.operation) for one in plan.named} == {"matmul_16x8x8_f32t_f32t_f32t"}
    assert len(plan.named) == 2
    assert len(plan.document["selection"]["dispatches"]) == 2


def test_a_vendors_library_is_the_baseline_where_it_works():
    pytest.importorskip("torch")
    found = searching(providers=["numpy"], device="cpu")
    assert found.baselines == ("torch:default",)
    assert [one.name for one in found.spec.providers] == ["numpy", "torch"]
    named = searching(providers=["numpy"], device="cpu", baseline="numpy")
    assert named.baselines == ("numpy:default",)
