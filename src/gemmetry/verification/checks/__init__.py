"""The checks of verification by theme: each is a small named unit that examines results of
launches.

``results`` defines their return type; the other modules hold the checks themselves.
"""

from __future__ import annotations

from gemmetry.verification.checks.results import (
    CheckOutcome,
    CheckResult,
    failed,
    not_applicable,
    passed,
    warned,
)

__all__ = ["CheckOutcome", "CheckResult", "failed", "not_applicable", "passed", "warned"]
