"""The checks of verification by theme: each is a small named unit that examines results of
launches.

``results`` defines their return type; the other modules hold the checks themselves.
"""

from __future__ import annotations

from gemmetry.verification.checks.results import CheckOutcome, CheckResult

__all__ = ["CheckOutcome", "CheckResult", "failed"]


def failed(name: str, detail: str) -> CheckResult:
    """The failure of a check that no function of these modules makes."""
    return CheckResult(name, CheckOutcome.FAILED, detail)
