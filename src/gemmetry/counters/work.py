"""The work that a matrix product needs, and whether counters show that it was done.

Expected are 2·M·N·K operations, the bytes that the tiles of the kernel bring into shared memory,
M·N results, and the compulsory traffic of the memory: each input once, and the result once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from gemmetry.counters.model import WorkCheck
from gemmetry.domain.operation import DTYPES, DType, Operation, default_result
from gemmetry.traces.names import GEMM_KINDS, KernelKind

if TYPE_CHECKING:
    from gemmetry.counters.facts import Facts


TOLERANCE = 0.01
"""Relative difference of counts that is ignored. Counters of exact work (operations, copies of
tiles) agree with the model to the last digit on an H200; those of instructions come from other
passes than the time they are scaled by, and differ by a tenth of a percent."""

OPERATIONS = "operations"
"""The quantity that identifies the work."""

MISMATCHES = ("less_work", "more_work", "recompute", "other_path")
"""Verdicts about operations after which the counters belong to other work than described."""

_PATHS = {
    "bf16": "bf16", "f16": "fp16", "tf32": "tf32", "f64": "fp64", "s8": "int8", "fp8": "fp8",
    "f32": "fp32",
}  # fmt: skip
"""Rate class of the inputs -> the path that multiplies them."""
_TENSOR_PATHS = ("bf16", "fp16", "tf32", "fp8", "fp4_fp6", "fp4", "int8", "fp64", "fp32")
_NARROW_PATHS = ("fp8", "fp4_fp6", "fp4")
_VECTOR_PATHS = ("fp32", "fp64", "fp16")
_SECTOR = 32

_PART = re.compile(
    r"sm(?:sp)?__ops_path_tensor(?P<op>_op_[a-z]+)?_src_(?P<path>[a-z0-9_]+?)"
    r"(?P<result>_dst_fp\d+)?(?P<sparsity>_sparsity_(?:on|off))?\.sum"
)
"""Counters of a part of a path's operations: of one instruction, result or sparsity."""
_PART_PATHS = {"fp4_fp6_fp8": "fp8", "fp16_bf16_tf32": "fp16"}
"""Formats that are counted together -> their path."""

_NAMED = re.compile(
    r"(?:^|_)matmul(?:_like)?_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:_(?P<lhs>[a-z]+\d+)x"
    r"(?P<rhs>[a-z]+\d+)(?:x(?P<result>[a-z]+\d+))?)?(?![x\d])"
)
"""Shapes in the names of IREE's kernels, and of the workbench's dispatches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmWork:
    """A matrix product C (M×N) = A (M×K) · B (K×N), `batch` times."""

    m: int
    n: int
    k: int
    batch: int = 1
    lhs: DType | None = None
    rhs: DType | None = None
    result: DType | None = None
    factor_bytes: tuple[float, float] = (0.0, 0.0)
    """Scale factors of blocks for each element of A and of B; zeros where there are no blocks."""

    @property
    def element_bytes(self) -> tuple[float, float] | None:
        """An element of A and of B as a GPU stores it, with its part of a scale factor; None where
        their formats are not known."""
        if self.lhs is None or self.rhs is None:
            return None
        a, b = self.factor_bytes
        return self.lhs.storage_bits / 8 + a, self.rhs.storage_bits / 8 + b

    @property
    def operations(self) -> float:
        """2·M·N·K, for each of the batch."""
        return 2.0 * self.m * self.n * self.k * self.batch

    @property
    def result_type(self) -> DType | None:
        """The format of C; the usual one where only the inputs are known."""
        if self.result is not None or self.lhs is None or self.rhs is None:
            return self.result
        return default_result(self.lhs, self.rhs)


def gemm_work(operation: Operation) -> GemmWork:
    """The work of `operation`; a convolution is its implicit matrix product."""
    shape, signature = operation.matmul_shape, operation.signature
    factors = (0.0, 0.0)
    if signature.blocks is not None:
        bytes_of = {spec.role: spec.bytes for spec in operation.inputs}
        inner = shape.batch * shape.k
        factors = bytes_of["scale_a"] / (inner * shape.m), bytes_of["scale_b"] / (inner * shape.n)
    return GemmWork(
        m=shape.m, n=shape.n, k=shape.k, batch=shape.batch, lhs=signature.lhs, rhs=signature.rhs,
        result=signature.result, factor_bytes=factors,
    )  # fmt: skip


def work_in_name(name: str) -> GemmWork | None:
    """The work that a kernel's name describes; None where it does not."""
    found = _NAMED.search(name)
    if found is None:
        return None
    lhs, rhs, result = (DTYPES.get(found[one] or "") for one in ("lhs", "rhs", "result"))
    m, n, k = (int(found[one]) for one in "mnk")
    return GemmWork(m=m, n=n, k=k, lhs=lhs, rhs=rhs, result=result)


