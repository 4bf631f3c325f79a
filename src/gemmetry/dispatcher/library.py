"""Products by torch's own calls: what is computed where no kernel is chosen, and what verified
kernels are compared with."""

from __future__ import annotations

import torch

from gemmetry.dispatcher.arguments import Arguments
from gemmetry.domain.operation import EpilogueStep


def compute(call: Arguments) -> torch.Tensor:
    """activation(alpha · a @ b + beta · addend + bias) by torch."""
    a, b, out = call.a, call.b, call.out
    if call.addend is not None:
        result = torch.addmm(call.addend, a, b, alpha=call.alpha, beta=call.beta, out=out)
        if call.bias is not None:
            result.add_(call.bias)
    elif call.bias is not None:
        result = torch.addmm(call.bias, a, b, alpha=call.alpha, out=out)
    elif call.alpha != 1:
        # With beta 0 the first argument is not read.
        unread = a.new_empty((a.shape[0], b.shape[1])) if out is None else out
        result = torch.addmm(unread, a, b, alpha=call.alpha, beta=0, out=out)
    else:
        result = torch.mm(a, b) if out is None else torch.mm(a, b, out=out)
    if call.activation == EpilogueStep.RELU:
        result.relu_()
    elif call.activation == EpilogueStep.GELU:
        torch.ops.aten.gelu_(result)
    return result


class CublasLt:
    """The product of torch by cuBLASLt, whatever library the caller prefers; the preference is the
    process's, and is put back."""

    def __init__(self) -> None:
        self._lt = torch._C._BlasBackend.Cublaslt

    def __call__(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        preferred = torch._C._get_blas_preferred_backend()
        if preferred == self._lt:
            return torch.mm(a, b)
        torch._C._set_blas_preferred_backend(self._lt)
        try:
            return torch.mm(a, b)
        finally:
            torch._C._set_blas_preferred_backend(preferred)
