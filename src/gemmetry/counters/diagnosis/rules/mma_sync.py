"""Multiplications by instructions that cannot use the whole rate of the tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

from gemmetry.counters.diagnosis.facts import Facts, percent
from gemmetry.counters.diagnosis.model import Claim, Confidence, Gate, Rule

_OPS = "sm__ops_path_tensor_op_{}_src_{}_sparsity_off.sum"
_PEAK = ".peak_sustained"
_FORMATS = ("bf16_dst_fp32", "fp16", "fp16_dst_fp32", "tf32_dst_fp32")
_ASYNCHRONOUS = ("hgmma", "utchmma")
"""The instructions of Hopper and Blackwell that use the whole rate."""
_RATIO = 1.05


def _judge(facts: Facts) -> Iterator[Claim]:
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
                    confidence=Confidence.HIGH,
                    remedy="Use wgmma (Hopper) or tcgen05 (Blackwell): newer libraries and "
                    "compilers do.",
                    ceiling=f"at most {ratio:.2f}×",
                    units=frozenset({"tensor"}),
                )
                return


RULE = Rule(
    gate=Gate.COST,
    verdicts={"mma_sync": "multiplications by instructions that do not use the whole rate of the "
              "tensor cores"},
    needs=(),
    threshold="most multiplications are by mma.sync, whose peak in the report is "
    f"{_RATIO:g} times below that of the asynchronous instructions",
    threshold_source="peaks per cycle of the report: 2731 and 4096 operations per multiprocessor "
    "in bf16 on an H200",
    judge=_judge,
)  # fmt: skip
