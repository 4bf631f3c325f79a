from __future__ import annotations

from gemmetry.domain.dispatch import Configuration, Target, TargetKind
from gemmetry.domain.errors import Stage, Verification
from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import Verdict
from gemmetry.engine.candidates import Candidate
from gemmetry.engine.device import VerificationProgress
from gemmetry.engine.schema import Lane

NAME = "matmul_8x8x8_f32t_f32t_f32t"
LANE = Lane(1, "null", {}, Target(TargetKind.NULL))


def candidates(count, stage=Stage.VERIFY):
    made = [
        Candidate(i, LANE, parse_operation(NAME), NAME, Configuration(f"c{i}"))
        for i in range(count)
    ]
    for candidate in made:
        candidate.stage = stage
    return made


def reported(progress, *ended):
    events = [progress.count(candidate) for candidate in ended]
    return [(str(e.stage), e.done, e.total) for e in events if e is not None]


def test_each_counts_once():
    one, two = candidates(2)
    progress = VerificationProgress([one, two], verifies=True)
    assert reported(progress, one, one, two, two, one) == [("verify", 1, 2), ("verify", 2, 2)]


def test_what_ends_before_it_is_verified_does_not_count():
    one, two = candidates(2)
    two.stage = Stage.BUILD
    assert reported(VerificationProgress([one, two], verifies=True), one, two) == [
        ("verify", 1, 2),
        ("verify", 1, 1),
    ]
    assert reported(VerificationProgress([one, two], verifies=True), two, one) == [("verify", 1, 1)]
    assert reported(VerificationProgress([two], verifies=True), two) == []


def test_what_was_verified_in_an_earlier_run_does_not_count():
    one, two = candidates(2)
    one.verdict = Verdict(status=Verification.PASSED)
    assert reported(VerificationProgress([one, two], verifies=True), one, two) == [("verify", 1, 1)]


def test_without_verification_building_is_reported():
    one, two = candidates(2, Stage.BUILD)
    assert reported(VerificationProgress([one, two], verifies=False), one, two) == [
        ("build", 1, 2),
        ("build", 2, 2),
    ]
