"""The optional check of a property: the bits of a row do not depend on the number of rows.

A server that batches requests gives a request other neighbours each time. Where a kernel chooses
its split of K, its tile or its library call by the number of rows, the same request then gets other
bits, each of them within its bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmetry.domain.errors import DispatchError, RequestError
from gemmetry.domain.operation import MatmulShape, Operation, check_shape
from gemmetry.numerics.references import to_logical, to_storage
from gemmetry.numerics.storage import Array, as_bits
from gemmetry.verification.checks.results import (
    CheckResult,
    failed,
    not_applicable,
    passed,
    property_of,
)
from gemmetry.verification.context import Context
from gemmetry.verification.launching import Launcher

NAME = "row_invariance"

OFF, REPORT, DEMAND = "off", "report", "demand"


def check_row_invariance(context: Context, wanted: str = REPORT) -> CheckResult:
    """The first rows of the result have the same bits where the operation has fewer rows. If they
    have not, this is a property, and a failure only if `wanted` is ``demand``."""
    companions, shape = context.companions, context.operation.shape
    if companions is None:
        return not_applicable(NAME, "this configuration cannot be built for other shapes here")
    if not isinstance(shape, MatmulShape) or shape.m < 2:
        return not_applicable(NAME, "the operation has no fewer rows to compare with")
    if context.may_differ:
        return not_applicable(NAME, "declared to differ from launch to launch")
    tried, refused = [], []
    for rows in _numbers_of_rows(shape.m):
        try:
            differing = _differing_rows(context, rows)
        except (DispatchError, NotImplementedError) as error:
            context.launcher.device.synchronize()
            refused.append(f"{rows} ({error})")
            continue
        if differing is None:
            refused.append(str(rows))
        elif differing.size:
            text = (
                f"the bits of a row depend on the number of rows: with {rows} instead of {shape.m} "
                f"rows, {differing.size} of the first {rows} differ (first {differing[0]})"
            )
            return failed(NAME, text) if wanted == DEMAND else property_of(NAME, text)
        else:
            tried.append(rows)
    if not tried:
        return not_applicable(NAME, f"it refuses other numbers of rows: {', '.join(refused)}")
    return passed(NAME, f"the same bits with {', '.join(map(str, tried))} rows")


def _numbers_of_rows(m: int) -> list[int]:
    """Few and many, with several remainders modulo small numbers."""
    wanted = (m - 1, m - 2, m // 2, m // 3 + 1, 17, 8, 4, 3, 2, 1)
    return [rows for rows in dict.fromkeys(wanted) if 0 < rows < m]


def _differing_rows(context: Context, rows: int) -> Array | None:
    """Numbers of the rows that differ; None where that number of rows is not supported."""
    operation = context.operation
    assert isinstance(operation.shape, MatmulShape)
    fewer = Operation(operation.signature, operation.shape._replace(m=rows))
    try:
        check_shape(fewer.signature, fewer.shape)
    except RequestError:
        return None
    assert context.companions is not None
    executable = context.companions.build(fewer)
    if executable is None:
        return None
    try:
        launcher = Launcher(executable, fewer, context.companions.tile)
        placed = launcher.place(_first_rows(operation, fewer, context.inputs), keep_copies=False)
        launch = launcher.launch(placed, sentinel=launcher.sentinels[0], check_inputs=False)
        problem = launcher.form_problem(launch)
        if problem:
            raise NotImplementedError(problem)
        few = to_logical(launch.output, fewer.output)
        all_rows = to_logical(context.first.output, operation.output)[..., :rows, :]
        same = as_bits(np.ascontiguousarray(few)) == as_bits(np.ascontiguousarray(all_rows))
        by_row = same.reshape(few.shape).all(axis=-1).reshape(-1, rows).all(axis=0)
        return np.flatnonzero(~by_row)
    finally:
        executable.close()


def _first_rows(
    operation: Operation, fewer: Operation, inputs: Sequence[Array]
) -> tuple[Array, ...]:
    """The inputs of `fewer`: those of `operation` without the last rows."""
    found = []
    for spec, new, array in zip(operation.inputs, fewer.inputs, inputs, strict=True):
        part = tuple(slice(0, size) for size in new.shape)
        found.append(to_storage(np.ascontiguousarray(to_logical(array, spec)[part]), new))
    return tuple(found)
