from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.errors import Outcome
from gemmetry.engine.session import RunSummary


@pytest.mark.parametrize(
    ("outcomes", "without_ok", "failure", "status"),
    [
        ({Outcome.OK: 3}, 0, "", 0),
        ({Outcome.OK: 1, Outcome.COMPILE_ERROR: 1, Outcome.LAUNCH_ERROR: 1}, 0, "", 0),
        ({Outcome.OK: 1, Outcome.UNSUPPORTED: 1, Outcome.SKIPPED: 1}, 0, "", 0),
        ({Outcome.OK: 1, Outcome.COMPILE_ERROR: 1}, 1, "", 1),
        ({Outcome.OK: 1, Outcome.WRONG: 1}, 0, "", 1),
        ({Outcome.OK: 1, Outcome.CRASH: 1}, 0, "", 1),
        ({Outcome.OK: 1, Outcome.TIMEOUT: 1}, 0, "", 1),
        ({Outcome.OK: 1, Outcome.OUT_OF_MEMORY: 1}, 0, "", 1),
        ({Outcome.OK: 1, Outcome.WRONG: 1}, 0, "device lost", 3),
        ({}, 0, "", 0),
    ],
)
def test_exit_status(outcomes, without_ok, failure, status):
    summary = RunSummary(
        experiment=Path("x"),
        total=9,
        outcomes=outcomes,
        operations_without_ok=without_ok,
        failure=failure,
    )
    assert summary.exit_status == status
    assert summary.finished == sum(outcomes.values())
