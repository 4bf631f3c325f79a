"""``gemmetry.matmul``: checks, chooses and launches; a call like an earlier one only looks up what
was chosen then.

The operator ``gemmetry::matmul`` of torch, with its gradients and its form for tracing.

It is defined through ``torch.library.Library``; ``torch.library.custom_op`` adds microseconds of
checks to every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import EpilogueStep
from gemmetry.tuning.dispatcher import runtime
from gemmetry.tuning.dispatcher.runtime import Arguments, check

_KEPT = 4096
"""Kinds of calls whose choice is kept; a program that makes more chooses anew."""

_plain: dict[tuple[object, ...], runtime.Function] = {}
"""Products of two matrices and nothing else, by what is looked up in a hurry."""
_others: dict[tuple[object, ...], runtime.Function] = {}

_is_compiling = torch.compiler.is_compiling
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_transforms: Callable[[], bool] = torch._C._are_functorch_transforms_active


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    addend: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """activation(alpha · a @ b + beta · addend + bias), by the fastest verified kernel that the
    table of the device knows, else by torch (cuBLAS).

    Differentiable, and usable within ``torch.compile``. autocast does not change its formats.

    Args:
        a: (…, M, K), bf16, f16, f32 or f64.
        b: (K, N), in the same format; ``weight.T`` of a linear layer.
        out: (M, N), filled and returned; it must not overlap an input.
        addend: (M, N), needed where `beta` is not 0.
        bias: (N,), added to every row.
        activation: ``relu`` or ``gelu`` (with the exact error function).

    Returns:
        (…, M, N), row-major unless `out` is given.

    Raises:
        RequestError: an input is no tensor; shapes, formats, devices or factors do not fit; or
            `out` overlaps an input.
    """
    if _is_compiling():
        return _by_operator(Arguments(a, b, addend, bias, out, alpha, beta, activation))
    if (
        out is None
        and addend is None
        and bias is None
        and activation is None
        and alpha == 1
        and beta == 0
        and type(a) in _TENSORS
        and type(b) in _TENSORS
        and not ((a.requires_grad or b.requires_grad) and torch.is_grad_enabled())
        and not _modes()
        and not _transforms()
    ):
        key = (a.shape, b.shape, a.stride(), b.stride(), a.dtype, b.dtype, a.device, b.device)
        function = _plain.get(key)
        if function is not None:
            return function(Arguments(a, b))
        if a.dim() == 2:
            call = Arguments(a, b)
            check(call)
            return _chosen(_plain, key, call)(call)
    return _general(Arguments(a, b, addend, bias, out, alpha, beta, activation))


def compute(call: Arguments) -> torch.Tensor:
    """Compute a call on plain tensors without gradients.

    Raises:
        RequestError: as :func:`matmul`.
    """
    key = call.key
    function = _others.get(key)
    # Whether tensors overlap depends on their addresses, which are not in the key.
    if function is None or call.out is not None:
        check(call)
    return (function or _chosen(_others, key, call))(call)


def explain(a: torch.Tensor, b: torch.Tensor, **options: Any) -> str:
    """What :func:`matmul` chooses for these arguments, and why, as a sentence."""
    call = Arguments(a, b, **options)
    check(call)
    _, choice = runtime.dispatcher_of(a.device).function(call)
    return f"{choice.candidate}: {choice.step}, {choice.reason}"


def _chosen(
    kept: dict[tuple[object, ...], runtime.Function], key: tuple[object, ...], call: Arguments
) -> runtime.Function:
    dispatcher = runtime.dispatcher_of(call.a.device)
    function, _ = dispatcher.function(call)
    if not runtime.is_capturing(dispatcher.target):
        if len(kept) >= _KEPT:
            kept.clear()
        kept[key] = function
    return function


def _general(call: Arguments) -> torch.Tensor:
    """Everything that is not a plain product of plain tensors."""
    for name, given in call.tensors:
        if not isinstance(given, torch.Tensor):
            raise RequestError(
                f"matmul: {name} is of {type(given).__module__}.{type(given).__qualname__}, "
                "and not a tensor of torch",
                hint="torch.from_numpy and torch.as_tensor make one, without copying where they "
                "can.",
            )
    a = call.a
    if a.dim() > 2 and call.b.dim() == 2:
        if call.out is not None or call.addend is not None:
            raise RequestError(
                f"a has {a.dim()} dimensions, which out and addend cannot have",
                hint="Flatten them: a.flatten(0, -2).",
            )
        flat = call._replace(a=a.reshape(-1, a.shape[-1]))
        return _general(flat).reshape(*a.shape[:-1], call.b.shape[-1])
    tensors = [tensor for _, tensor in call.tensors]
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    is_plain = all(type(tensor) in _TENSORS for tensor in tensors)
    if is_plain and not needs_gradient and not _modes() and not _transforms():
        return compute(call)
    return _by_operator(call)


def _by_operator(call: Arguments) -> torch.Tensor:
    """Through torch's dispatcher, which differentiates, traces and transforms."""

    a, b, addend, bias, out, alpha, beta, activation = call
    lead = a.shape[:-1]
    is_flat = a.dim() == 2 or b.dim() != 2
    flat = a if is_flat else a.reshape(-1, a.shape[-1])
    result: torch.Tensor = OPERATOR(flat, b, addend, bias, alpha, beta, activation)
    if not is_flat:
        result = result.reshape(*lead, b.shape[-1])
    if out is None:
        return result
    if torch.is_grad_enabled() and any(tensor.requires_grad for _, tensor in call.tensors):
        raise RequestError(
            "out= cannot be used where gradients are needed",
            hint="Leave it out, or call within torch.no_grad().",
        )
    return out.copy_(result)


def _forget() -> None:
    _plain.clear()
    _others.clear()


runtime.listeners.append(_forget)


_LIBRARY = torch.library.Library("gemmetry", "DEF")
_LIBRARY.define(
    "matmul(Tensor a, Tensor b, Tensor? addend=None, Tensor? bias=None, float alpha=1., "
    "float beta=0., str? activation=None) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_NAME = "gemmetry::matmul"


def _call(
    a: torch.Tensor,
    b: torch.Tensor,
    addend: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    activation: str | None = None,
) -> Arguments:
    """The arguments of the operator, of which torch leaves out those that are the default."""
    return Arguments(a, b, addend, bias, None, alpha, beta, activation)


def _run(*given: Any) -> torch.Tensor:
    return compute(_call(*given))


def _fake(*given: Any) -> torch.Tensor:
    call = _call(*given)
    check(call)
    return call.a.new_empty((call.a.shape[0], call.b.shape[1]))


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
        *(None,) * 3,
    )


_LIBRARY.impl("matmul", _run, "CompositeExplicitAutograd")
torch.library.register_fake(_NAME, _fake, lib=_LIBRARY)
torch.library.register_autograd(_NAME, _gradients, setup_context=_keep, lib=_LIBRARY)

OPERATOR = torch.ops.gemmetry.matmul.default
