"""A diagnosis as a JSON document, and as a table with a row per finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from gemmetry.counters.diagnosis.checklist import SideBySide
from gemmetry.counters.diagnosis.model import Finding, LaunchDiagnosis
from gemmetry.counters.roofline import LaunchRoofline
from gemmetry.domain.tables import Column, ColumnType, Table

SCHEMA_VERSION = 1

BRIEF_FINDINGS = 3
"""Findings of a brief diagnosis."""


def launch_document(
    diagnosis: LaunchDiagnosis,
    roofline: LaunchRoofline | None = None,
    checklists: SideBySide | None = None,
) -> dict[str, Any]:
    """One launch, whole."""
    found: dict[str, Any] = {
        "kernel": diagnosis.kernel,
        "device": diagnosis.device,
        "duration_ns": diagnosis.duration_ns,
        "work_check": [asdict(one) for one in diagnosis.work_check],
        "verdict": asdict(diagnosis.verdict),
        "findings": [_finding(one) for one in diagnosis.findings],
        "suppressed": [asdict(one) for one in diagnosis.suppressed],
        "roofline": None,
    }
    if roofline is not None:
        found["roofline"] = {**asdict(roofline), "attainable": roofline.attainable}
    if checklists is not None:
        found["side_by_side"] = asdict(checklists)
    return found


def brief_document(diagnosis: LaunchDiagnosis) -> dict[str, Any]:
    """One launch with its verdict and the first findings, without evidence."""
    return {
        "kernel": diagnosis.kernel,
        "device": diagnosis.device,
        "duration_ns": diagnosis.duration_ns,
        "verdict": asdict(diagnosis.verdict),
        "findings": [
            {"id": one.id, "claim": one.claim, "confidence": one.confidence,
             "remedy": one.remedy, "collect": one.collect}
            for one in diagnosis.findings[:BRIEF_FINDINGS]
        ],
    }  # fmt: skip


def _finding(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "evidence": [asdict(one) for one in finding.evidence]}


def diagnosis_document(
    launches: Iterable[dict[str, Any]], problems: Sequence[str]
) -> dict[str, Any]:
    """The document of several launches."""
    return {
        "schema_version": SCHEMA_VERSION,
        "launches": list(launches),
        "problems": list(problems),
    }


COLUMNS = (
    Column("launch", ColumnType.INTEGER, description="position in the report, from 0"),
    Column("kernel", description="its name"),
    Column("device"),
    Column("duration_ns", ColumnType.NUMBER, "ns", "time on the GPU"),
    Column("kind", choices=("verdict", "finding", "suppressed")),
    Column("id", description="of the verdict or finding"),
    Column("claim"),
    Column("confidence"),
    Column("evidence", description="metrics with their values"),
    Column("threshold"),
    Column("against", description="what speaks against it, or why it is suppressed"),
    Column("remedy"),
    Column("ceiling", description="what can be gained at most"),
    Column("collect", description="options of the profiler that collect what is missing"),
)


def diagnosis_table(diagnoses: Sequence[LaunchDiagnosis]) -> Table:
    """A row for each verdict, finding and suppressed finding."""
    rows: list[Sequence[Any]] = []
    for number, one in enumerate(diagnoses):
        start = (number, one.kernel, one.device, one.duration_ns)
        verdict = one.verdict
        rows.append((*start, "verdict", verdict.id, verdict.claim, str(verdict.confidence),
                     *(None,) * 6))  # fmt: skip
        for found in one.findings:
            evidence = "; ".join(f"{e.metric} = {e.value:.6g} {e.unit}" for e in found.evidence)
            rows.append((*start, "finding", found.id, found.claim, str(found.confidence), evidence,
                         found.threshold, found.against, found.remedy, found.ceiling,
                         found.collect))  # fmt: skip
        rows.extend(
            (*start, "suppressed", void.id, void.claim, None, None, None, void.reason,
             None, None, None)
            for void in one.suppressed
        )  # fmt: skip
    return Table("diagnosis", COLUMNS, rows)