def check_work(facts: Facts, work: GemmWork | None) -> Iterator[WorkCheck]:
    """Compare what was counted with the work; one skipped check where it is not known."""
    kind = facts.kernel.kind
    is_helper = kind is KernelKind.GEMM_REDUCTION or kind not in (*GEMM_KINDS, KernelKind.OTHER)
    if is_helper:
        yield _skipped(OPERATIONS, f"the name shows another kind of kernel: {kind}")
        return
    if work is None:
        yield _skipped(
            OPERATIONS,
            "neither the request nor the kernel's name gives the shape: use --shape MxNxK",
        )
        return
    if work.lhs is None and (named := DTYPES.get(facts.kernel.dtype or "")) is not None:
        result = DTYPES.get(facts.kernel.result_dtype or "")
        work = replace(work, lhs=named, rhs=named, result=work.result or result)
    yield _operations(facts, work)
    yield _filled(facts, work)
    yield _written(facts, work)
    yield _moved(facts, work)


def _skipped(quantity: str, reason: str, measured: float | None = None) -> WorkCheck:
    return WorkCheck(quantity, measured, None, "skipped", reason)


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=TOLERANCE)


def operations_by_path(facts: Facts) -> dict[str, float]:
    """Path -> operations counted on it, tensor cores first; those of vector pipes are called
    ``vector fp32``."""
    parts = partial_operations(facts)
    found = {kind: facts.value(f"tensor_ops_{kind}") for kind in _TENSOR_PATHS} | parts
    found |= {f"vector {kind}": facts.value(f"vector_ops_{kind}") for kind in _VECTOR_PATHS}
    return {path: count for path, count in found.items() if count is not None}


def partial_operations(facts: Facts) -> dict[str, float]:
    """Path -> operations of those counters that the report has, where it lacks their total: a
    lower bound, as a chip has one counter for each instruction, format of results and sparsity."""
    parts: dict[str, dict[tuple[bool, bool], float]] = {}
    for name, value in facts.launch.metrics().items():
        found = _PART.fullmatch(name)
        if found is None:
            continue
        path = _PART_PATHS.get(found["path"], found["path"])
        if path not in _TENSOR_PATHS or facts.value(f"tensor_ops_{path}") is not None:
            continue
        sums = parts.setdefault(path, {})
        # A total and its parts are alternatives: by instruction or not, by sparsity or not.
        key = found["op"] is not None, found["sparsity"] is not None
        sums[key] = sums.get(key, 0.0) + value
    return {path: max(sums.values()) for path, sums in parts.items()}


def main_path(paths: dict[str, float]) -> str | None:
    """The path that multiplied: the busiest of the tensor cores, else of the vector pipes."""
    tensor = {name: count for name, count in paths.items() if not name.startswith("vector")}
    for group in (tensor, paths):
        if group and max(group.values()) > 0:
            return max(group, key=group.__getitem__)
    return None


def _operations(facts: Facts, work: GemmWork) -> WorkCheck:
    quantity, expected = OPERATIONS, work.operations
    paths = operations_by_path(facts)
    path = main_path(paths)
    missing = [one for one in facts.lacks(*counters_of(work)) if facts.collect([one])]
    if path is None or not math.isfinite(paths[path]):
        names = ", ".join(missing) or "operations"
        return WorkCheck(quantity, None, expected, "skipped", f"not counted: {names}")
    measured = paths[path]
    is_part = path in partial_operations(facts) or (missing and work.lhs is not None)
    if is_part and measured < expected * (1 - TOLERANCE):
        reason = f"only a part was counted, on the path {path}"
        return WorkCheck(quantity, None, expected, "skipped", reason)
    if not _fits(path, work, facts):
        return WorkCheck(
            quantity, measured, expected, "other_path",
            f"inputs are {work.lhs}, but the operations are on the path {path}",
        )  # fmt: skip
    ratio = measured / expected
    if _is_close(ratio, 1):
        reason = f"2·M·N·K on the path {path}"
        if any(work.factor_bytes) and path not in _NARROW_PATHS:
            reason += ", for which elements are widened with their factors"
        return WorkCheck(quantity, measured, expected, "ok", reason)
    if (padded := _padding(facts, work, ratio)) is not None:
        return WorkCheck(quantity, measured, expected, "padding", padded)
    if ratio < 1:
        verdict = "less_work"
        reason = "another launch does the rest, the input is structured sparse, or the shape is "
        reason += "another one"
    elif _is_close(ratio, round(ratio)):
        verdict, reason = "recompute", f"everything is computed {round(ratio)} times"
    else:
        verdict, reason = "more_work", "padded tiles, recomputed parts, or another shape"
    return WorkCheck(quantity, measured, expected, verdict, f"{ratio:.3g} times 2·M·N·K: {reason}")


