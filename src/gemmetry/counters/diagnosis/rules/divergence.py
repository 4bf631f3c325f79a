"""Instructions that few threads of a warp take part in."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import Facts, percent
from gemmetry.counters.diagnosis.model import Claim, Confidence, Gate, Rule

_SHARE = 0.2
_CAUSES = 0.5
_STALLS = frozenset({
    "branch_resolving", "math_pipe_throttle", "mio_throttle", "lg_throttle", "tex_throttle", "wait",
})  # fmt: skip
"""Waits for what more instructions need, not those for data, other warps or fetched instructions.
"""


def _judge(facts: Facts) -> Iterator[Claim]:
    threads = facts.get("threads_per_instruction")
    width = 64.0 if facts.is_amd else 32.0
    # Less than a thread is a counter that was not counted.
    if threads is None or not 1 <= threads.value <= (1 - _SHARE) * width:
        return
    idle = 1 - threads.value / width
    branches = facts.get("uniform_branches_percent")
    yield Claim(
        id="divergence",
        claim=f"{threads.value:.1f} of {width:.0f} threads take part in an instruction",
        evidence=[threads, *([branches] if branches is not None else [])],
        weight=idle,
        confidence=Confidence.HIGH if idle >= _CAUSES else Confidence.MEDIUM,
        remedy="Sort the work so that the threads of a warp take the same branch, and use whole "
        "warps.",
        ceiling=f"at most {width / threads.value:.3g}× fewer instructions",
        units=frozenset({"fma", "alu", "xu", "fp64", "fp16", "issue", "lsu", "mio"}),
        stalls=_STALLS,
        explains=idle >= _CAUSES,
    )


RULE = Rule(
    gate=Gate.COST,
    verdicts={"divergence": "few threads of a warp take part in its instructions"},
    needs=("threads_per_instruction", "uniform_branches_percent"),
    threshold=f"{percent(_SHARE)} of the threads of a warp do not take part; the cause of a "
    f"limit from {percent(_CAUSES)}",
    threshold_source="the ratio of instructions of threads to those of warps, over 32 (AMD: 64)",
    judge=_judge,
)
