"""The checks of verification by theme: each a small named unit that looks at what launches left.

``results`` is what all of them return; the other modules hold the checks themselves.
"""

from gemmetry.verification.checks.results import (
    CheckOutcome,
    CheckResult,
    failed,
    not_applicable,
    passed,
    warned,
)

__all__ = ["CheckOutcome", "CheckResult", "failed", "not_applicable", "passed", "warned"]
