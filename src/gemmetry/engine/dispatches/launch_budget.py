"""How long a launch may take, and the reason that is reported if one takes longer.

A prediction alone never excludes a dispatch. If a provider predicts a launch that may be too long,
one launch is timed first. The parent enforces its deadline, so that even a launch that never ends
is stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gemmetry.domain.outcome import Stage
from gemmetry.engine.jobs import Job
from gemmetry.verification.protocol import launches

PROBE_DOUBT = 12
"""How many times longer than predicted a launch may take. Predictions scale the time of small
products, which stay in the cache: for torch's f16 on a CPU without f16 arithmetic they were 0.7 s
where 1024³ takes 2 s, and 6 s where 2048³ takes 65 s."""

LEAST_TRIAL_S = 2.0
"""A launch on trial may take at least this long before its worker is ended, whatever limit then
applies to its time: starting another worker takes about as long."""


@dataclass(frozen=True, slots=True)
class LaunchBudget:
    """The limits that a job and its settings set for one launch."""

    job: Job
    verifies: bool
    """Whether this dispatch is verified, if the settings require it."""

    @property
    def limit_s(self) -> float:
        """The longest launch that can run within its deadlines."""
        settings = self.job.settings
        limits = [settings.max_seconds_per_launch, self.job.launch_limit_s]
        fewest = self._launches(math.inf)
        if fewest:
            limits.append(settings.deadlines_s[Stage.VERIFY] / fewest)
        return min(limits)

    @property
    def trial_s(self) -> float:
        """The time after which a launch on trial is ended."""
        return max(self.limit_s, LEAST_TRIAL_S)

    def is_doubtful(self, predicted_s: float | None) -> bool:
        """True if a launch that takes :data:`PROBE_DOUBT` times as long as predicted would be too
        long, so that one has to be tried; False if nothing is predicted."""
        return predicted_s is not None and bool(self.objection(PROBE_DOUBT * predicted_s))

    def objection(self, seconds: float) -> str:
        """Why a launch that took `seconds` is too long, and what to do; "" if it is not."""
        return self._objection(seconds, f"one launch took {seconds:.3g} s")

    def overrun(self) -> str:
        """The objection to a launch that exceeded :attr:`trial_s`."""
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
