"""The operator ``gemmetry::matmul`` of torch, with its gradients and its form for tracing.

It is defined through ``torch.library.Library``; ``torch.library.custom_op`` adds microseconds of
checks to every call.
"""

from __future__ import annotations

from typing import Any

import torch

from gemmetry.dispatcher.arguments import Arguments, check
from gemmetry.dispatcher.call import compute
from gemmetry.domain.operation import EpilogueStep

_LIBRARY = torch.library.Library("gemmetry", "DEF")
_LIBRARY.define(
    "matmul(Tensor a, Tensor b, Tensor? addend=None, Tensor? bias=None, float alpha=1., "
    "float beta=0., str? activation=None) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_NAME = "gemmetry::matmul"


def _run(
    a: torch.Tensor,
    b: torch.Tensor,
    addend: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    activation: str | None = None,
) -> torch.Tensor:
    return compute(Arguments(a, b, addend, bias, None, alpha, beta, activation))


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    addend: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    activation: str | None = None,
) -> torch.Tensor:
    check(Arguments(a, b, addend, bias, None, alpha, beta, activation))
    return a.new_empty((a.shape[0], b.shape[1]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, addend, bias, ctx.alpha, ctx.beta, ctx.activation = inputs
    is_gelu = ctx.activation == EpilogueStep.GELU
    result = output if ctx.activation == EpilogueStep.RELU else None
    # The argument of gelu is computed again: keeping it would double what is kept.
    ctx.save_for_backward(a, b, result, *((addend, bias) if is_gelu else (None, None)))


def _gradients(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b, result, addend, bias = ctx.saved_tensors
    if ctx.activation == EpilogueStep.RELU:
        gradient = torch.where(result > 0, gradient, 0)
    elif ctx.activation == EpilogueStep.GELU:
        before = OPERATOR(a, b, addend, bias, ctx.alpha, ctx.beta, None)
        gradient = torch.ops.aten.gelu_backward(gradient, before)
    wanted = (*ctx.needs_input_grad, False, False)  # Arguments that were left out are not listed.
    return (
        OPERATOR(gradient, b.mT, None, None, ctx.alpha) if wanted[0] else None,
        OPERATOR(a.mT, gradient, None, None, ctx.alpha) if wanted[1] else None,
        gradient * ctx.beta if wanted[2] else None,
        gradient.sum(0) if wanted[3] else None,
        None,
        None,
        None,
    )


_LIBRARY.impl("matmul", _run, "CompositeExplicitAutograd")
torch.library.register_fake(_NAME, _fake, lib=_LIBRARY)
torch.library.register_autograd(_NAME, _gradients, setup_context=_keep, lib=_LIBRARY)

OPERATOR = torch.ops.gemmetry.matmul.default
