"""Rules of costs in the multiprocessors, which explain a limit or follow the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.facts import MEANINGS, REACHED, SM, UNITS, Facts, percent
from gemmetry.counters.model import HIGH, LOW, MEDIUM, Claim, Gate, Judgement, Suppressed, rule

_CLOCK = 0.9


@rule(
    gate=Gate.COST,
    verdicts={"low_clock": "multiprocessors ran below their highest clock"},
    needs=("sm_clock", "sm_clock_max"),
    threshold=f"{percent(_CLOCK)} of the highest clock",
    threshold_source="the clock for which datasheets give the rate of tensor cores is 92 % of the "
    "highest on an H100 SXM (1830 of 1980 MHz)",
)
def clock(facts: Facts) -> Iterator[Claim]:
    """A clock below the highest of the GPU."""
    clock, highest = facts.get("sm_clock"), facts.get("sm_clock_max")
    if clock is None or highest is None or not 0 < clock.value < _CLOCK * highest.value:
        return
    yield Claim(
        id="low_clock",
        # With a decimal, as 89.6 % would read as the threshold.
        claim=f"The clock is {clock.value / 1e9:.2f} GHz, "
        f"{100 * clock.value / highest.value:.1f} % of the highest",
        evidence=[clock, highest],
        weight=1 - clock.value / highest.value,
        confidence=HIGH,
        against="The profiler may have fixed it: --clock-control base does",
        remedy="Look at the power and temperature limits, and collect with --clock-control none.",
        ceiling=_clock_ceiling(facts, highest.value / clock.value),
        units=frozenset(name for name, unit in UNITS.items() if SM in unit.parents),
    )


def _clock_ceiling(facts: Facts, factor: float) -> str:
    """Device memory has a clock of its own."""
    memory = facts.utilisation.get("dram")
    if memory is None or memory.value <= 0 or factor * memory.value <= 100:
        return f"at most {factor:.2f}×"
    return f"at most {100 / memory.value:.2f}×, when device memory is at its limit"


_IDLE_THREADS = 0.2
_IDLE_THREADS_CAUSE = 0.5
_ISSUE_STALLS = frozenset({
    "branch_resolving", "math_pipe_throttle", "mio_throttle", "lg_throttle", "tex_throttle", "wait",
})  # fmt: skip
"""Waits for what more instructions need, not those for data, other warps or fetched instructions.
"""


@rule(
    gate=Gate.COST,
    verdicts={"divergence": "few threads of a warp take part in its instructions"},
    needs=("threads_per_instruction", "uniform_branches_percent"),
    threshold=f"{percent(_IDLE_THREADS)} of the threads of a warp do not take part; the cause of a "
    f"limit from {percent(_IDLE_THREADS_CAUSE)}",
    threshold_source="the ratio of instructions of threads to those of warps, over 32 (AMD: 64)",
)
def divergence(facts: Facts) -> Iterator[Claim]:
    """Instructions that few threads of a warp take part in."""
    threads = facts.get("threads_per_instruction")
    width = 64.0 if facts.is_amd else 32.0
    # Less than a thread is a counter that was not counted.
    if threads is None or not 1 <= threads.value <= (1 - _IDLE_THREADS) * width:
        return
    idle = 1 - threads.value / width
    branches = facts.get("uniform_branches_percent")
    yield Claim(
        id="divergence",
        claim=f"{threads.value:.1f} of {width:.0f} threads take part in an instruction",
        evidence=[threads, *([branches] if branches is not None else [])],
        weight=idle,
        confidence=HIGH if idle >= _IDLE_THREADS_CAUSE else MEDIUM,
        remedy="Sort the work so that the threads of a warp take the same branch, and use whole "
        "warps.",
        ceiling=f"at most {width / threads.value:.3g}× fewer instructions",
        units=frozenset({"fma", "alu", "xu", "fp64", "fp16", "issue", "lsu", "mio"}),
        stalls=_ISSUE_STALLS,
        explains=idle >= _IDLE_THREADS_CAUSE,
    )


_OPS = "sm__ops_path_tensor_op_{}_src_{}_sparsity_off.sum"
_PEAK = ".peak_sustained"
_FORMATS = ("bf16_dst_fp32", "fp16", "fp16_dst_fp32", "tf32_dst_fp32")
_ASYNCHRONOUS = ("hgmma", "utchmma")
"""The instructions of Hopper and Blackwell that use the whole rate."""
_RATIO = 1.05


@rule(
    gate=Gate.COST,
    verdicts={"mma_sync": "multiplications by instructions that do not use the whole rate of the "
              "tensor cores"},
    needs=(),
    threshold="most multiplications are by mma.sync, whose peak in the report is "
    f"{_RATIO:g} times below that of the asynchronous instructions",
    threshold_source="peaks per cycle of the report: 2731 and 4096 operations per multiprocessor "
    "in bf16 on an H200",
)  # fmt: skip
def mma_sync(facts: Facts) -> Iterator[Claim]:
    """Multiplications by instructions that cannot use the whole rate of the tensor cores."""
    for form in _FORMATS:
        name = _OPS.format("hmma", form)
        done, peak = facts.metric(name), facts.metric(name + _PEAK)
        if done is None or peak is None or done.value <= 0 or peak.value <= 0:
            continue
        for other in _ASYNCHRONOUS:
            faster = facts.metric(_OPS.format(other, form) + _PEAK)
            of_faster = facts.metric(_OPS.format(other, form))
            if faster is None or (of_faster is not None and of_faster.value > done.value):
                continue
            ratio = faster.value / peak.value
            if ratio >= _RATIO:
                yield Claim(
                    id="mma_sync",
                    claim="It multiplies by mma.sync, which reaches "
                    f"{percent(1 / ratio)} of the rate of asynchronous instructions",
                    evidence=[done, peak, faster],
                    weight=1 - 1 / ratio,
                    confidence=HIGH,
                    remedy="Use wgmma (Hopper) or tcgen05 (Blackwell): newer libraries and "
                    "compilers do.",
                    ceiling=f"at most {ratio:.2f}×",
                    units=frozenset({"tensor"}),
                )
                return


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


@rule(
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
)  # fmt: skip
def occupancy(facts: Facts) -> Iterator[Judgement]:
    """Too few warps to hide latencies, and what keeps more from running."""
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
        yield Suppressed(
            name, claim,
            "its copies and multiplications are asynchronous: they, not many warps, hide latencies",
        )  # fmt: skip
        return
    if facts.nearest is not None and facts.nearest[1] >= REACHED:
        unit, busy = facts.nearest
        yield Suppressed(
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
        confidence=LOW if issue is None or facts.uses_async_copies is None else MEDIUM,
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
        remedy="Split the work into more blocks: smaller tiles, or slices of K.",
        # The profiler rounds the waves of a block or two to 0.
        ceiling=facts.at_most(1 / waves.value) if waves.value > 0 else "",
        stalls=_HIDEABLE,
        explains=waves.value <= 0.5,
    )


_PADDING_CAUSES = 2.0


@rule(
    gate=Gate.COST,
    verdicts={"padding": "tiles cover more than the shape"},
    needs=("tensor_ops_bf16", "vector_ops_fp32"),
    threshold=f"{_RATIO:g} times 2·M·N·K, where padded tiles explain it; the cause of a limit from "
    f"{_PADDING_CAUSES:g} times",
    threshold_source="model of the work",
)
def padding(facts: Facts) -> Iterator[Claim]:
    """Operations on the padding of tiles."""
    for check, ratio, evidence in facts.differing_work("padding"):
        if ratio >= _RATIO:
            yield Claim(
                id="padding",
                claim=f"{percent(1 - 1 / ratio)} of the operations are on padding: {check.reason}",
                evidence=evidence,
                weight=1 - 1 / ratio,
                confidence=HIGH,
                remedy="Choose tiles that divide the shape, or smaller ones.",
                ceiling=f"at most {ratio:.3g}× fewer operations",
                units=frozenset({"tensor", "fma", "fp64", "fp16"}),
                stalls=frozenset({"gmma", "math_pipe_throttle"}),
                explains=ratio >= _PADDING_CAUSES,
            )