def counters_of(work: GemmWork | None) -> tuple[str, ...]:
    """The concepts that show the operations of `work`; those of common formats where its own is not
    known."""
    wide = _wide(work) if work is not None else None
    if wide is None:
        return "tensor_ops_bf16", "vector_ops_fp32"
    path = _PATHS.get("fp8" if wide.is_fp8 else wide.name)
    if path in ("fp32", "fp64"):
        return f"tensor_ops_{path}", f"vector_ops_{path}"
    if path is None:
        path = "fp4" if wide.storage_bits == 4 else "fp4_fp6" if wide.storage_bits < 8 else "fp8"
    return (f"tensor_ops_{path}",)


def _wide(work: GemmWork) -> DType | None:
    """The wider format of the inputs; None where they are not known."""
    if work.lhs is None or work.rhs is None:
        return None
    return work.lhs if work.lhs.storage_bits >= work.rhs.storage_bits else work.rhs


def _fits(path: str, work: GemmWork, facts: Facts) -> bool:
    """Whether inputs of the work are multiplied on `path`; elements of blocks may be widened."""
    wide = _wide(work)
    if wide is None or any(work.factor_bytes):
        return True
    expected = "fp8" if wide.is_fp8 else wide.name
    plain = path.removeprefix("vector ")
    if wide.storage_bits <= 8 and not wide.is_integer:
        return plain in _NARROW_PATHS and not (wide.is_fp8 and plain == "fp4")
    wanted = _PATHS.get(expected)
    if wanted is None or plain == wanted:
        return True
    # GA100 counts all 16-bit formats and TF32 together.
    return plain == "fp16" and facts.value(f"tensor_ops_{wanted}") is None and wanted != "fp32"


