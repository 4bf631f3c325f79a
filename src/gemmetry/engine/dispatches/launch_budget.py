"""How long a launch may take, and the reason that is given where one takes longer.

Nothing is left out for a prediction. Where a provider predicts a launch that may be too long, one
is timed before all others; its deadline is kept by the parent, so that it holds for a launch that
never ends, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gemmetry.domain.outcome import Stage
from gemmetry.engine.jobs import Job
from gemmetry.verification.protocol import launches

PROBE_DOUBT = 12
"""How many times longer than predicted a launch may take. Predictions scale the time of small
products, which stay in the cache: for torch's f16 on a CPU without f16 arithmetic 0.7 s where 1024³
takes 2 s, and 6 s where 2048³ takes 65 s."""

LEAST_TRIAL_S = 2.0
"""A launch on trial may take at least this long before its worker is ended, whatever limit its time
is then held to: another worker takes about as long to start."""


@dataclass(frozen=True, slots=True)
class LaunchBudget:
    """The limits that a job and its settings put on one launch."""

    job: Job
    verifies: bool
    """Whether this dispatch is verified, where the settings ask for it."""

    @property
    def limit_s(self) -> float:
        """No launch that takes longer can be run within its deadlines."""
        settings = self.job.settings
        limits = [settings.max_seconds_per_launch, self.job.launch_limit_s]
        fewest = self._launches(math.inf)
        if fewest:
            limits.append(settings.deadlines_s[Stage.VERIFY] / fewest)
        return min(limits)

    @property
    def trial_s(self) -> float:
        """After which a launch on trial is ended."""
        return max(self.limit_s, LEAST_TRIAL_S)

    def is_doubtful(self, predicted_s: float | None) -> bool:
        """True where a launch that takes :data:`PROBE_DOUBT` times as long as predicted would be
        too long, so that one has to be tried; False where nothing is predicted."""
        return predicted_s is not None and bool(self.objection(PROBE_DOUBT * predicted_s))

    def objection(self, seconds: float) -> str:
        """Why a launch that took `seconds` is too long, and what to do; "" if it is not."""
        return self._objection(seconds, f"one launch took {seconds:.3g} s")

    def overrun(self) -> str:
        """The objection to a launch that :attr:`trial_s` did not suffice for."""
        return self._objection(
            math.nextafter(self.trial_s, math.inf),
            f"one launch did not end within {self.trial_s:.3g} s",
        )

    def _objection(self, seconds: float, observed: str) -> str:
        settings = self.job.settings
        if seconds > settings.max_seconds_per_launch:
            return (
                f"{observed}, more than the {settings.max_seconds_per_launch:.3g} s allowed; "
                "raise --max-seconds-per-launch to run it"
            )
        objection = self.job.objection(seconds)
        if objection:
            return f"{observed}, {objection}"
        count, deadline_s = self._launches(seconds), settings.deadlines_s[Stage.VERIFY]
        needed_s = count * seconds
        if needed_s <= deadline_s:
            return ""
        return (
            f"{observed}, so that the {count} launches of {settings.verification_level} "
            f"verification would exceed its deadline of {deadline_s:g} s; run it with --set "
            f"deadlines.verify={math.ceil(2 * needed_s)}"
            + ("" if settings.verification_level == "quick" else " or --verification-level quick")
        )

    def _launches(self, seconds: float) -> int:
        settings = self.job.settings
        if not (settings.verify and self.verifies):
            return 0
        return launches(settings.verification_level, seconds)
