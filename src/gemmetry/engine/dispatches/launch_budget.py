"""How long a launch may take, and the reason that is reported if one takes longer.

A launch that takes hundreds of times as long as expected has hung. A timer then ends the worker
(SIGALRM, whose default action needs no cooperation of the kernel), long before the deadline of the
stage.

A prediction alone never excludes a dispatch. If a provider predicts a launch that may be too long,
one launch is timed first. The parent enforces its deadline, so that even a launch that never ends
is stopped.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gemmetry.domain.contracts import Provider
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.outcome import Stage
from gemmetry.engine.failures import COMPILING_HUNG_SHARE, HUNG
from gemmetry.engine.jobs import Job
from gemmetry.verification.protocol import launches

PROBE_DOUBT = 12
"""How many times longer than predicted a launch may take. Predictions scale the time of small
products, which stay in the cache: for torch's f16 on a CPU without f16 arithmetic they were 0.7 s
where 1024³ takes 2 s, and 6 s where 2048³ takes 65 s."""

LEAST_TRIAL_S = 2.0
"""A launch on trial may take at least this long before its worker is ended, whatever limit then
applies to its time: starting another worker takes about as long."""

LEAST_HUNG_S = 5.0
LEAST_HUNG_SHARE = 1 / 12
"""A launch may always take this long, and this share of the stage's deadline (10 of 120 s):
processes may share the device, and a first launch loads a library."""

SLOW_GPU_FLOPS = 1e11
"""Rate that every kernel compiled for a GPU exceeds that predicts no time of its own: a thousandth
of what the vector units of current GPUs reach."""


class HangWatch:
    """Ends this process if the launches of one executable hang.

    Args:
        expected_s: of the first launch; None: it may compile, and take any time.
        flops: of a launch.
        deadline_s: of the stage.
    """

    def __init__(self, expected_s: float | None, flops: float, deadline_s: float) -> None:
        self._expected_s = expected_s
        self._flops = flops
        self._deadline_s = deadline_s
        self._compiles = expected_s is None
        share = COMPILING_HUNG_SHARE if self._compiles else LEAST_HUNG_SHARE
        self._least_s = max(LEAST_HUNG_S, deadline_s * share)

    def of_companion(self, flops: float) -> HangWatch:
        """The watch over another executable of the same configuration."""
        expected_s = None if self._compiles else self._expected_s
        if expected_s is not None:
            expected_s *= max(1.0, flops / max(self._flops, 1.0))
        return HangWatch(expected_s, flops, self._deadline_s)

    def limit_s(self, launches: int) -> float:
        """The time after which so many launches in a row have hung."""
        if self._expected_s is None:
            return math.inf
        return max(self._least_s, HUNG * self._expected_s * launches)

    @contextmanager
    def watching(self, launches: int = 1) -> Iterator[None]:
        """Within the context so many launches run, and nothing else."""
        limit_s, began = self.limit_s(launches), time.monotonic()
        # The stage's own deadline, which the parent enforces, has the better reason.
        if limit_s < self._deadline_s:
            signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        took_s = (time.monotonic() - began) / launches
        self._expected_s = max(self._expected_s or 0.0, took_s)


def hang_watch(provider: Provider, dispatch: Dispatch, deadline_s: float) -> HangWatch:
    """The watch over the launches of `dispatch`."""
    flops, target = dispatch.operation.flops, dispatch.target
    expected_s = provider.seconds_per_launch(dispatch)
    if expected_s is not None:
        expected_s *= PROBE_DOUBT
    elif target.is_gpu and provider.compiles_ahead(target):
        expected_s = flops / SLOW_GPU_FLOPS
    return HangWatch(expected_s, flops, deadline_s)


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
