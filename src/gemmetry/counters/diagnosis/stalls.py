"""What warps wait for: shares of stall reasons, their meanings and remedies.

A share is the ratio ``smsp__average_warps_issue_stalled_<reason>_per_issue_active`` divided by
``smsp__average_warp_latency_per_inst_issued``, which is their sum: the part of the time between two
instructions of a warp that it spends in a state. (The ``.pct`` form of the same metric is 100 times
the ratio, not a share; it is used where the report lacks the ratio.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmetry.formats.counters.launches import ProfiledLaunch

_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
TOTAL = "smsp__average_warp_latency_per_inst_issued.ratio"
ISSUING = frozenset({"selected", "not_selected"})
"""States of a warp that can issue; they are no stalls."""

_EVERYWHERE = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected",
    "selected", "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
_SOMEWHERE = ("gmma", "imc_miss")
REASONS = (*_EVERYWHERE, *_SOMEWHERE)


def metric_of(reason: str) -> str:
    """The metric with the warps that wait for `reason`, per issue."""
    return _METRIC.format(reason)


def warps_waiting(launch: ProfiledLaunch, reason: str) -> tuple[float, str] | None:
    """The warps that wait for `reason`, per issue, and the metric or formula that shows it; None
    where the report does not have it."""
    metric = metric_of(reason)
    percent = metric.removesuffix("ratio") + "pct"
    for name, factor in ((metric, 1.0), (percent, 0.01)):
        value = launch.value(name)
        if value is not None:
            return value * factor, name if factor == 1 else f"{factor} * {name}"
    return None


@dataclass(frozen=True, slots=True)
class StallReason:
    """What a state of a warp means, and what helps."""

    meaning: str
    remedy: str
    is_hideable: bool = False
    """Whether more warps would hide it: a latency, not a queue that is full, nor instructions or
    constants that all warps fetch."""


MEANINGS: Mapping[str, StallReason] = {
    "barrier": StallReason(
        "for the other warps of their block at a barrier",
        "Balance the work of the warps between barriers, use smaller blocks, or barriers for fewer "
        "warps.",
    ),
    "branch_resolving": StallReason(
        "for the target of a branch", "Use fewer branches: unroll, or predicate.", True
    ),
    "dispatch_stall": StallReason(
        "for the dispatcher", "Look for register-bank conflicts in the innermost loop."
    ),
    "drain": StallReason("for their last stores to leave", "Write less at the end, and coalesced."),
    "gmma": StallReason(
        "for the asynchronous multiplications that they started",
        "The tensor cores are waited for: keep more of them in flight, or feed them earlier.",
    ),
    "imc_miss": StallReason(
        "for the cache of immediate constants", "Use fewer different constants."
    ),
    "lg_throttle": StallReason(
        "for room in the queue of local and global memory instructions",
        "Use fewer and wider accesses of global memory, and avoid local memory.",
    ),
    "long_scoreboard": StallReason(
        "for data from global or local memory, or from a copy of the tensor memory accelerator",
        "Have more loads in flight (unroll, prefetch, more pipeline stages), or reuse data.",
        True,
    ),
    "math_pipe_throttle": StallReason(
        "for an arithmetic pipe that is busy", "Use another pipe, or fewer operations."
    ),
    "membar": StallReason("for a memory fence", "Use fewer fences, or of a smaller scope.", True),
    "mio_throttle": StallReason(
        "for room in the queue of shared memory and special instructions",
        "Use fewer and wider accesses of shared memory.",
    ),
    "misc": StallReason("for another reason", "Look at the samples of the program counter."),
    "no_instruction": StallReason(
        "for instructions", "Shorten the loop so that it fits into the instruction cache."
    ),
    "short_scoreboard": StallReason(
        "for data from shared memory or for a special function",
        "Use fewer and wider accesses of shared memory without bank conflicts.",
        True,
    ),
    "sleeping": StallReason("because they sleep", "Poll more often, or do not poll."),
    "tex_throttle": StallReason(
        "for room in the texture queue", "Use fewer texture and surface accesses."
    ),
    "wait": StallReason(
        "for a fixed latency between two of their instructions",
        "Give each warp independent instructions: unroll, and interleave accumulators.",
        True,
    ),
    "any": StallReason(
        "for what was not counted", "Count it: SQ_WAIT_INST_ANY, SQ_WAIT_INST_LDS.", True
    ),
    "inst_issue": StallReason("to issue an instruction", "Execute fewer instructions."),
}
"""Meanings as in NVIDIA's Kernel Profiling Guide (section on warp states). The last two are AMD's.
"""


@dataclass(frozen=True, slots=True)
class StallShares:
    """How the time between two instructions of a warp splits."""

    shares: Mapping[str, float]
    """Reason -> share from 0 to 1, with the states that can issue."""
    metrics: Mapping[str, str]
    """Reason -> the metric that it was computed from."""
    total: str
    """What the metrics were divided by."""
    unknown: float = 0.0
    """Share that no reason of the report accounts for."""
    missing: tuple[str, ...] = ()
    """Reasons that the report lacks, where that leaves the shares unknown."""
    opcodes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Reason -> opcode -> samples."""

    def formula(self, reason: str) -> str:
        """How the share of `reason` was computed."""
        return f"{self.metrics[reason]} ÷ {self.total}"

    def ranked(self) -> list[tuple[str, float]]:
        """The stalls, the largest share first."""
        stalls = [(name, share) for name, share in self.shares.items() if name not in ISSUING]
        return sorted(stalls, key=lambda one: -one[1])


def stall_shares(launch: ProfiledLaunch) -> StallShares | None:
    """The shares of an NVIDIA launch; None where the report has no stall reasons."""
    found = {reason: warps_waiting(launch, reason) for reason in REASONS}
    ratios = {reason: one[0] for reason, one in found.items() if one is not None}
    known = sum(ratios.values())
    if known <= 0:
        return None
    total = launch.value(TOTAL)
    missing: tuple[str, ...] = ()
    if total is None or total <= 0:
        expected = [*_EVERYWHERE, *(["gmma"] if launch.info.capability.startswith("9.") else [])]
        missing = tuple(name for name in expected if name not in ratios)
        total, divisor = known, "the sum of all stall reasons"
    else:
        divisor = TOTAL
    # Reasons and their sum come from different passes, so that they differ slightly.
    total = max(total, known)
    return StallShares(
        {reason: value / total for reason, value in ratios.items()},
        {reason: one[1] for reason, one in found.items() if one is not None},
        divisor,
        1 - known / total,
        missing,
        _opcodes(launch),
    )


_SAMPLED = {"gmma": "warpgroup_arrive", "no_instruction": "no_instructions"}
"""Reason -> its name among the samples, where they differ."""


def _opcodes(launch: ProfiledLaunch) -> dict[str, dict[str, int]]:
    """Where samples of each reason were taken, by the opcode of the instruction."""
    found: dict[str, dict[str, int]] = {}
    names = {sampled: reason for reason, sampled in _SAMPLED.items()}
    for sample in launch.info.samples:
        opcode = _opcode(sample.instruction)
        for name, count in sample.counts.items():
            if opcode and count:
                of_reason = found.setdefault(names.get(name, name), {})
                of_reason[opcode] = of_reason.get(opcode, 0) + count
    return found


def _opcode(instruction: str) -> str:
    """``WARPGROUP.DEPBAR.LE`` of ``@P0 WARPGROUP.DEPBAR.LE gsb0, 0x0``."""
    words = instruction.split()
    if words and words[0].startswith("@"):
        words = words[1:]
    return words[0].rstrip(";,") if words else ""
