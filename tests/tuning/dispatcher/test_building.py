from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from tests import tuned
from tests.tuned import STANDARD, rounds

from gemmetry.domain.dispatch import parse_operation, parse_target
from gemmetry.domain.errors import Outcome, RequestError, Verification
from gemmetry.domain.record import BuildFacts, Environment, Trait, Verdict, ignore_events
from gemmetry.tuning.dispatcher import building
from gemmetry.tuning.dispatcher.building import (
    best_times,
    build_table,
    candidate_name,
    wanted_proofs,
)
from gemmetry.tuning.dispatcher.choosing import Trial
from gemmetry.tuning.dispatcher.table import CUBLAS, problem_of, why_refused

from .conftest import SIGNATURE, TILE, providers

ENVIRONMENT = Environment(packages={"torch": "2.13.0", "numpy": "2.4.6"}, driver="580.1")


def record(shape, candidate, ns, **fields):
    name = f"matmul_{shape}_{SIGNATURE}"
    return tuned.record(name, *candidate.split(":"), ns, environment_id=ENVIRONMENT.id, **fields)


def experiment(*records, environment=ENVIRONMENT):
    return tuned.results(*records, environment=environment, created="2026-01-01")


def built(*records, **options):
    return build_table([experiment(*records, **options)], providers).table


WRONG = Verdict(status=Verification.FAILED, reason="wrong", checks=STANDARD)
WARNED = Verdict(status=Verification.WARNED, checks=STANDARD)
UNVERIFIED = Verdict(status=Verification.NOT_VERIFIED)
QUICK = Verdict(status=Verification.PASSED, checks={"form": "passed", "values": "passed"})


A, B, SIZE = "blocked:a", "blocked:b", "64x64x64"
LIBRARY = record(SIZE, CUBLAS, 1e6)


REFUTED = {"verdict": WRONG, "outcome": Outcome.WRONG, "reason": "wrong"}


def tiled(**fields):
    """Fields of a record of a configuration whose tile is known."""
    return {"configuration_parameters": TILE, **fields}


def shape_of(dispatch):
    return str(dispatch.operation).split("_")[1]


def proof_of(dispatch, fields):
    """The record of a verification of a dispatch that a plan names."""
    name = f"{dispatch.provider}:{dispatch.configuration}"
    return record(shape_of(dispatch), name, None, **tiled(**fields))


def unproved(**fields):
    """An experiment in which a fast candidate did not pass all of level standard."""
    return [LIBRARY, record(SIZE, A, 0.5e6, **fields)]


