from __future__ import annotations

import dataclasses
import math
import signal

import pytest

from gemmetry.domain.errors import Stage
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine.bench import HangWatch
from gemmetry.engine.candidates import LEAST_TRIAL_S, PROBE_DOUBT, LaunchBudget, job_of
from gemmetry.verification.protocol import launches

SETTINGS = RunSettings(deadlines_s={**RunSettings().deadlines_s, Stage.VERIFY: 20.0})
VERIFIED = LaunchBudget(job_of(SETTINGS), verifies=True)
UNVERIFIED = LaunchBudget(job_of(SETTINGS), verifies=False)


def test_verification_that_would_pass_its_deadline_is_objected_to():
    fewest = launches("standard", 100.0)
    assert VERIFIED.limit_s == 20 / fewest
    assert VERIFIED.objection(0.9 * 20 / launches("standard", 0.0)) == ""
    reason = VERIFIED.objection(4.5)
    assert f"took 4.5 s, so that the {fewest} launches of standard verification" in reason
    assert f"--set deadlines.verify={9 * fewest} or --verification-level quick" in reason
    assert "took 11 s, more than the 10 s allowed" in VERIFIED.objection(11)
    assert UNVERIFIED.objection(9.9) == ""


def test_traces_that_would_pass_their_deadline_are_objected_to():
    budget = LaunchBudget(job_of(RunSettings(verify=False, trace=TraceSchedule())), verifies=False)
    assert budget.objection(4.7) == ""
    assert "--set deadlines.trace=250 or fewer repeats" in budget.objection(5.0)
    assert budget.limit_s == pytest.approx(120 / 25)


def test_a_prediction_that_leaves_doubt_asks_for_a_trial():
    most = launches("standard", 0.0)
    assert VERIFIED.is_doubtful(20 / launches("standard", 100.0) / PROBE_DOUBT * 1.01)
    assert not VERIFIED.is_doubtful(20 / most / PROBE_DOUBT * 0.99)
    assert UNVERIFIED.is_doubtful(10.1 / PROBE_DOUBT)
    assert not UNVERIFIED.is_doubtful(9.9 / PROBE_DOUBT)
    assert not VERIFIED.is_doubtful(None), "nothing is predicted"


@pytest.mark.parametrize("budget", [VERIFIED, UNVERIFIED])
def test_a_launch_that_the_trial_does_not_suffice_for_is_objected_to(budget):
    assert budget.objection(budget.trial_s * 1.01) != ""
    assert f"did not end within {budget.trial_s:.3g} s" in budget.overrun()


@pytest.mark.parametrize(
    ("expected_s", "first_s", "later_s"),
    [(1e-3, 10.0, 10.0), (0.2, 40.0, 40.0), (None, None, 30.0)],
)
def test_a_launch_has_hung_by_what_is_expected_or_was_before(expected_s, first_s, later_s):
    watch = HangWatch(expected_s, 1e6, 120.0)
    assert watch.limit_s(1) == (math.inf if first_s is None else pytest.approx(first_s))
    with watch.watching():
        assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) == (first_s is not None)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert watch.limit_s(1) == pytest.approx(later_s)
    assert watch.limit_s(10**6) > watch.limit_s(1)
    larger = watch.of_companion(1e9)
    assert larger.limit_s(1) == (
        math.inf if expected_s is None else pytest.approx(max(10.0, 200 * expected_s * 1e3))
    )


def test_a_trial_is_no_shorter_than_starting_another_worker():
    hasty = LaunchBudget(
        job_of(dataclasses.replace(SETTINGS, max_seconds_per_launch=1e-3)), verifies=False
    )
    assert hasty.limit_s == 1e-3
    assert hasty.trial_s == LEAST_TRIAL_S
    assert "more than the 0.001 s allowed" in hasty.overrun()
