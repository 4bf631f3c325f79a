"""Multiprocessors without work: few blocks, a last wave, blocks of different length, a start."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import COUNTER, NEAR, SHORT_NS, Facts, percent
from gemmetry.counters.diagnosis.model import (
    Claim,
    Confidence,
    CounterEvidence,
    Dismissed,
    Gate,
    Judgement,
    NotCounted,
    Rule,
)
from gemmetry.domain.units import counted

_IDLE = 0.2
"""Share of the multiprocessors' time without a warp."""


def _judge(facts: Facts) -> Iterator[Judgement]:
    blocks, count = _blocks(facts), facts.get("sm_count")
    if blocks is not None and count is not None and 1 <= blocks.value <= (1 - _IDLE) * count.value:
        idle = 1 - blocks.value / count.value
        yield Claim(
            id="grid_too_small",
            claim=f"The grid has {counted(int(blocks.value), facts.block)} for "
            f"{counted(int(count.value), facts.processor)}",
            evidence=[blocks, count],
            weight=idle,
            confidence=Confidence.HIGH
            if facts.nearest is None or facts.nearest[1] < NEAR
            else Confidence.MEDIUM,
            remedy=f"Split the work into more {facts.block}s: smaller tiles, or slices of K.",
            ceiling=facts.at_most(count.value / blocks.value),
            voids=frozenset({Gate.LATENCY}),
            because=f"few {facts.processor}s have work at all; what they wait for comes second",
        )  # fmt: skip
        return
    active = facts.get("sm_active_percent")
    if active is None:
        if blocks is None or count is None or not facts.is_amd:
            yield NotCounted(
                "tail_wave", f"for how long {facts.processor}s had work",
                facts.collect(["sm_active_percent", "blocks"]),
            )  # fmt: skip
        return
    if active.value <= 0:
        return  # Not counted: a kernel that ran had a multiprocessor.
    waves = facts.get("waves_per_sm")
    idle = 1 - active.value / 100
    tail = 0.0 if waves is None else 1 - waves.value / max(math.ceil(waves.value), 1)
    if idle < _IDLE:
        if tail >= _IDLE and waves is not None and waves.value > 1:
            yield Dismissed(
                "tail_wave",
                f"the last of {waves.value:.2f} waves leaves {percent(tail)} of the GPU idle",
                f"{facts.processor}s had work for {active.value:.1f} % of the time",
            )
        return
    yield _idle_claim(facts, active, idle, tail, is_known=None not in (waves, blocks, count))


def _idle_claim(
    facts: Facts, active: CounterEvidence, idle: float, tail: float, *, is_known: bool
) -> Claim:  # fmt: skip
    """Why multiprocessors have no work, although there are blocks for all of them."""
    waves, longest = facts.get("waves_per_sm"), facts.get("sm_active_cycles_max")
    evidence = [one for one in (active, waves, longest) if one is not None]
    ceiling = facts.at_most(100 / active.value)
    elapsed = facts.value("elapsed_cycles")
    # Before the first and after the last block, no multiprocessor has work.
    overhead = 1 - longest.value / elapsed if longest is not None and elapsed else 0.0
    confidence = Confidence.MEDIUM if is_known and longest is not None else Confidence.LOW
    without_work = f"{facts.processor}s have no work for {percent(idle)} of the time"
    is_short = longest is None and (facts.duration_ns or math.inf) < SHORT_NS
    if 2 * overhead > idle or is_short:
        return Claim(
            id="launch_overhead",
            claim=f"{without_work.capitalize()}, probably while the kernel starts and ends"
            if is_short
            else f"Starting and ending the kernel takes {percent(overhead)} of the time",
            evidence=evidence,
            weight=idle,
            confidence=confidence,
            remedy="Give it more work, fuse it with its neighbours, or launch it in a graph.",
            ceiling=ceiling,
        )
    if waves is not None and waves.value > 1 and 2 * tail >= idle:
        is_whole = tail >= _IDLE and confidence is not Confidence.LOW
        return Claim(
            id="tail_wave",
            claim=f"The last of {waves.value:.2f} waves fills a part of the GPU: {without_work}",
            evidence=evidence,
            weight=idle,
            confidence=Confidence.HIGH if is_whole else confidence,
            remedy=f"Choose a {facts.block} size or a tile with which the waves are whole, or "
            f"persistent {facts.block}s that share the rest.",
            ceiling=ceiling,
        )
    return Claim(
        id="block_imbalance",
        claim=f"{facts.block.capitalize()}s take differently long: {without_work}"
        if longest is not None
        else f"{without_work.capitalize()}: {facts.block}s take differently long, or starting "
        "takes long",
        evidence=evidence,
        weight=idle,
        confidence=confidence,
        remedy=f"Give each {facts.block} the same work, or let idle {facts.block}s take work from "
        "a queue.",
        ceiling=ceiling,
    )


def _blocks(facts: Facts) -> CounterEvidence | None:
    found = facts.get("blocks")
    if found is None and facts.launch.info.grid is not None:
        return CounterEvidence(
            "grid", float(math.prod(facts.launch.info.grid)), facts.block, COUNTER
        )
    return found


RULE = Rule(
    gate=Gate.GRID,
    verdicts={
        "grid_too_small": "the grid has fewer blocks than the GPU has multiprocessors, or too few "
        "to hide latencies",
        "tail_wave": "the last wave of blocks leaves multiprocessors without work",
        "launch_overhead": "starting and ending the kernel takes most of the time in which "
        "multiprocessors have no work",
        "block_imbalance": "blocks take differently long, so that multiprocessors run out of work",
    },
    needs=(
        "blocks",
        "sm_count",
        "sm_active_percent",
        "sm_active_cycles_max",
        "elapsed_cycles",
        "waves_per_sm",
    ),
    threshold=f"{percent(_IDLE)} of the multiprocessors' time without a warp",
    threshold_source="what separates the roofs' 80 % from a whole GPU; NVIDIA's rule Small Grid "
    "(waves < 1) and its tail effect, waves ÷ ⌈waves⌉, give the cause",
    judge=_judge,
)
