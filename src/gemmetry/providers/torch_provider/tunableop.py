"""Results files of PyTorch's TunableOp."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from gemmetry.domain.contracts import TunedDispatch
from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION
from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import BF16, F16, F32, F64, TF32, Layout, Operation, OperationKind

_NAMES = {F32: "float", TF32: "tf32", F64: "double", F16: "Half", BF16: "BFloat16"}
"""PyTorch's names of formats (``BLASTypeName`` and ``TypeName`` in ATen/cuda/tunable)."""
_SOLUTION = "Default"
"""PyTorch's name of what it runs without tuning (``TunableOp.h``)."""


def tuned_text(shapes: Sequence[Sequence[TunedDispatch]], _device: str, _suffix: str) -> str:
    """Torch's default with its time in ms, for each shape; what such a file has, PyTorch does not
    tune again. It can name PyTorch's own solutions only, so that kernels of other providers are not
    in it (see :class:`gemmetry.domain.contracts.TunedFormat`).

    Raises:
        RequestError: TunableOp has a name for none of the shapes.
    """
    rows = []
    for tuned in shapes:
        for one in tuned:
            key = tunable_key(one.dispatch.operation)
            if key is not None and one.dispatch.configuration.name == DEFAULT_CONFIGURATION:
                rows.append(f"{key},{_SOLUTION},{one.median_ns / 1e6:.6g}")
    if not rows:
        raise RequestError(
            "TunableOp's file would be empty: no shape has a time of torch's default in f16, bf16, "
            "f32, tf32 or f64 with a row-major result and without epilogue",
            hint="Tune with --baseline torch, or write another format.",
        )
    return "\n".join([*_validators(), *rows]) + "\n"


def _validators() -> list[str]:
    """The first lines of a file, by which PyTorch recognises files that were made for its version
    and libraries; without them it does not read one (``TuningResultsValidator`` in
    ATen/cuda/tunable/Tunable.cpp: PT_VERSION is mandatory, on ROCm there are more)."""
    import torch

    known = {"PT_VERSION": torch.__version__.partition("+")[0]}
    if hasattr(torch._C, "_cuda_tunableop_get_validators"):  # not in a build for CPUs
        from torch.cuda import tunable

        with suppress(RuntimeError):  # a build for GPUs on a machine without one
            known = dict(tunable.get_validators())
    return [f"Validator,{key},{value}" for key, value in known.items()]


def tunable_key(operation: Operation) -> str | None:
    """``GemmTunableOp_BFloat16_TN,tn_…`` (``GemmParams`` in ATen/cuda/tunable/GemmCommon.h); None
    where TunableOp has another name, or none.

    BLAS is column-major: a row-major C is the product of B and A, transposed.
    """
    s = operation.signature
    is_plain = s.kind is OperationKind.MATMUL and not s.epilogue and s.alpha == 1 and s.beta == 0
    formats = {F32 if one is TF32 else one for one in (s.lhs, s.rhs, s.result)}
    if not is_plain or len(formats) > 1 or s.lhs not in _NAMES or s.result_layout is Layout.COLUMN:
        return None
    m, n, k, _ = operation.matmul_shape
    b_is_row, a_is_row = s.rhs_layout is Layout.ROW, s.lhs_layout is Layout.ROW
    letters = ("n" if b_is_row else "t") + ("n" if a_is_row else "t")
    ldb, lda = n if b_is_row else k, k if a_is_row else m
    name = f"GemmTunableOp_{_NAMES[s.lhs]}_{letters.upper()}"
    return f"{name},{letters}_{n}_{m}_{k}_ld_{ldb}_{lda}_{n}"
