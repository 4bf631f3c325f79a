"""Too few warps to hide latencies, and what keeps more from running."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import REACHED, Facts, percent
from gemmetry.counters.diagnosis.model import Claim, Confidence, Dismissed, Gate, Judgement, Rule
from gemmetry.counters.diagnosis.stalls import MEANINGS

_LOW = 50.0
"""Percent of the warps of a multiprocessor, as in the Nsight Compute document."""
_ACHIEVED = 0.7
"""Part of the warps that a launch allows from which the limit, not the grid, is the reason."""
_LIMITS = {
    "registers": ("registers", "occupancy_registers", "Use fewer registers per thread: "
                  "__launch_bounds__, smaller tiles per thread."),
    "shared_mem": ("shared memory", "occupancy_shared_memory", "Use less shared memory per block: "
                   "fewer pipeline stages, or smaller tiles."),
    "warps": ("the size of a block", "occupancy_block_size", "Choose a block size that divides "
              "the warps of a multiprocessor."),
    "blocks": ("the number of blocks", "occupancy_block_size", "Use larger blocks."),
    "barriers": ("barriers", "occupancy_barriers", "Use fewer barriers per block."),
}  # fmt: skip
_HIDEABLE = frozenset(name for name, one in MEANINGS.items() if one.is_hideable)


def _judge(facts: Facts) -> Iterator[Judgement]:
    allowed = facts.get("occupancy_theoretical_percent")
    achieved = facts.get("occupancy_achieved_percent")
    if allowed is None or achieved is None or allowed.value <= 0:
        return
    if achieved.value < _ACHIEVED * allowed.value:
        yield from _few_blocks(facts)
        return
    if allowed.value > _LOW:
        return
    limits = {name: value for name in _LIMITS if (value := facts.get(f"occupancy_limit_{name}"))}
    least = min((one.value for one in limits.values()), default=None)
    binding = [name for name, one in limits.items() if one.value == least]
    if not binding:
        return
    words, name, remedy = _LIMITS[binding[0]]
    both = " and ".join(_LIMITS[one][0] for one in binding)
    claim = (
        f"{both[0].upper()}{both[1:]} allow{'s' * (len(binding) == 1 and words != 'registers')} "
        f"{allowed.value:.3g} % of the warps of a multiprocessor"
    )
    if facts.uses_async_copies:
        yield Dismissed(
            name, claim,
            "its copies and multiplications are asynchronous: they, not many warps, hide latencies",
        )  # fmt: skip
        return
    if facts.nearest is not None and facts.nearest[1] >= REACHED:
        unit, busy = facts.nearest
        yield Dismissed(
            name, claim,
            f"{unit} is busy for {busy:.1f} % of the time: more warps would not make it faster",
        )  # fmt: skip
        return
    issue = facts.value("issue_active")
    unknown = "" if facts.uses_async_copies is not None else (
        ". Whether its copies are asynchronous, so that few warps suffice, was not counted"
    )  # fmt: skip
    yield Claim(
        id=name,
        claim=claim,
        evidence=[allowed, achieved, *(limits[one] for one in binding)],
        weight=1 - allowed.value / 100,
        confidence=Confidence.LOW
        if issue is None or facts.uses_async_copies is None
        else Confidence.MEDIUM,
        against="Independent instructions in each warp hide latencies as well as more warps do"
        f"{unknown}.",
        remedy=remedy,
        ceiling=facts.at_most(100 / allowed.value),
        stalls=_HIDEABLE,
        explains=True,
    )


def _few_blocks(facts: Facts) -> Iterator[Claim]:
    waves, achieved = facts.get("waves_per_sm"), facts.get("occupancy_achieved_percent")
    if waves is None or achieved is None or waves.value >= 1 or facts.uses_async_copies:
        return
    yield Claim(
        id="grid_too_small",
        claim=f"The grid fills {percent(waves.value)} of the warps that the launch allows",
        evidence=[waves, achieved],
        weight=1 - waves.value,
        confidence=Confidence.MEDIUM,
        remedy="Split the work into more blocks: smaller tiles, or slices of K.",
        # The profiler rounds the waves of a block or two to 0.
        ceiling=facts.at_most(1 / waves.value) if waves.value > 0 else "",
        stalls=_HIDEABLE,
        explains=waves.value <= 0.5,
    )


RULE = Rule(
    gate=Gate.COST,
    verdicts={
        "occupancy_registers": "registers keep more warps from running",
        "occupancy_shared_memory": "shared memory keeps more warps from running",
        "occupancy_block_size": "the size of a block keeps more warps from running",
        "occupancy_barriers": "barriers keep more warps from running",
    },
    needs=("occupancy_theoretical_percent", "occupancy_achieved_percent",
           "occupancy_limit_registers", "occupancy_limit_shared_mem", "occupancy_limit_warps",
           "occupancy_limit_blocks", "waves_per_sm"),
    threshold=f"the launch allows at most {_LOW:.0f} % of the warps, {percent(_ACHIEVED)} of which "
    "are there; only where warps wait for latencies that more warps hide, and not in kernels with "
    "asynchronous copies",
    threshold_source="the Nsight Compute document (50 %); NVIDIA's rules TheoreticalOccupancy and "
    "AchievedOccupancy (a gap of 10 points) for what limits",
    judge=_judge,
)  # fmt: skip
