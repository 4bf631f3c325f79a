"""The distinct GEMMs of a workload, and a spec file of them: from a trace to a tuning job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple

from gemmetry.domain.dtypes import DTYPES, default_result
from gemmetry.domain.errors import RequestError
from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import (
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Scaling,
    Signature,
    check_shape,
)
from gemmetry.domain.units import counted
from gemmetry.kernel_names import KernelKind
from gemmetry.traces.gemms.summary import GemmRow
from gemmetry.traces.operators.gemms import GemmShape

_NAMED_SOURCES = 3
"""Most files that a spec lists by name; for more it gives their number and the folder."""


class _Product(NamedTuple):
    """The properties in which two GEMMs of the same product agree."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str | None
    layout: str | None
    scaling: str


@dataclass(slots=True, kw_only=True)
class WorkloadGemm:
    """All GEMMs of one product; helper passes count in the time, but not as calls."""

    m: int
    n: int
    k: int
    batch: int
    dtype: str | None
    layout: str | None
    scaling: str
    operation: str | None
    """gemmetry's name of the operation (docs/names.md); None where gemmetry does not support it."""
    reason: str
    """Why there is no `operation`; "" where there is one."""
    count: int = 0
    sum_ns: int = 0
    share: float = 0.0
    """Share of all GEMM time, including that of unknown shapes."""
    kernels: list[str] = field(default_factory=list)
    """Short names, those with the most time first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The GEMMs of traces as products, and the time of those whose shape is not known."""

    gemms: tuple[WorkloadGemm, ...]
    """Those with the most time first."""
    sum_ns: int
    unknown_ns: int
    unknown_count: int


def workload(rows: Iterable[GemmRow]) -> Workload:
    """Rows of :func:`gemmetry.traces.gemms.summary.gemm_table`, by product."""
    rows = sorted(rows, key=lambda row: -row.sum_ns)
    found: dict[_Product, WorkloadGemm] = {}
    by_shape: dict[GemmShape, WorkloadGemm] = {}
    lost: list[GemmRow] = []
    for row in rows:
        if row.shape is None or _is_helper(row):
            continue
        product = _Product(*row.shape[:4], row.dtype, row.layout, row.shape.scaling)
        gemm = found.get(product) or found.setdefault(product, _gemm(product))
        by_shape.setdefault(row.shape, gemm)
        gemm.count += row.count
        _add(gemm, row)
    for row in rows:
        if row.shape is not None and not _is_helper(row):
            continue
        # A helper pass has no format or layout of its own: it is counted with its GEMM.
        helped = by_shape.get(row.shape) if row.shape is not None else None
        if helped is None:
            lost.append(row)
        else:
            _add(helped, row)
    total = sum(row.sum_ns for row in rows)
    gemms = sorted(found.values(), key=lambda gemm: -gemm.sum_ns)
    for gemm in gemms:
        gemm.share = gemm.sum_ns / total if total else 0.0
    return Workload(
        gemms=tuple(gemms),
        sum_ns=total,
        unknown_ns=sum(row.sum_ns for row in lost),
        unknown_count=sum(row.count for row in lost if not _is_helper(row)),
    )


def _is_helper(row: GemmRow) -> bool:
    return row.facts.kind is KernelKind.GEMM_REDUCTION


def _add(gemm: WorkloadGemm, row: GemmRow) -> None:
    gemm.sum_ns += row.sum_ns
    if row.facts.short not in gemm.kernels:
        gemm.kernels.append(row.facts.short)


def _gemm(product: _Product) -> WorkloadGemm:
    operation, reason = _operation(product)
    return WorkloadGemm(operation=operation, reason=reason, **product._asdict())


def _operation(product: _Product) -> tuple[str | None, str]:
    """The name of the operation, or why there is none.

    Missing layouts are assumed to be row-major, and a missing result format to be the default:
    traces do not record either for every operator.
    """
    names = (product.dtype or "").split(":")
    formats = [DTYPES[name] for name in names if name in DTYPES]
    if len(formats) != len(names):
        return None, f"gemmetry does not multiply {product.dtype or 'an unknown format'}"
    if product.scaling == "block":
        return None, "the blocks that share scale factors are not read from traces"
    lhs, rhs = formats[0], formats[-1]
    layout = product.layout or "tt"
    shape = MatmulShape(product.m, product.n, product.k, product.batch)
    kind = OperationKind.BATCH_MATMUL if product.batch > 1 else OperationKind.MATMUL
    try:
        signature = Signature(
            kind, lhs, rhs, default_result(lhs, rhs), Layout(layout[0]), Layout(layout[1]),
            scaling=Scaling(product.scaling),
        )  # fmt: skip
        check_shape(signature, shape)
    except RequestError as error:
        return None, error.message
    return operation_name(Operation(signature, shape)), ""


