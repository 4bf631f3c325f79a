from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.dispatch import Configuration, Target, TargetKind, parse_operation
from gemmetry.domain.errors import Outcome, Stage, Verification
from gemmetry.domain.record import BuildFacts, Environment, Measurement, Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.candidates import Candidate, RecordMaker, merge_facts
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.planning import LaneProvider, candidates_of
from gemmetry.engine.protocol import Ending
from gemmetry.engine.schema import Lane, PlannedDispatch
from gemmetry.measurement.stopping import Round
from gemmetry.providers.registry import load_provider

NAME = "matmul_4096x4096x4096_bf16t_bf16t_bf16t"
H200 = Target(TargetKind.CUDA, "sm_90", 0, "NVIDIA H200")


def make_candidate(target: Target = H200, name: str = NAME, **facts) -> Candidate:
    configuration = Configuration("x", {"tile": 64})
    lane = Lane(1, "torch", {}, target)
    candidate = Candidate(3, lane, parse_operation(name), name, configuration)
    candidate.facts = BuildFacts(**facts)
    return candidate


def time_of(ns: float) -> Measurement:
    interval = {"ci_low_ns": ns, "ci_high_ns": ns}
    return Measurement(median_ns=ns, min_ns=ns, p95_ns=ns, sample_count=9, **interval)


def test_rounds_go_through_the_store_unchanged(tmp_path, make_plan):
    candidate, again = make_candidate(), make_candidate()
    telemetry = {"power_w": 400.0, "throttle_reasons": ("power",)}
    rounds = [
        Round(
            samples_ns=samples, method="events", launches_per_sample=2, first_launch_ns=9.0,
            telemetry=telemetry, seconds=0.25, load_s=2.0,
        )
        for samples in ((1.0, 2.0), (3.0,))
    ]  # fmt: skip
    stored = [candidate.add_round(one) for one in rounds]
    assert [one.number for one in stored] == [0, 1]
    with Experiment.create_or_open(tmp_path, make_plan(), environment=Environment()) as experiment:
        experiment.add_rounds(stored)
        for one in experiment.rounds([3])[3]:
            again.add_round(one.taken)
    assert again.rounds == rounds
    assert again.seconds_spent == 0.5, "sampling alone, without the load before a round"


def test_a_record_of_a_failure_has_its_stage_and_reason():
    candidate = make_candidate()
    candidate.stage = Stage.VERIFY
    maker = RecordMaker(RunSettings(), "env", Path("/x"))
    record = maker.ended(candidate, Ending(Outcome.CRASH, "it died", "tail"))
    assert (record.outcome, record.stage) == (Outcome.CRASH, Stage.VERIFY)
    assert (record.reason, record.output_tail) == ("it died", "tail")
    assert record.verdict.status is Verification.NOT_VERIFIED
    assert record.measurement is None


def test_paths_are_relative_to_the_experiment_where_they_lie_in_it():
    candidate = make_candidate(
        source_path="/x/artifacts/generated/a.mlir", binary_path="/elsewhere/b",
        assembly_path="generated/c.s",
    )  # fmt: skip
    for generated, assembly in (
        ("/x/artifacts/generated", "artifacts/generated/c.s"),
        ("/other/generated", "/other/generated/c.s"),
    ):
        maker = RecordMaker(RunSettings(), "", Path("/x"), Path(generated))
        facts = maker.done(candidate, None).facts
        assert (facts.source_path, facts.binary_path, facts.assembly_path) == (
            "artifacts/generated/a.mlir", "/elsewhere/b", assembly
        )  # fmt: skip


def test_a_done_record_repeats_what_the_candidate_was_given():
    candidate = make_candidate(run_command="inputs {seed} {distribution} && run")
    assert candidate.wire.verify
    candidate.verdict = Verdict(status=Verification.PASSED)
    assert not candidate.wire.verify, "it is not verified again"
    maker = RecordMaker(RunSettings(seed=7, distribution="normal"), "env", Path("/x"))
    record = maker.done(candidate, time_of(2e5))
    assert record.facts.run_command == "inputs 7 normal && run"
    # 2·4096³ FLOP in 0.2 ms is 687 TFLOP/s, of NVIDIA's 989 TFLOP/s dense bf16 for the H200.
    assert record.roofline_fraction == pytest.approx(687.2 / 989.4, rel=0.01)
    assert record.roofline_source
    assert (record.dispatch, record.device) == (f"{NAME}_x", "cuda:0")
    assert record.configuration_parameters == {"tile": 64}
    assert record.environment_id == "env"


def test_facts_of_the_compiler_complete_those_of_the_build():
    compiled = BuildFacts(registers=3, compile_ns=5, notes=("n",))
    built = BuildFacts(registers=4, default_configuration="d")
    both = BuildFacts(registers=4, compile_ns=5, notes=("n",), default_configuration="d")
    assert merge_facts(compiled, built) == both
    assert merge_facts(BuildFacts(), built) is built


def test_rows_become_objects_also_for_configurations_that_are_not_listed():
    lane = Lane(1, "null", {}, Target(TargetKind.NULL))
    lanes = {1: LaneProvider(lane, load_provider("null"), None)}
    eight, nine = "matmul_8x8x8_f32t_f32t_f32t", "matmul_9x8x8_f32t_f32t_f32t"
    given = [(eight, "fast"), (eight, "slow_7"), (nine, "gone")]
    rows = [PlannedDispatch(n, name, 1, one) for n, (name, one) in enumerate(given, 1)]
    fast, slow, gone = found = list(candidates_of(rows, lanes))
    assert fast.configuration == Configuration("fast", {"behaviour": "fast"})
    assert slow.configuration.parameters["value"] == 7
    assert fast.operation is slow.operation
    assert gone.configuration == Configuration("gone")
    assert (str(gone.operation), str(gone)) == (nine, f"null:{nine}_gone")
    assert [candidate.id for candidate in found] == [1, 2, 3]
