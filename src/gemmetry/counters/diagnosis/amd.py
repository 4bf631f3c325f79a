"""How busy the units of AMD GPUs are, and what their waves wait for, in the terms of the rules.

Cycles of a dispatch are ``GRBM_GUI_ACTIVE`` divided by the number of XCCs, as rocprofv3 adds them
up. Formulas: ``counter_defs.yaml`` of rocprofiler-sdk and the analysis configurations of
rocprofiler-compute (ROCm/rocm-systems, commit 1b1610fc).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gemmetry.counters.catalogue import Concept, reading_of
from gemmetry.counters.diagnosis.evidence import evidence_of
from gemmetry.counters.diagnosis.model import CounterEvidence
from gemmetry.counters.diagnosis.stalls import StallShares
from gemmetry.hardware.devices import DeviceSpec, devices_of, find_device

if TYPE_CHECKING:
    from gemmetry.counters.diagnosis.facts import Facts

UNKNOWN_CHIP = "gfx942"
"""Whose counters are shown for a GPU that is not listed."""

NAMES = {"tensor": "the matrix unit", "fma": "the vector unit", "l1": "the LDS"}
"""Units whose names differ from those of NVIDIA's."""

KEY_UNITS = frozenset({"tensor", "dram", "l1", "fma"})
"""Units that have to be known for a verdict about latency."""

_CYCLES = "GRBM_GUI_ACTIVE / num_xcc"


def _percent(name: str, meaning: str, expression: str) -> Concept:
    return Concept(name=name, unit="%", meaning=meaning, expressions=(expression,))


_VALU = _percent(
    "valu_percent", "the use of the vector units",
    f"100 * 4 * SQ_ACTIVE_INST_VALU / ({_CYCLES} * simd_count)",
)  # fmt: skip
_LDS = _percent(
    "lds_percent", "the use of the LDS", f"100 * SQ_LDS_IDX_ACTIVE / ({_CYCLES} * cu_count)"
)


CONCEPTS: Mapping[str, tuple[str | Concept, ...]] = {
    "tensor": ("tensor_pipe_percent",), "fma": (_VALU,), "l1": (_LDS,),
    "dram": ("dram_read_bytes", "dram_write_bytes"),
}  # fmt: skip
"""Unit -> what shows how busy it is."""


def device_of(facts: Facts) -> DeviceSpec | None:
    """The row of the table of GPUs; None where it is not certain."""
    info = facts.launch.info
    named = find_device(info.device) if info.device else None
    if named is not None:
        return named
    rows = devices_of(info.capability) if facts.is_amd and info.capability else ()
    return rows[0] if len(rows) == 1 else None


def utilisation(facts: Facts) -> dict[str, CounterEvidence]:
    """Id of a unit -> how busy it is, in percent of its peak."""
    found = {}
    for unit, concept in (("tensor", "tensor_pipe_percent"), ("fma", _VALU), ("l1", _LDS)):
        reading = reading_of(facts.launch, concept)
        if reading is not None:
            found[unit] = evidence_of(reading)
    read, written = facts.get("dram_read_bytes"), facts.get("dram_write_bytes")
    device, time = device_of(facts), facts.duration_ns
    if read is not None and written is not None and device is not None and time:
        rate = (read.value + written.value) / time * 1e9
        found["dram"] = CounterEvidence(
            "memory bandwidth", 100 * rate / device.bandwidth_bytes_per_s, "%",
            f"({read.source} + {written.source}) ÷ time ÷ bandwidth of {device.name}",
        )  # fmt: skip
    return found


def open_question(facts: Facts, unit: str) -> tuple[str, str] | None:
    """What is missing where the counters of `unit` are known and its use is not, and the option of
    rocprofv3 that records it."""
    if unit != "dram" or facts.lacks("dram_read_bytes", "dram_write_bytes"):
        return None
    if not facts.duration_ns:
        return "for how long the kernel ran", "--kernel-trace"
    return "which GPU it ran on", ""


def stall_shares(facts: Facts) -> StallShares | None:
    """Shares of the waves' time; None where they were not counted."""
    waits, issue = facts.get("wait_percent"), facts.get("issue_wait_percent")
    if waits is None:
        return None
    shares, metrics = {"any": waits.value / 100}, {"any": "SQ_WAIT_ANY"}
    if issue is not None:
        shares["inst_issue"] = issue.value / 100
        metrics["inst_issue"] = "SQ_WAIT_INST_ANY"
    return StallShares(shares, metrics, "SQ_WAVE_CYCLES")
