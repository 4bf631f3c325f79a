"""The same configuration as a tuning spec: a transform library that annotates matching
contractions, given to ``iree-compile --iree-codegen-tuning-spec-path``, without an edit of the
input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gemmetry.domain.contracts import TunedDispatch
from gemmetry.domain.dispatch import Dispatch, TargetKind
from gemmetry.domain.errors import RequestError, UnsupportedError
from gemmetry.domain.operation import OperationKind
from gemmetry.providers.base import write_atomically
from gemmetry.providers.iree_provider.batches import operation_folder
from gemmetry.providers.iree_provider.linalg import (
    MLIR_TYPES,
    contraction_indexing_maps,
    contraction_types,
)
from gemmetry.providers.iree_provider.tiles import loop_sizes, lowering_of

_LIBRARY = """\
// Tuning spec: {name}
{left_out}module @{name}_spec attributes {{
  transform.with_named_sequence, iree_codegen.tuning_spec_with_default_entrypoint
}} {{
  transform.named_sequence @annotate(
      %op: !transform.any_op {{transform.readonly}},
      %info: !transform.any_param {{transform.readonly}}) {{
    transform.annotate %op "compilation_info" = %info
        : !transform.any_op, !transform.any_param
    transform.yield
  }}

{matchers}
  transform.named_sequence @__kernel_config(
      %op: !transform.any_op {{transform.consumed}}) -> !transform.any_op
      attributes {{iree_codegen.tuning_spec_entrypoint}} {{
    %done = transform.foreach_match in %op {pairs}
        : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }}
}}
"""

_MATCHER = """\
  transform.named_sequence @{match}(
      %op: !transform.any_op {{transform.readonly}})
      -> (!transform.any_op, !transform.any_param) {{
    %batch, %m, %n, %k = transform.iree.match.contraction %op,
        lhs_type = {lhs}, rhs_type = {rhs}, output_type = {output},
        indexing_maps = [{maps}]
        : !transform.any_op -> !transform.param<i64>
{sizes}
    %info = transform.param.constant {info}
        -> !transform.any_param
    transform.yield %op, %info : !transform.any_op, !transform.any_param
  }}
"""


def tuning_spec(dispatch: Dispatch) -> str:
    """The spec's text; it applies to contractions of exactly this size, types and layout.

    Raises:
        UnsupportedError: the spec language cannot match the operation, the configuration is not an
            attribute, or the target's backend does not read specs.
    """
    return _library(dispatch.name, {"match": _matcher(dispatch, "match")})


def tuned_text(shapes: Sequence[Sequence[TunedDispatch]], _device: str, _suffix: str) -> str:
    """One spec with, of each shape, the first dispatch that a spec can describe (see
    :class:`gemmetry.domain.contracts.TunedFormat`); a comment lists shapes without one.

    Raises:
        RequestError: none is left.
    """
    matchers: dict[str, str] = {}
    reasons: list[str] = []
    for tuned in shapes:
        refused: list[str] = []
        label = f"match_{len(matchers)}"
        for one in tuned:
            try:
                matchers[label] = _matcher(one.dispatch, label)
                break
            except UnsupportedError as error:
                refused.append(error.message)
        else:
            reasons += refused[:1]
    if not matchers:
        raise RequestError(
            "the tuning spec would be empty: " + (reasons[0] if reasons else "nothing was found"),
            hint="Search what a spec can describe: --dispatches 'configuration=tile_config_*'.",
        )
    return _library("gemmetry", matchers, reasons)


def _library(name: str, matchers: Mapping[str, str], left_out: Sequence[str] = ()) -> str:
    pairs = ", ".join(f"@{label} -> @annotate" for label in matchers)
    return _LIBRARY.format(
        name=name,
        left_out="".join(f"// Left out: {reason}\n" for reason in left_out),
        matchers="\n".join(matchers.values()),
        pairs=pairs,
    )


def _matcher(dispatch: Dispatch, label: str) -> str:
    """
    Raises:
        UnsupportedError: see :func:`tuning_spec`.
    """
    operation = dispatch.operation
    info = lowering_of(dispatch).compilation_info
    if operation.kind is OperationKind.CONV2D or info is None:
        what = "convolutions" if info is not None else "configurations without attributes"
        raise UnsupportedError(
            f"{dispatch.name}: no tuning spec for {what}",
            hint="Specs are written for matmuls with a tile_config_... configuration.",
        )
    if dispatch.target.kind is TargetKind.CUDA:
        raise UnsupportedError(
            f"{dispatch.name}: IREE 3.13 passes tuning specs only to its CPU and ROCm backends",
            hint="On CUDA, use the attribute in the generated .mlir file.",
        )
    m, n, k = loop_sizes(operation)
    sizes = {"m": [m], "n": [n], "k": [k]}
    if operation.kind is OperationKind.BATCH_MATMUL:
        sizes["batch"] = [operation.matmul_shape.batch]
    elif operation.kind is OperationKind.MATMUL_SPLITK:
        sizes["batch"] = [operation.signature.split_k_slices]
    lhs, rhs = contraction_types(operation)
    return _MATCHER.format(
        match=label,
        lhs=lhs,
        rhs=rhs,
        output=MLIR_TYPES[operation.signature.accumulator.name],
        maps=", ".join(contraction_indexing_maps(operation)),
        sizes="\n".join(
            f"    transform.iree.match.dims_equal %{dim}, {size} : !transform.param<i64>"
            for dim, size in sizes.items()
        ),
        info=info,
    )


def write_tuning_spec(dispatch: Dispatch, generated: Path) -> Path:
    """Write ``<operation>_<configuration>_spec.mlir`` next to the operation's source.

    Raises:
        UnsupportedError: see :func:`tuning_spec`. StorageError: the folder cannot be written.
    """
    folder = operation_folder(generated, dispatch.operation)
    path = folder / f"{dispatch.name}_spec.mlir"
    return write_atomically(path, tuning_spec(dispatch).encode())


def write_tuning_specs(dispatches: Iterable[Dispatch], generated: Path) -> list[Path]:
    """Call :func:`write_tuning_spec` for the dispatches that have one. Returns the files
    written."""
    paths = []
    for dispatch in dispatches:
        try:
            paths.append(write_tuning_spec(dispatch, generated))
        except UnsupportedError:
            continue  # `default`, convolutions, CUDA: there is nothing to write
    return paths
