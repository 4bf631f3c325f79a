"""GEMMs for the sheets of operators by what they compute (:mod:`.tracelens_performance`).

Their times include everything that a call launched; the speed of the kernel alone is in the sheet
``gemms``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmetry.formats.events import OperatorArguments
from gemmetry.kernel_names import KernelKind
from gemmetry.traces.call_arguments import Call
from gemmetry.traces.gemms.joins import NONE
from gemmetry.traces.gemms.links import link_gemms
from gemmetry.traces.model import Trace
from gemmetry.traces.operators.gemms import OPERAND_PLACES, GemmShape, packed_in
from gemmetry.traces.operators.grouped import busy_by_owner, distinct_rows
from gemmetry.traces.operators.launchers import enclosing_among
from gemmetry.traces.operators.models import OperatorModel, compute_spec
from gemmetry.traces.tracelens.performance import ModelledCalls

_ADDS = ("aten::addmm", "aten::_addmm_activation", "aten::baddbmm", "aten::addbmm", "aten::addmv")


def gemm_model(name: str, arguments: OperatorArguments, shape: GemmShape) -> OperatorModel:
    """The work of a call of the operator `name`; `shape` comes from its arguments.

    The FLOP are 2·B·M·N·K, plus B·M·N for a bias; the bytes are those of operands and result, each
    counted once, with the result as wide as A, or 2 bytes where A has 1.
    """
    call = Call.decoded(name, arguments)
    places = OPERAND_PLACES.get(name, ())
    strides = tuple(call.stride(place) or None for place in places) or (None, None)
    dtypes = tuple(call.dtype(place) for place in places) or (None, None)
    m, n, k, batch, bias = shape.m, shape.n, shape.k, shape.batch, name.removesuffix("_") in _ADDS
    width = call.width(places[0]) if places else None
    moved = None
    if width is not None:
        result = 2 if width == 1 else width
        held = packed_in(dtypes[0])
        moved = batch * (width * (m * k + k * n) // held + width * n * bias + result * m * n)
    return OperatorModel(
        sheet="GEMM",
        parameters=(
            ("M", m), ("N", n), ("K", k), ("bias", bias), ("stride_A", strides[0]),
            ("stride_B", strides[1]), ("dtype_A_B", None if dtypes == (None, None) else dtypes),
            ("B", batch),
        ),
        flops=batch * m * n * (2 * k + bias),
        bytes=moved,
        spec=compute_spec("matrix", shape.dtype and shape.dtype.partition(":")[0]),
    )  # fmt: skip


def gemm_calls(trace: Trace) -> ModelledCalls:
    """The calls that launched GEMM kernels of `trace` and have recorded sizes, by start."""
    rows, launches = trace.rows, trace.launches
    gpu, operators = rows.gpu, rows.operators
    links = link_gemms(trace)
    linked = (links.shape != NONE) & ~links.inferred & (links.operator != NONE)
    called, first = np.unique(links.operator[linked], return_index=True)
    shape = links.shape[linked][first]
    by_start = np.argsort(operators.start_ns[called], kind="stable")
    called, shape = called[by_start], shape[by_start]
    number = np.full(len(operators.name), NONE, np.int64)
    number[called] = np.arange(len(called))
    of_row = enclosing_among(launches.operator, launches.parent, number)
    inside = np.flatnonzero(of_row != NONE)
    busy = busy_by_owner(of_row[inside], inside, gpu.start_ns, gpu.duration_ns, len(called))
    distinct, which = distinct_rows(operators.name[called], operators.arguments[called], shape)
    numbers: dict[tuple[str, OperatorModel], int] = {}
    model_of = []
    for name, arguments, place in distinct.tolist():
        text = rows.names[name]
        recorded = rows.arguments[arguments] if arguments >= 0 else OperatorArguments()
        model = gemm_model(text, recorded, links.shapes[place])
        model_of.append(numbers.setdefault((text, model), len(numbers)))
    models = np.array(model_of, np.int64)[which] if model_of else shape[:0]
    return ModelledCalls(called, models, tuple(numbers), busy, inside, of_row[inside])


def transposes(trace: Trace, calls: ModelledCalls) -> dict[int, dict[str, Any]]:
    """The parameter ``transpose``, ``(True, False)``, by model, where kernel names specify it."""
    result: dict[int, dict[str, Any]] = {}
    chosen = trace.is_gemm[calls.row]
    row, model = calls.row[chosen], calls.model[calls.call[chosen]]
    for of, name in distinct_rows(model, trace.rows.gpu.name[row])[0].tolist():
        facts = trace.kernel_names[name]
        if facts.kind is KernelKind.GEMM and facts.layout and len(facts.layout) == 2:
            result[of] = {"transpose": repr(tuple(letter == "t" for letter in facts.layout))}
    return result