CHOSEN = {
    "the fastest that is shown to be faster": (
        [[LIBRARY, record(SIZE, A, 0.9e6), record(SIZE, B, 0.8e6)]], B, {A, B}),
    "a tie is cuBLAS'": ([[LIBRARY, record(SIZE, A, 0.9999e6)]], CUBLAS, {A}),
    "nothing else was measured": ([[LIBRARY]], CUBLAS, set()),
    "warned": ([unproved(verdict=WARNED)], CUBLAS, set()),
    "not verified": ([unproved(verdict=UNVERIFIED)], CUBLAS, set()),
    "verified at level quick": ([unproved(verdict=QUICK)], CUBLAS, set()),
    "with a declared exception": (
        [unproved(facts=BuildFacts(declared=(Trait.NONDETERMINISTIC,)))], CUBLAS, set()),
    "wrong": ([unproved(**REFUTED, measurement=None)], CUBLAS, set()),
    "verified by another experiment": (
        [unproved(verdict=QUICK), [record(SIZE, A, None)]], A, {A}),
    "the last experiment counts": (
        [[record(SIZE, CUBLAS, 2e6), record(SIZE, A, 1e6)], [LIBRARY, record(SIZE, A, 1e6)]],
        CUBLAS, {A}),
    "it does not exist any more": ([[LIBRARY, record(SIZE, "blocked:gone", 0.5e6)]], CUBLAS, set()),
}  # fmt: skip
NOTES = {
    "the last experiment counts": "1 shape measured several times",
    "it does not exist any more": "no configuration gone",
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_and_certified(name):
    experiments, choice, certified = CHOSEN[name]
    found = build_table([experiment(*one) for one in experiments], providers)
    (entry,) = found.table.entries
    assert (entry.choice, entry.verdict == "faster") == (choice, choice != CUBLAS)
    assert {one.candidate for one in found.table.certificates} == certified
    assert found.table.versions == {"torch": "2.13.0", "driver": "580.1"}
    assert NOTES.get(name, "") in " ".join(found.notes)
    assert choice != B or entry.ratio == pytest.approx(0.8, abs=0.01)


def test_without_the_check_of_tails_only_the_verified_class_is_certified():
    checks = {**STANDARD, "tail_shapes": "not applicable: no other shape could be built"}
    own = tiled(verdict=Verdict(status=Verification.PASSED, checks=checks))
    table = built(*(record(shape, A, None, **own) for shape in (SIZE, "65x64x64")))
    (certificate,) = table.certificates
    assert certificate.classes == ("m", "whole")


def test_default_is_the_configuration_that_it_stands_for():
    facts = BuildFacts(default_configuration="a")
    alias = record(SIZE, "blocked:default", 1.0, facts=facts)
    named = record(SIZE, A, 2.0)
    assert {candidate_name(alias), candidate_name(named)} == {A}
    assert best_times([named, alias]) == {A: alias}
    # At other shapes, it is another kernel.
    assert built(alias).certificates[0].classes == ("whole",)
    text = BuildFacts(default_configuration="openblas 0.3, 2 threads")
    assert candidate_name(record(SIZE, "numpy:default", 1.0, facts=text)) == "numpy:default"


def test_the_best_of_several_is_the_configuration_that_was_chosen():
    facts = BuildFacts(default_configuration="a", algorithms_tried=8)
    best = record(SIZE, "blocked:best", 1.0, facts=facts, configuration_parameters={"proposals": 8})
    assert candidate_name(best) == A
    assert built(best).parameters == {A: TILE}
    # A provider may describe what it did without choosing among configurations.
    described = BuildFacts(default_configuration="a")
    assert candidate_name(record(SIZE, B, 1.0, facts=described)) == B


def test_an_experiment_without_cublas_adds_times_in_proportion_and_decides_nothing():
    """As the search of a tuner does, on another day and clock."""
    finals = experiment(LIBRARY, record(SIZE, A, 0.9e6))
    searched = ((SIZE, A, 1.8e6), (SIZE, B, 2.4e6), ("64x64x96", B, 2.4e6))
    search = experiment(*(record(*one, verdict=QUICK) for one in searched))
    for order in ([search, finals], [finals, search]):
        merged, alone = build_table(order, providers).table.entries
        assert merged.choice == A
        assert merged.times_ns == pytest.approx({CUBLAS: 1e6, A: 0.9e6, B: 1.2e6})
        assert alone.times_ns == {B: 2.4e6}


TAILS = {**STANDARD, "tail_shapes": "passed: 11 of 12 shapes refused"}
OWN_CLASS = {"verdict": Verdict(status=Verification.PASSED, checks=TAILS)}


def test_a_candidate_without_a_verification_of_those_tails_decides_nothing():
    """It would not be eligible at its own shape."""
    fast = record(SIZE, A, 0.5e6, **tiled(verdict=QUICK))
    timed = experiment(LIBRARY, fast, record(SIZE, B, 0.9e6))
    proof = record("64x65x64", A, None, **tiled(**OWN_CLASS))
    found = build_table([timed, experiment(proof)], providers)
    assert found.table.entries[0].choice == B
    (note,) = [one for one in found.notes if "covers those tails" in one]
    assert "1 time shorter" in note and f"matmul_64x64x64_{SIGNATURE} by {A}" in note
    whole = record("64x128x64", A, None, **tiled(**OWN_CLASS))
    (entry,) = build_table([timed, experiment(proof, whole)], providers).table.entries
    assert entry.choice == A


def test_a_source_that_changed_since_is_certified_as_it_was(tmp_path):
    (tmp_path / "kernel.txt").write_bytes(b"older")
    facts = BuildFacts(source_path="kernel.txt")
    results = experiment(record(SIZE, A, 1.0, facts=facts))
    sets = [dataclasses.replace(results, path=path) for path in ("", str(tmp_path))]
    now, then = (build_table([one], providers).table.certificates[0] for one in sets)
    assert now.digest != then.digest
    refused = [why_refused(one, "cpu", providers) for one in (now, then)]
    assert refused == ["", "its source changed"]


def test_what_is_wrong_at_one_shape_is_certified_at_none():
    wrong = record("65x64x64", A, None, **REFUTED)
    table = build_table([experiment(*unproved(), wrong)], providers).table
    assert (table.certificates, table.entries[0].choice) == ((), CUBLAS)


def test_too_few_rounds_decide_nothing():
    few = dataclasses.replace(
        experiment(LIBRARY, record(SIZE, A, 0.9e6)), rounds=lambda one: {1: rounds(one)[1]}
    )
    (entry,) = build_table([few], providers).table.entries
    assert (entry.choice, entry.verdict) == (CUBLAS, "undecided")


REFUSED = {"outcome": Outcome.UNSUPPORTED, "verdict": UNVERIFIED, "reason": "no"}
SMALL = ["136x1032", "128x1792", "136x1792", "128x1032"]


@pytest.mark.parametrize(
    ("small", "own", "sizes", "classes"),
    [
        pytest.param({}, {}, SMALL[:1], ("any", "mn"), id="one verification covers all"),
        pytest.param(OWN_CLASS, {}, SMALL, ("m", "mn", "n", "whole"), id="only classes"),
        pytest.param(REFUSED, OWN_CLASS, [*SMALL, "512x128x128"], ("whole",), id="only its own"),
        pytest.param(REFUTED, {}, SMALL[:1], None, id="wrong"),
    ],
)
def test_what_is_nearly_as_fast_as_cublas_is_verified_for_all_tails(small, own, sizes, classes):
    """Each round takes one dispatch of a candidate, until all classes are covered or were tried."""
    shape = "512x128x128"
    measured = ((A, 1.02e6), (B, 1.5e6))
    timed = [record(shape, name, ns, **tiled(verdict=QUICK)) for name, ns in measured]
    timed = experiment(record(shape, CUBLAS, 1e6), *timed)
    proofs, asked = [], []
    for _ in range(9):
        sets = [timed, experiment(*proofs)]
        table = build_table(sets, providers).table
        for one in wanted_proofs(table, sets, providers):
            asked.append(shape_of(one).removesuffix("x4608"))
            proofs.append(proof_of(one, own if shape_of(one) == shape else small))
    assert asked == sizes
    assert {one.candidate for one in table.certificates} == ({A} if classes else set())
    assert all(one.classes == classes for one in table.certificates)


def test_experiments_that_do_not_fit_together_are_refused():
    other = experiment(LIBRARY, dataclasses.replace(LIBRARY, target="null"))
    newer = experiment(LIBRARY, environment=dataclasses.replace(ENVIRONMENT, driver="590"))
    for experiments, message in (
        ([experiment()], "no correct matmul"),
        ([other], "several targets: cpu, null"),
        ([experiment(LIBRARY), newer], r"driver 580.1 and 590"),
    ):
        with pytest.raises(RequestError, match=message):
            build_table(experiments, providers)


class Engine:
    """Stands for the engine and the device: what a plan names is verified at once, and ``b``, which
    nobody proposed, is the fastest of all."""

    def __init__(self, **verdicts):
        self.verdicts, self.verified, self.proofs = verdicts, [], []

    def run(self, plan, folder, is_late):
        self.verified += [one.configuration for one in plan.named]
        self.proofs += [
            proof_of(one, self.verdicts.get(one.configuration, {})) for one in plan.named
        ]
        return ""

    def opened(self, folder):
        return [nullcontext(SimpleNamespace(result_set=lambda: experiment(*self.proofs)))]

    def tried(self, problem, longer):
        turns = {CUBLAS: [100.0] * 30, A: [90.0] * 30, B: [80.0] * 30}
        return Trial(problem, turns) if problem.m > 1 else None


@pytest.mark.parametrize(
    ("seconds", "verdicts", "verified", "choices", "words"),
    [
        pytest.param(600, {}, ["a", "c", "b"], [B, B], ["1 shape left out"], id="all"),
        pytest.param(600, {"b": REFUTED}, ["a", "c", "b"],
                     [A, A], ["1 shape left out", "cannot be used"], id="the fastest is wrong"),
        pytest.param(0, {}, [], [CUBLAS], ["not measured", "cannot be used"], id="no time"),
    ],
)  # fmt: skip
def test_a_table_holds_what_was_verified_of_what_was_measured(
    monkeypatch, tmp_path, seconds, verdicts, verified, choices, words
):
    runtime = pytest.importorskip("gemmetry.tuning.dispatcher.runtime")
    engine = Engine(**verdicts)
    operations = [parse_operation(f"matmul_{m}x512x512_{SIGNATURE}") for m in (64, 1, 32)]
    one, _, other = map(problem_of, operations)
    for name, stand_in in {
        "PlanRunner": lambda *_, **__: engine, "_opened": engine.opened, "load_provider": providers,
        "named_plan": lambda _, names, **__: SimpleNamespace(named=names),
    }.items():  # fmt: skip
        monkeypatch.setattr(building, name, stand_in)
    monkeypatch.setattr(runtime, "TrialsOnDevice", lambda _table: engine)
    prepared = building.PreparedTable(
        spec=None, target=parse_target("cpu"), operations=tuple(operations),
        proposed={one: ["blocked:a", "blocked:c"], other: ["blocked:a"]}, seconds=seconds,
        experiment=tmp_path, notes=(),
    )  # fmt: skip
    found = building.tune_table(prepared, listener=ignore_events)
    assert engine.verified == verified
    assert [each.choice for each in found.table.entries] == choices
    assert all(word in note for word, note in zip(words, found.notes, strict=True))
    assert all(each.times_ns["blocked:b"] == 80.0 for each in found.table.entries)
