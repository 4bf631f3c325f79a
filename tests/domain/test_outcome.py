from __future__ import annotations

from gemmetry.domain.errors import Outcome, Stage


def test_failures_by_themselves_are_those_of_the_exit_status():
    failures = {outcome for outcome in Outcome if outcome.is_failure}
    assert failures == {Outcome.WRONG, Outcome.CRASH, Outcome.TIMEOUT, Outcome.OUT_OF_MEMORY}


def test_only_ok_may_have_a_time():
    assert [outcome for outcome in Outcome if outcome.may_have_time] == [Outcome.OK]


def test_stages_are_in_the_order_of_a_dispatch():
    stages = [str(stage) for stage in Stage]
    assert stages == ["generate", "compile", "build", "verify", "measure", "trace"]
