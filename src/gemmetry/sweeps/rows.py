"""``analysis.json``: every figure of a sweep's analysis; None where the traces do not show it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gemmetry.sweeps.analysis import PointAnalysis, SweepAnalysis
from gemmetry.sweeps.cause import DoseResponse
from gemmetry.sweeps.inspector import RecordedCollective
from gemmetry.sweeps.model import GemmKind, Point, SettingVerdict, SweepConfiguration
from gemmetry.sweeps.points import (
    Best,
    PointCollective,
    PooledGemm,
    Ranked,
    SettingEffect,
    point_collectives,
)
from gemmetry.sweeps.ranks import GemmStatistics
from gemmetry.sweeps.rocprof import RocprofKernel

SCHEMA_VERSION = 1

Entry = dict[str, Any]


def sweep_document(analysis: SweepAnalysis) -> Entry:
    """The document, with the keys of ``docs/sweep-analysis.md``; times are in µs or ms, as the keys
    state."""
    return {
        "schema_version": SCHEMA_VERSION,
        "sweep": str(analysis.sweep.folder),
        "points": [point_entry(one) for one in analysis.points],
        "gemms": [
            gemm_entry(one.point, rank.facts.rank, gemm)
            for one in analysis.points
            for rank in one.ranks
            for gemm in rank.gemms
        ],
        "pooled_gemms": [
            pooled_entry(one.point, gemm) for one in analysis.points for gemm in one.pooled
        ],
        "settings": [asdict(setting) for setting in analysis.settings],
        "collectives": [
            collective_entry(one.point, found)
            for one in analysis.points
            for found in point_collectives(one.job)
        ],
        "rocprof": [
            rocprof_entry(one.point, kernel)
            for one in analysis.points
            for kernel in one.rocprof.kernels
        ],
        "best": {**best_entry(analysis.best), "left_out": [
            {**point_keys(one.point), "reason": one.left_out}
            for one in analysis.points if one.left_out
        ]},
        "effects": [effect_entry(one) for one in analysis.effects],
        "environment": environment_entry(analysis.sweep.manifest),
        "problems": analysis.all_problems,
    }  # fmt: skip


def configuration_entry(configuration: SweepConfiguration) -> Entry:
    """The keys that identify a configuration."""
    return {
        "threads": configuration.threads,
        "channels": configuration.channels,
        "axes": dict(configuration.axes),
    }


def point_keys(point: Point) -> Entry:
    """The keys that identify a point."""
    return {**configuration_entry(point.configuration), "repeat": point.repeat}


def point_entry(one: PointAnalysis) -> Entry:
    """One entry of ``points``."""
    found = one.summary
    first = one.ranks[0].facts if one.ranks else None
    return {
        **point_keys(one.point),
        "world_size": one.world_size,
        "outcome": one.point.outcome,
        "reason": one.point.reason or None,
        "left_out": one.left_out or None,
        "folder": str(one.point.folder),
        "ranks": [rank.facts.rank for rank in one.ranks],
        "device": first.device or None if first else None,
        "versions": first.versions if first else {},
        "settings": [setting_entry(setting) for setting in one.settings],
        "step_ms": {
            "median": _value(found, "median_ms"),
            "ci_low": _value(found, "low_ms"),
            "ci_high": _value(found, "high_ms"),
            "n": found.count if found else 0,
        },
        "compute_ms": _value(found, "compute_ms"),
        "slowed_compute_ms": _value(found, "slowed_compute_ms"),
        "exposed_comm_ms": _value(found, "exposed_comm_ms"),
        "exposed_copy_ms": _value(found, "exposed_copy_ms"),
        "idle_ms": _value(found, "idle_ms"),
        "steps": [
            {"step": step.number, "slowest_rank": step.rank,
             "window_ms": _rounded(step.window_ns / 1e6)}
            for step in one.steps
        ],
        "stragglers": [
            {"rank": s.rank, "collectives": s.collectives, "last_share": _rounded(s.last_share),
             "waited_us": _rounded(s.waited_us), "delayed_us": _rounded(s.delayed_us),
             "lost_in": s.lost_in, "lost_us": _rounded(s.lost_us), "since_step": s.since_step,
             "is_straggler": s.is_straggler, "verdict": s.verdict}
            for s in one.stragglers
        ],
        "nccl_records": [recorded_entry(recorded) for recorded in one.recorded],
        "problems": list(one.problems),
    }  # fmt: skip


def setting_entry(setting: SettingVerdict) -> Entry:
    """One entry of ``points[].settings``: whether a requested value took effect at a point."""
    return {
        "name": setting.name,
        "asked": setting.requested,
        "seen": setting.seen,
        "verdict": setting.verdict,
        "reason": setting.reason or None,
        "collectives": [asdict(one) for one in setting.collectives],
    }


def gemm_entry(point: Point, rank: int | None, gemm: GemmStatistics) -> Entry:
    """One entry of ``gemms``: a kernel with a shape on one rank of a point."""
    cause = gemm.cause
    return {
        **point_keys(point),
        "rank": rank,
        **kind_entry(gemm.kind),
        "count": gemm.count,
        **{
            name: _rounded(getattr(gemm, name))
            for name in (
                "sum_us", "median_us", "p5_us", "p95_us", "mad_us", "cv", "min_us", "max_us",
                "max_minus_min_us", "first_step_median_us", "later_steps_median_us",
                "first_step_ratio",
            )
        },
        **_cause_entry(cause),
        "note": cause.note or None,
        "by_collective": [
            {"op": one.op, "count": one.count, "median_us": _rounded(one.median_us),
             "slowdown": _rounded(one.slowdown), "slowdown_ci_low": _rounded(one.low),
             "slowdown_ci_high": _rounded(one.high), "verdict": str(one.verdict)}
            for one in cause.by_collective
        ],
    }  # fmt: skip


def pooled_entry(point: Point, gemm: PooledGemm) -> Entry:
    """One entry of ``pooled_gemms``: a kernel with a shape on all ranks of a point."""
    return {
        **point_keys(point),
        "ranks": list(gemm.ranks),
        **kind_entry(gemm.kind),
        "count": gemm.count,
        "sum_us": _rounded(gemm.sum_us),
        **_cause_entry(gemm),
        "by_share": [
            {"low": one.low, "high": one.high, "count": one.count,
             "slowdown": _rounded(one.slowdown)}
            for one in gemm.by_share
        ],
        "note": gemm.note or None,
    }  # fmt: skip


def collective_entry(point: Point, found: PointCollective) -> Entry:
    """One entry of ``collectives``: an operation with a size at a point."""
    return {
        **point_keys(point),
        "op": found.op,
        "dtype": found.dtype,
        "bytes": found.bytes,
        "group_size": found.group_size,
        "count": found.count,
        "latency_us": _rounded(found.latency_us),
        "busbw_gbps": _rounded(found.busbw_gbps),
        "duration_us": _rounded(found.duration_us),
        "is_complete": found.is_complete,
    }


def recorded_entry(one: RecordedCollective) -> Entry:
    """One entry of ``nccl_records``: a collective with a size as NCCL Inspector recorded it."""
    low, high = one.interval_us or (None, None)
    return {
        "op": one.operation,
        "bytes": one.bytes,
        "group_size": one.ranks,
        "nodes": one.nodes,
        "count": one.count,
        "is_complete": one.is_complete,
        "timing": one.timing or None,
        "channels": one.channels,
        "latency_us": _rounded(one.latency_us),
        "latency_ci_low_us": _rounded(low),
        "latency_ci_high_us": _rounded(high),
        "busbw_gbps": _rounded(one.busbw_gbps),
        "traced_count": one.traced_count,
        "traced_latency_us": _rounded(one.traced_latency_us),
        "traced_busbw_gbps": _rounded(one.traced_busbw_gbps),
    }


def effect_entry(one: SettingEffect) -> Entry:
    """One entry of ``effects``: one value of a setting compared with its first value."""
    return {
        "name": one.name,
        "before": one.before,
        "after": one.after,
        "pairs": one.pairs,
        "ratio": _rounded(one.comparison.ratio),
        "ratio_ci_low": _rounded(one.comparison.ratio_low),
        "ratio_ci_high": _rounded(one.comparison.ratio_high),
        "verdict": str(one.comparison.verdict),
    }


def environment_entry(manifest: Mapping[str, Any]) -> Entry:
    """Machine, software and workload as the manifest of the sweep records them, with one entry for
    each value: ``environment.packages.torch``."""
    found: Entry = {}
    for name in ("environment", "identity"):
        _flatten(name, manifest.get(name), found)
    return found


def _flatten(name: str, value: object, found: Entry) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(f"{name}.{key}", item, found)
    elif value not in (None, "", [], ()):
        found[name] = value


def rocprof_entry(point: Point, kernel: RocprofKernel) -> Entry:
    """One entry of ``rocprof``: a kernel with one grid on one rank of a point, as rocprofv3
    recorded it."""
    return {
        **point_keys(point),
        "rank": kernel.rank,
        "rank_source": kernel.rank_source or None,
        "pids": list(kernel.pids),
        "host": kernel.host or None,
        "device": kernel.device,
        "chip": kernel.chip or None,
        "kernel": kernel.kernel,
        "workgroups": kernel.workgroups,
        "workgroup_size": kernel.workgroup_size,
        "count": kernel.count,
        "passes": kernel.passes,
        "median_us": _rounded(kernel.median_us),
        "is_serialised": kernel.is_serialised,
        **{name: _rounded(value) for name, value in kernel.metrics.items()},
        "matrix_gflop": _rounded(kernel.matrix_gflop),
        "vgprs": kernel.vgprs,
        "accum_vgprs": kernel.accum_vgprs,
        "sgprs": kernel.sgprs,
        "lds_bytes": kernel.lds_bytes,
        "scratch_bytes": kernel.scratch_bytes,
        "counters": dict(kernel.counters),
    }


def kind_entry(kind: GemmKind) -> Entry:
    """The keys that identify a kernel with a shape."""
    return {
        "kernel": kind.kernel,
        "m": kind.m,
        "n": kind.n,
        "k": kind.k,
        "batch": kind.batch,
        "dtype": kind.dtype,
        "layout": kind.layout,
    }


def _cause_entry(cause: Any) -> Entry:
    """Of a :class:`~gemmetry.sweeps.cause.Cause` or a :class:`PooledGemm`."""
    dose: DoseResponse | None = cause.dose
    return {
        "overlapped_count": cause.overlapped_count,
        "alone_count": cause.alone_count,
        "overlapped_median_us": _rounded(cause.overlapped_median_us),
        "alone_median_us": _rounded(cause.alone_median_us),
        "slowdown": _rounded(cause.slowdown),
        "slowdown_ci_low": _rounded(cause.low),
        "slowdown_ci_high": _rounded(cause.high),
        "verdict": str(cause.verdict),
        "cost_ms_per_step": _rounded(cause.cost_ms_per_step),
        "full_overlap_slowdown": _value(dose, "full_overlap_slowdown"),
        "full_overlap_ci_low": _value(dose, "low"),
        "full_overlap_ci_high": _value(dose, "high"),
        "full_overlap_note": dose.note if dose else "",
        "highest_overlap_share": _value(dose, "highest_share"),
    }


def best_entry(best: Best | None) -> Mapping[str, Any]:
    """The entry ``best``; its verdict is ``no steps`` where no point has any."""
    if best is None:
        return {"threads": None, "channels": None, "axes": {}, "step_ms": None, "runs": 0,
                "verdict": "no steps", "next": None, "as_good": [], "others": []}  # fmt: skip
    first = best.first
    return {
        **configuration_entry(first.configuration),
        "step_ms": _rounded(first.mean_ms),
        "runs": first.runs,
        "verdict": str(best.verdict),
        "next": _ranked_entry(best.second) if best.second else None,
        "as_good": [configuration_entry(one.configuration) for one in best.as_good],
        "others": [_ranked_entry(one) for one in best.ranked[1:]],
    }


def _ranked_entry(one: Ranked) -> Entry:
    found = one.comparison
    return {
        **configuration_entry(one.configuration),
        "step_ms": _rounded(one.mean_ms),
        "runs": one.runs,
        "ratio": _value(found, "ratio"),
        "ratio_ci_low": _value(found, "ratio_low"),
        "ratio_ci_high": _value(found, "ratio_high"),
        "verdict": str(found.verdict) if found else None,
        "note": found.note or None if found else None,
    }


def _value(item: object | None, name: str) -> float | None:
    """An attribute of `item`; None without one."""
    return None if item is None else _rounded(getattr(item, name))


def _rounded(value: float | None) -> float | None:
    """Without the digits that come from binary fractions: a ns of a µs has three. JSON lacks NaN
    and infinities, so they are None."""
    return None if value is None or not math.isfinite(value) else round(value, 6)
