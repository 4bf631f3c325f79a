from __future__ import annotations

import pytest

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EmptySelectionError, Outcome, Stage, UnknownNameError
from gemmetry.domain.settings import RunSettings
from gemmetry.selftest import provider
from gemmetry.selftest import run as module
from gemmetry.selftest.provider import Carrier, all_mutants, mutants_by_configuration
from gemmetry.selftest.run import prepare_self_test, self_test

CPU = Target(TargetKind.CPU)
GPU = Target(TargetKind.CUDA, "sm_90", 0)


@pytest.fixture(autouse=True)
def cpu_only(monkeypatch):
    monkeypatch.setattr(module, "_targets", lambda: (CPU,))


def test_every_kernel_of_the_catalogue_is_in_the_plan_or_absent_with_a_reason():
    prepared = prepare_self_test()
    (names,) = prepared.plan.document["planted"].values()
    assert sorted([*names, *prepared.absent]) == sorted(mutants_by_configuration())
    reasons = {prepared.absent[i.configuration] for i in all_mutants() if i.carrier is Carrier.CUDA}
    assert reasons == {"this machine has no CUDA device that torch can use"}


def test_on_a_gpu_each_carrier_runs_wherever_it_can(monkeypatch):
    monkeypatch.setattr(module, "_targets", lambda: (CPU, GPU))
    monkeypatch.setattr(provider, "is_installed", lambda _: True)
    prepared = prepare_self_test(level="paranoid")
    assert (prepared.plan.targets, prepared.absent) == ((CPU, GPU), {})
    cuda = [i.configuration for i in all_mutants() if i.carrier is not Carrier.HOST]
    assert sorted(prepared.plan.document["planted"][str(GPU)]) == sorted(cuda)


def test_bugs_that_only_the_highest_level_looks_for_are_left_to_it():
    late = {item.configuration for item in all_mutants() if item.level == "paranoid"}
    for level in ("quick", "standard"):
        absent = prepare_self_test(level=level).absent
        assert {absent[name] for name in late} == {"only the level paranoid has a check for it"}
    assert late.isdisjoint(prepare_self_test(level="paranoid").absent)


def test_the_plan_has_little_time_but_all_checks():
    settings, usual = prepare_self_test(level="paranoid").plan.settings, RunSettings()
    assert settings.verification_level == "paranoid"
    assert settings.verify and settings.measure and settings.judge_rivals
    assert settings.time_budget_s < usual.time_budget_s
    assert settings.deadlines_s[Stage.VERIFY] < usual.deadlines_s[Stage.VERIFY]
    assert settings.deadlines_s[Stage.COMPILE] == usual.deadlines_s[Stage.COMPILE]


def test_another_level_selection_or_code_is_another_experiment(monkeypatch):
    one = prepare_self_test()
    assert prepare_self_test().plan.hash == one.plan.hash
    assert one.experiment.name == f"self-test-{one.plan.hash}"
    others = [prepare_self_test(level="quick"), prepare_self_test(mutants=["m01*"])]
    monkeypatch.setattr(module, "_code_digest", lambda: "edited")
    others.append(prepare_self_test())
    assert len({one.plan.hash, *(other.plan.hash for other in others)}) == 4


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        ({"level": "sloppy"}, UnknownNameError, "level"),
        ({"vehicles": ["horse"]}, UnknownNameError, "carrier"),
        ({"mutants": ["m99*"]}, EmptySelectionError, r"matches m99\*"),
        ({"vehicles": ["cuda"]}, EmptySelectionError, "no CUDA device"),
    ],
)
def test_wrong_requests_are_reported(request_, error, words):
    with pytest.raises(error, match=words):
        prepare_self_test(**request_)


def test_a_part_of_it_runs(tmp_path, monkeypatch):
    """It takes as long as the deadline that ends the mutant that hangs: right kernels must stay
    within it on a loaded machine."""
    monkeypatch.setattr(module, "DEADLINES_S", {Stage.VERIFY: 8.0, Stage.MEASURE: 8.0})
    chosen = ["m05*_host", "m17*_host", "ok01*_host"]
    found = self_test(mutants=chosen, experiment=tmp_path / "e")
    assert (found.mutants_total, found.mutants_killed, found.correct_total) == (2, 2, 1)
    assert found.false_alarms == []
    assert found.is_perfect
    by_number = {result.mutant.number: result for result in found.mutants}
    assert by_number[17].record.outcome is Outcome.TIMEOUT
    assert by_number[5].killed_by[0] == "tail_shapes"
    assert by_number[5].record.reproduce.startswith("gemmetry verify run --providers mutant")
    assert found.rivals
    assert all(score.judged == 1 for score in found.rivals.values())


def test_bugs_that_need_stress_are_killed_by_no_other_check(tmp_path):
    """All checks of the level paranoid take ten seconds for two mutants: their launches are many,
    and some run while the processors are loaded."""
    chosen = ["m55*_host", "m56*_host"]
    found = self_test(level="paranoid", mutants=chosen, experiment=tmp_path / "e")
    killed_by = {result.mutant.number: result.killed_by for result in found.mutants}
    assert killed_by == {55: ("spoiled_scratch",), 56: ("under_load",)}
