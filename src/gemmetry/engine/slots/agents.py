"""What of a plan agents can do."""

from __future__ import annotations

import dataclasses

from gemmetry.domain.dispatch import Plan
from gemmetry.domain.errors import RequestError
from gemmetry.engine.jobs import Job


def plan_for_agents(plan: Plan, job: Job, counters: str | None) -> Plan:
    """`plan` as agents carry it out: a target that only compiles here has devices there.

    Raises:
        RequestError: agents cannot do what is requested.
    """
    executor = plan.settings.executor
    problem = _problem(plan, job, counters)
    if problem:
        raise RequestError(
            f"the executor {executor} {problem}", hint="Use --executor local, or leave it out."
        )
    (target,) = plan.targets
    if target.index is None:
        target = dataclasses.replace(target, index=0)
    return dataclasses.replace(plan, targets=(target,))


def _problem(plan: Plan, job: Job, counters: str | None) -> str:
    if len(plan.targets) != 1:
        return f"serves one target, and --device names {len(plan.targets)}"
    if not job.uses_device:
        return "measures and verifies; compiling alone runs on this machine"
    if job.leaves_files:
        return "does not record traces, which stay on the machine where they are recorded"
    if counters is not None:
        return "does not collect hardware counters"
    return ""