def _tiles(facts: Facts, work: GemmWork) -> list[tuple[int, int, int, int, int]]:
    """Tile M, N and K, and the numbers of tiles along M and N; both orientations, as libraries
    compute the transposed product of row-major matrices."""
    tile = facts.kernel.tile
    if tile is None or not (tile[0] and tile[1]):
        return []
    sizes = {(tile[0], tile[1]), (tile[1], tile[0])}
    return sorted((m, n, tile[2], -(-work.m // m), -(-work.n // n)) for m, n in sizes)


def _padding(facts: Facts, work: GemmWork, ratio: float) -> str | None:
    """The sentence about a ratio that padded tiles explain; None where they do not. The last
    cluster along an axis may be partly outside of the result, and all of its blocks multiply."""
    cluster = facts.kernel.cluster or (1, 1)
    clusters = dict.fromkeys([(1, 1), cluster[:2], cluster[1::-1]])
    for m, n, k, across_m, across_n in _tiles(facts, work):
        depth = math.ceil(work.k / k) * k if k else work.k
        for (blocks_m, blocks_n), inner in product(clusters, {depth, work.k}):
            rows = math.ceil(across_m / blocks_m) * blocks_m * m
            columns = math.ceil(across_n / blocks_n) * blocks_n * n
            padded = rows * columns * inner / (work.m * work.n * work.k)
            if _is_close(ratio, padded):
                return f"tiles of {m}×{n} cover {padded:.3g} times the work"
    return None


def _filled(facts: Facts, work: GemmWork) -> WorkCheck:
    quantity = "bytes of tiles"
    uses_copies = facts.value("tma_loads") or facts.value("tma_pipe_percent")
    if uses_copies and facts.value("tma_load_bytes") is None:
        return _skipped(quantity, "copies by the tensor memory accelerator were not counted")
    # Loads count at L1, before hits, and so does LDGSTS, which fills shared memory directly.
    copied = facts.value("tma_load_bytes") or 0.0
    moved = copied or _SECTOR * (facts.value("global_load_sectors") or 0.0)
    if moved <= 0:
        return _skipped(quantity, "neither copies of tiles nor loads were counted")
    sizes = work.element_bytes
    if sizes is None:
        return _skipped(quantity, "the formats of the inputs are not known: use --dtype", moved)
    tiles = _tiles(facts, work)
    if not tiles:
        side = work.m * work.n * work.k * work.batch * sum(sizes) / moved
        return _skipped(
            quantity, f"the name gives no tile; square tiles of {side:.0f} would copy as much",
            moved,
        )  # fmt: skip
    models = [
        across_m * across_n * (m * sizes[0] + n * sizes[1]) * work.k * work.batch
        for m, n, _, across_m, across_n in tiles
    ]
    expected = min(models, key=lambda one: abs(math.log(moved / one)))
    ratio = moved / expected
    m, n = facts.kernel.tile[:2] if facts.kernel.tile else (0, 0)
    if _is_close(ratio, 1):
        reason = f"{m}×{n} tiles, each of which reads its rows of A and columns of B once"
        return WorkCheck(quantity, moved, expected, "ok", reason)
    reason = f"{ratio:.3g} times what tiles of {m}×{n} need"
    verdict = "recompute" if ratio > 1 and _is_close(ratio, round(ratio)) else "other_tile"
    return WorkCheck(quantity, moved, expected, verdict, reason)


def _written(facts: Facts, work: GemmWork) -> WorkCheck:
    quantity = "bytes of results"
    parts = [facts.value("tma_store_bytes"), facts.value("global_store_sectors")]
    if all(one is None for one in parts):
        return _skipped(quantity, "stores were not counted")
    measured = (parts[0] or 0.0) + _SECTOR * (parts[1] or 0.0)
    result = work.result_type
    if result is None:
        return _skipped(quantity, "the format of the result is not known: use --dtype", measured)
    elements = float(work.m * work.n * work.batch)
    expected = elements * result.itemsize
    ratio = measured / expected
    if parts[0] is None and ratio < 1 - TOLERANCE and facts.uses_async_copies is not False:
        return _skipped(quantity, "copies by the tensor memory accelerator were not counted")
    if _is_close(ratio, 1):
        return WorkCheck(quantity, measured, expected, "ok", f"M·N results in {result}")
    if ratio < 1 and parts[0] is None and facts.uses_async_copies is not False:
        return _skipped(quantity, "stores of the tensor memory accelerator were not counted")
    wide = measured / (elements * 4)
    slices = round(wide)
    if slices >= 2 and _is_close(wide, slices):
        verdict, reason = "split_k", f"M·N partial sums in f32 for each of {slices} slices of K"
    elif slices == 1 and _is_close(wide, 1):
        verdict, reason = "wider_result", f"M·N results in f32, not in {result}"
    elif ratio < 1 and 2 * _SECTOR * (facts.value("atomic_sectors") or 0) >= expected - measured:
        # Not the few atomic operations by which persistent blocks share tiles.
        verdict, reason = "split_k", "results are added by atomic operations"
    elif ratio < 1:
        verdict = "less_work"
        reason = (
            f"{ratio:.3g} times M·N results in {result}: another launch writes the rest, or they "
            "are of a narrower format"
        )
    else:
        verdict, reason = "more_work", f"{ratio:.3g} times M·N results in {result}"
    return WorkCheck(quantity, measured, expected, verdict, reason)


def _moved(facts: Facts, work: GemmWork) -> WorkCheck:
    quantity = "bytes of device memory"
    read, written = facts.get("dram_read_bytes"), facts.get("dram_write_bytes")
    if read is None or written is None:
        return _skipped(quantity, "not counted: dram_read_bytes, dram_write_bytes")
    measured = read.value + written.value
    result = work.result_type
    sizes = work.element_bytes
    if sizes is None or result is None:
        return _skipped(quantity, "the formats are not known: use --dtype", measured)
    expected = work.batch * float(
        work.m * work.k * sizes[0] + work.k * work.n * sizes[1] + work.m * work.n * result.itemsize
    )
    ratio = measured / expected
    if ratio < 1 - TOLERANCE:
        verdict, reason = "cached", "a part stayed in the L2 cache from before, or for later"
    elif ratio <= 1 + 10 * TOLERANCE:
        verdict, reason = "ok", "each input is read once, and the result is written once"
    else:
        verdict = "reread"
        reason = f"inputs are read again after they left the L2 cache: {ratio:.3g} times the least"
    return WorkCheck(quantity, measured, expected, verdict, reason)