def no_shape(sources: Sequence[str], load: Workload) -> RequestError:
    """The error for traces none of whose GEMMs has a shape that gemmetry computes."""
    reasons = Counter({gemm.reason: 0 for gemm in load.gemms if gemm.reason})
    for gemm in load.gemms:
        reasons[gemm.reason] += gemm.count
    if reasons:
        reason, count = reasons.most_common(1)[0]
        return RequestError(
            f"gemmetry computes none of the GEMMs of {_source_list(sources)} whose shapes are "
            f"recorded: {reason} ({counted(count, 'call')})",
            hint="gemmetry trace shapes FILE lists them, with the reason for each.",
        )
    return RequestError(
        f"no GEMM of {_source_list(sources)} has a known shape that gemmetry computes",
        hint="Record with torch.profiler and record_shapes=True: operators then record shapes.",
    )


def spec_text(load: Workload, sources: Sequence[str], *, top: int = 0) -> str:
    """A spec file that ``gemmetry profile --spec`` runs, the GEMMs with the most time first.

    Args:
        sources: paths of the trace files. top: number of GEMMs to include; 0: all.

    Raises:
        RequestError: no GEMM has a shape that gemmetry supports.
    """
    chosen = load.gemms[:top] if top else load.gemms
    dispatches: dict[str, list[WorkloadGemm]] = {}
    for gemm in chosen:
        if gemm.operation is not None:
            dispatches.setdefault(gemm.operation, []).append(gemm)
    if not dispatches:
        raise no_shape(sources, load)
    covered = sum(gemm.sum_ns for gemms in dispatches.values() for gemm in gemms)
    lines = [
        "# The GEMMs of a workload, those with the most time first; run them with:",
        "#   gemmetry profile --spec THIS_FILE [--providers NAMES] [--device cuda:0]",
        f"# From: {_source_list(sources)}",
        f"# They are {_share(covered, load.sum_ns)} of {load.sum_ns / 1e6:.3f} ms of GEMM time.",
    ]
    if load.unknown_ns:
        lines.append(
            f"# Shape not known: {counted(load.unknown_count, 'GEMM')}, "
            f"{_share(load.unknown_ns, load.sum_ns)} of the time."
        )
    for gemm in chosen:
        if gemm.operation is None:
            size = f"{gemm.batch}x{gemm.m}x{gemm.n}x{gemm.k}"
            lines.append(f"# Left out: {gemm.count} of {size} ({gemm.share:.1%}): {gemm.reason}.")
    lines += [f"name: {_run_name(sources)}", "dispatches:"]
    width = max(map(len, dispatches))
    for name, gemms in dispatches.items():
        calls, time = counted(sum(g.count for g in gemms), "call"), sum(g.sum_ns for g in gemms)
        share = _share(time, load.sum_ns)
        lines.append(f"  - {name:<{width}}  # {calls}, {time / 1e6:.3f} ms, {share}")
    return "\n".join(lines) + "\n"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "0.0%"


def _source_list(sources: Sequence[str]) -> str:
    """Lists the files; many files are given as their number and common folder."""
    folder = _folder(sources)
    if len(sources) <= _NAMED_SOURCES or not folder:
        return _plain(", ".join(sources))
    return f"{len(sources)} traces below {_plain(folder)}"


def _folder(sources: Sequence[str]) -> str:
    """The deepest folder that holds all files; "" if there is none."""
    parts = [PurePath(source).parent.parts for source in sources]
    shared = takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    names = [level[0] for level in shared]
    return str(PurePath(*names)) if names else ""


def _plain(text: str) -> str:
    """On one line and without control characters, for a comment."""
    return "".join(c if c.isprintable() else "?" for c in text)[:300]


def _run_name(sources: Sequence[str]) -> str:
    """A valid run name: letters, digits, dots, dashes and underscores, at most 64."""
    one = sources[0] if len(sources) == 1 else _folder(sources)
    stem = one.rpartition("/")[2].partition(".json")[0] or "trace"
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", stem.removesuffix(".pt.trace")).strip("-_")
    return f"gemms-{plain[:50]}".rstrip("-")
