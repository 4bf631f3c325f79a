"""Checks the tensors of a call, and finds the operation that they make up.

Products by torch's own calls: what is computed where no kernel is chosen, and what verified
kernels are compared with.

Turns choices into functions that run: one dispatcher for each device, made when the device is
first used.
"""

from __future__ import annotations

import math
import os
import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import (
    DispatchError,
    GemmetryError,
    RequestError,
    UnknownNameError,
    UnsupportedError,
)
from gemmetry.domain.files import user_cache
from gemmetry.domain.operation import (
    BF16,
    F16,
    EpilogueStep,
    Layout,
    MatmulShape,
    Operation,
    OperationKind,
    Signature,
)
from gemmetry.hardware.detect import nvidia_gpus
from gemmetry.hardware.torch_device import TORCH_ERRORS, TorchDevice, gpu_targets, open_device
from gemmetry.measurement.launches import back_to_back
from gemmetry.providers.base import baseline_names, builtin_names
from gemmetry.providers.registry import load_provider
from gemmetry.statistics.intervals import median
from gemmetry.tuning.dispatcher.choosing import Choice, ChoiceStep, Chooser, Trial
from gemmetry.tuning.dispatcher.table import (
    CUBLAS,
    DispatchTable,
    MatmulProblem,
    candidate_of,
    dispatch_of,
    operation_of,
    parts_of,
    problem_of,
    read_table,
    refusals,
    shipped_table,
    version_changes,
    why_refused,
)
from gemmetry.tuning.search import proposed

ACTIVATIONS = (str(EpilogueStep.RELU), str(EpilogueStep.GELU))
_FORMATS = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_DISPATCHED = {torch.bfloat16: BF16, torch.float16: F16}
"""Formats that kernels are chosen for. Products of f32 are left to torch: its switches, which
belong to the caller, decide whether they are computed in tf32."""
LARGEST_TENSOR = 2**31
"""Elements from which on kernels, which count in 32 bits, are not used."""


class Arguments(NamedTuple):
    """The arguments of a call, matrices only."""

    a: torch.Tensor
    b: torch.Tensor
    addend: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    out: torch.Tensor | None = None
    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None

    @property
    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The inputs that were given, by name."""
        for name in ("a", "b", "addend", "bias"):
            tensor = getattr(self, name)
            if tensor is not None:
                yield name, tensor

    @property
    def is_plain(self) -> bool:
        """Whether the call is the product of two matrices and nothing else, into a new one."""
        return self[2:] == (None, None, None, 1, 0, None)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for calls that the same function computes."""
        found: list[object] = [self.alpha, self.beta, self.activation]
        for tensor in self[:5]:
            if tensor is None:
                found.append(None)
            else:
                found += [tensor.shape, tensor.stride(), tensor.dtype, tensor.device]
        return tuple(found)


def check(call: Arguments) -> None:
    """Refuse a call that has no meaning.

    Raises:
        RequestError: shapes, formats or devices do not fit, or `out` overlaps an input.
    """
    a, b = call.a, call.b
    if a.dim() != 2 or b.dim() != 2:
        raise RequestError(
            f"matmul takes matrices, not tensors of {a.dim()} and {b.dim()} dimensions",
            hint="Give b as a matrix; a may have leading dimensions. Batches: torch.bmm.",
        )
    if a.shape[1] != b.shape[0]:
        raise RequestError(
            f"a is {_size(a)} and b is {_size(b)}: the columns of a are not the rows of b",
            hint="Did you mean b.mT?",
        )
    if a.dtype not in _FORMATS:
        raise RequestError(
            f"matmul takes {', '.join(map(_plain, _FORMATS))}, not {_plain(a.dtype)}",
            hint="For fp8 use torch._scaled_mm, for int8 torch._int_mm.",
        )
    m, n = a.shape[0], b.shape[1]
    shapes = {"a": a.shape, "b": b.shape, "addend": (m, n), "bias": (n,), "out": (m, n)}
    for name, tensor in (*call.tensors, *([] if call.out is None else [("out", call.out)])):
        if tensor.dtype != a.dtype:
            raise RequestError(
                f"{name} is {_plain(tensor.dtype)} and a is {_plain(a.dtype)}",
                hint=f"Convert one of them: {name}.to(a.dtype).",
            )
        if tensor.device != a.device:
            raise RequestError(
                f"{name} is on {tensor.device} and a is on {a.device}",
                hint=f"Move one of them: {name}.to(a.device).",
            )
        if tuple(tensor.shape) != tuple(shapes[name]):
            raise RequestError(
                f"{name} is {_size(tensor)}, not {'x'.join(map(str, shapes[name]))}",
                hint="The result is as high as a and as wide as b; bias has its width.",
            )
    _check_numbers(call)
    if call.out is not None:
        _check_output(call, call.out)


def _check_numbers(call: Arguments) -> None:
    if call.activation is not None and call.activation not in ACTIVATIONS:
        raise UnknownNameError("activation", call.activation, ACTIVATIONS)
    if not (math.isfinite(call.alpha) and math.isfinite(call.beta)):
        raise RequestError(
            f"alpha {call.alpha} and beta {call.beta} must be finite", hint="Check the factors."
        )
    if (call.beta != 0) != (call.addend is not None):
        what = f"beta is {call.beta:g}, but there is no addend"
        if call.addend is not None:
            what = "beta is 0, so addend would be ignored"
        raise RequestError(what, hint="Give both beta and addend, or neither.")


def _check_output(call: Arguments, out: torch.Tensor) -> None:
    if any(stride == 0 and size > 1 for stride, size in zip(out.stride(), out.shape, strict=True)):
        raise RequestError(
            "several elements of out share one place in memory",
            hint="Give a tensor of its own, not one that expand() made.",
        )
    for name, tensor in call.tensors:
        if overlaps(out, tensor):
            raise RequestError(
                f"out overlaps {name} in memory, which would be read after it was overwritten",
                hint="Give a tensor of its own, or leave out= out.",
            )


def overlaps(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have a byte in common. Rows whose elements are not contiguous count as
    if they were."""
    if left.numel() == 0 or right.numel() == 0 or left.device != right.device:
        return False
    first, second = _rows(left), _rows(right)
    if first[:, 1].max() <= second[:, 0].min() or second[:, 1].max() <= first[:, 0].min():
        return False
    # Of the rows in the order of their addresses, one that begins before an earlier one of the
    # other tensor has ended overlaps it.
    ends = (np.maximum.accumulate(rows[:, 1]) for rows in (first, second))
    for rows, others, other_ends in zip((first, second), (second, first),
                                        reversed(list(ends)), strict=True):  # fmt: skip
        before = np.searchsorted(others[:, 0], rows[:, 0], side="right")
        has_any = before > 0
        if (other_ends[before[has_any] - 1] > rows[has_any, 0]).any():
            return True
    return False


def _rows(tensor: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """First and last address (exclusive) of each contiguous stretch, in order; (count, 2)."""
    axes = sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True)
    offsets, span = np.zeros(1, np.int64), 1
    if axes:
        stride, size = axes[-1]
        span = stride * (size - 1) + 1
    for stride, size in axes[:-1]:
        offsets = np.add.outer(offsets, np.arange(size, dtype=np.int64) * stride).reshape(-1)
    begin = tensor.data_ptr() + np.sort(offsets) * tensor.element_size()
    return np.stack([begin, begin + span * tensor.element_size()], axis=1)


def problem_of_call(call: Arguments) -> MatmulProblem | None:
    """The problem that kernels are chosen for; None for a call that is left to torch: empty or
    huge matrices, other formats, matrices that are not packed."""
    a, b = call.a, call.b
    dtype = _DISPATCHED.get(a.dtype)
    m, k = a.shape
    n = b.shape[1]
    if dtype is None or a.is_meta:
        return None
    if min(m, n, k) == 0 or max(m * k, n * k, m * n) >= LARGEST_TENSOR:
        return None
    lhs, rhs = layout_of(a), layout_of(b, Layout.COLUMN)
    result = Layout.ROW if call.out is None else layout_of(call.out)
    if call.addend is not None and not is_stored(call.addend, result):
        return None
    is_turned = call.bias is not None and not call.bias.is_contiguous()
    if lhs is None or rhs is None or result is None or is_turned:
        return None
    steps = [EpilogueStep.BIAS] if call.bias is not None else []
    if call.activation is not None:
        steps.append(EpilogueStep(call.activation))
    signature = Signature(
        OperationKind.MATMUL, dtype, dtype, dtype, lhs_layout=lhs, rhs_layout=rhs,
        result_layout=result, alpha=call.alpha, beta=call.beta, epilogue=tuple(steps),
    )  # fmt: skip
    return problem_of(Operation(signature, MatmulShape(m, n, k)))


def layout_of(matrix: torch.Tensor, preferred: Layout = Layout.ROW) -> Layout | None:
    """How a packed matrix is stored, `preferred` for a vector, which is stored both ways; None for
    one that is not packed."""
    order = (preferred, Layout.ROW, Layout.COLUMN)
    return next((layout for layout in order if is_stored(matrix, layout)), None)


def is_stored(matrix: torch.Tensor, layout: Layout | None) -> bool:
    """Whether a matrix is packed in that layout."""
    return layout is not None and (matrix.mT if layout is Layout.COLUMN else matrix).is_contiguous()


def _size(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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


def by_cublaslt(call: Arguments) -> torch.Tensor:
    """The product of torch by cuBLASLt, whatever library the caller prefers; the preference is the
    process's, and is put back."""
    preferred, lt = torch._C._get_blas_preferred_backend(), torch._C._BlasBackend.Cublaslt
    if preferred == lt:
        return torch.mm(call.a, call.b)
    torch._C._set_blas_preferred_backend(lt)
    try:
        return torch.mm(call.a, call.b)
    finally:
        torch._C._set_blas_preferred_backend(preferred)


TABLE_VARIABLE = "GEMMETRY_DISPATCHER_TABLE"
"""Environment variable with the path of a table that replaces the one that comes with gemmetry."""

Function = Callable[[Arguments], torch.Tensor]

_ALIGNMENT = 16
"""Bytes: what kernels require of addresses (PTX ISA, ld.v4 and tensormap)."""
_CUBLASLT = "torch:cublaslt"
_TENSORS = {"lhs": "a", "rhs": "b", "addend": "addend", "bias": "bias"}
"""Role of an operation's input -> argument of a call."""
_MOST_EXECUTABLES = 4096
_MOST_WORKSPACE_BYTES = 2**30
"""What a program that multiplies ever new sizes keeps; beyond that, it chooses anew."""


class DispatchWarning(UserWarning):
    """A table, or something in it, cannot be used; products are computed by other means."""


@cache
def provider_of(name: str) -> Provider:
    """The provider called `name`, created once.

    Raises:
        GemmetryError: there is none, or it cannot be created.
    """
    return load_provider(name)


class Dispatcher:
    """Chooses and builds for one device, and keeps what it built."""

    def __init__(
        self, target: Target, table: DispatchTable | None, *, has_trials: bool = False
    ) -> None:
        """
        Args:
            table: None: everything is computed by torch.
            has_trials: measure candidates at the first call with a shape that is not tuned.
        """
        self.target, self._has_trials = target, has_trials
        self._lock = threading.RLock()
        self._fresh: dict[tuple[str, str], bool] = {}
        self._built: dict[tuple[str, MatmulProblem, int], Executable | None] = {}
        self._workspace_bytes = 0
        self.chooser: Chooser | None = None
        if table is not None:
            reason = why_untrusted(table, target)
            if reason and table.device == (target.product or target.name):
                _warn(
                    f"the dispatcher's table of {table.device} was measured with other versions "
                    f"({reason}); kernels are ranked by prediction. Make one with "
                    "`gemmetry dispatcher tune`."
                )
            self.chooser = Chooser(table, self._permits, trusts_times=not reason)

    def function(self, call: Arguments) -> tuple[Function, Choice]:
        """What computes calls like `call`, which is a checked one."""
        problem = problem_of_call(call)
        if self.chooser is None or problem is None or is_capturing(self.target):
            why = "there is no table" if self.chooser is None else "kernels do not take these"
            return compute, Choice(CUBLAS, ChoiceStep.CUBLAS, why)
        with self._lock:
            if self._has_trials and not self.chooser.measured(problem) and self._can_try(call):
                self.chooser.learn(self.tried(self.chooser, problem, call).guessed())
            for choice in self.chooser.choices(problem):
                if choice.candidate == CUBLAS:
                    return compute, choice
                found = self._usable(problem, choice.candidate, call)
                if found is not None:
                    return found, choice
        raise AssertionError("cuBLAS is always the last choice")

    def executable(self, problem: MatmulProblem, candidate: str, stream: int) -> Executable | None:
        """The executable of a candidate for one stream, whose launches follow one another: those
        of two streams must not share a workspace. None if it cannot be built here."""
        key = (candidate, problem, stream)
        with self._lock:
            if key not in self._built:
                found = self._build(problem, candidate)
                self._workspace_bytes += _workspace_bytes(found) or 0
                full = self._workspace_bytes > _MOST_WORKSPACE_BYTES
                if full or len(self._built) >= _MOST_EXECUTABLES:
                    self._built.clear()
                    self._workspace_bytes = _workspace_bytes(found) or 0
                    _notify()
                self._built[key] = found
            return self._built[key]

    def _can_try(self, call: Arguments) -> bool:
        """Whether the kernels themselves would compute `call`, and choices may depend on times."""
        is_here = not self.target.is_gpu or _current_device() == (self.target.index or 0)
        return is_here and not (_is_unaligned(call) or torch.are_deterministic_algorithms_enabled())

    def tried(
        self, chooser: Chooser, problem: MatmulProblem, call: Arguments, longer: int = 1
    ) -> Trial:
        """The contenders for a problem, timed on the tensors of `call`."""
        names = chooser.contenders(problem, self._proposals(chooser, problem))
        try:
            if names:
                return self.timed(problem, names, call._replace(out=None), longer)
        except (DispatchError, *TORCH_ERRORS) as error:
            _warn(f"candidates for {problem.name} cannot be tried: {error}")
        return Trial(problem, {})

    def timed(
        self, problem: MatmulProblem, names: Iterable[str], call: Arguments, longer: int = 1
    ) -> Trial:
        """cuBLAS and candidates at a problem, timed in turns (:func:`turns_ns`), without those that
        cannot be built. A candidate whose results differ from torch's, for `call` or with other
        contents, is not used any more.

        Raises:
            DispatchError: the device failed; so may torch.
        """
        functions: dict[str, Function] = {CUBLAS: compute}
        contents = (
            (whole_numbers(call), call.is_plain),
            (normal_numbers(call), False),
            (call, False),
        )
        expected = [(one, compute(one), is_exact) for one, is_exact in contents]
        for candidate in names:
            function = self._usable(problem, candidate, call) if candidate != CUBLAS else None
            if function is None:
                continue
            if all(agrees(function, *one) for one in expected):
                functions[candidate] = function
            else:
                self._fresh[problem.signature, candidate] = False
                _warn(f"{candidate} differs from torch at {problem.name} and is not used")
        return Trial(problem, turns_ns(functions, call, self.target, longer))

    def _proposals(self, chooser: Chooser, problem: MatmulProblem) -> Iterator[str]:
        """What libraries and the providers of the table's candidates propose for a problem."""
        operation = operation_of(problem)
        verified = [parts_of(one.candidate)[0] for one in chooser.table.certificates]
        for name in dict.fromkeys([*baseline_names(builtin_names()), *verified]):
            try:
                provider = provider_of(name)
                is_here = provider.available() is None
                found = proposed(provider, operation, self.target) if is_here else []
            except GemmetryError:
                continue
            yield from (candidate_of(name, one.name) for one in found)

    def _usable(self, problem: MatmulProblem, candidate: str, call: Arguments) -> Function | None:
        """A function that has computed `call` once; None if the candidate fails."""
        if candidate == _CUBLASLT:
            is_possible = call.is_plain and self.target.kind is TargetKind.CUDA
            return by_cublaslt if is_possible else None
        if self.executable(problem, candidate, _stream(self.target)) is None:
            return None
        function = kernel_function(self, problem, candidate)
        try:
            function(call)
        except (DispatchError, *TORCH_ERRORS) as error:
            _warn(f"{candidate} does not run {problem.name}, another one does: {error}")
            return None
        return function

    def _build(self, problem: MatmulProblem, candidate: str) -> Executable | None:
        try:
            found = dispatch_of(problem.name, candidate, self.target.name, provider_of)
            dispatch = replace(found, target=self.target)
            folder = user_cache("dispatcher") / "generated"
            built = provider_of(dispatch.provider).build(dispatch, Workspace(generated=folder))
            return built if isinstance(built.device, TorchDevice) else None  # It takes no tensors.
        except UnsupportedError:
            return None  # Not every size suits every configuration.
        except (GemmetryError, *TORCH_ERRORS) as error:
            line = str(error).splitlines()[0]
            _warn(f"{candidate} cannot be built for {problem.name}, another one is used: {line}")
            return None

    def _permits(self, problem: MatmulProblem, candidate: str) -> bool:
        """Whether the provider works here, supports the operation, and still has the sources that
        were verified."""
        key = (problem.signature, candidate)
        if candidate == _CUBLASLT:
            return self.target.kind is TargetKind.CUDA and self._fresh.get(key, True)
        try:
            provider, operation = provider_of(parts_of(candidate)[0]), operation_of(problem)
            if provider.available() or provider.supports(operation, self.target):
                return False
        except GemmetryError:
            return False
        if key not in self._fresh:
            assert self.chooser is not None
            certificate = self.chooser.table.certified[key]
            reason = why_refused(certificate, self.target.name, provider_of)
            self._fresh[key] = not reason
            if reason:
                _warn(
                    f"{candidate} is not what the dispatcher's table verified ({reason}) and is "
                    "not used. Verify it again with `gemmetry dispatcher tune`."
                )
        return self._fresh[key]


_TRIAL_NS = 30e6
"""How long the launches of a trial take, unless few rounds take longer."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 33
_MOST_COPIES = 8
"""Of a and b in a trial."""
LONGER = 5
"""How many times as long as at a first call launches take turns where a table is made or judged."""
_ROUNDINGS = 8
"""Steps of the result's format by which results of a trial may differ: torch's own products round
partial sums to the format where they are split."""
_WHOLE_TERMS = 1024
"""Products of ±1 and 0 of which a result of the exact check is the sum: with a standard deviation
below 32, no partial sum leaves the whole numbers that bf16 holds, up to 256."""
_MARGIN = 128
"""Elements around a result in which nothing may be written."""


def turns_ns(
    functions: Mapping[str, Function], call: Arguments, target: Target, longer: int = 1
) -> dict[str, list[float]]:
    """The time of each function in each turn, in ns.

    Functions take turns in a random order, on several copies of a and b where caches would hold
    one. On a GPU a small kernel runs ahead of each launch, and its own median is subtracted: the
    measurement's launches are apart, too.

    Args:
        longer: how many times as long as usual they take turns.

    Raises:
        DispatchError: the device failed.
    """
    device = open_device(target)
    copies = 2 * device.last_level_cache_bytes // max(call.a.nbytes + call.b.nbytes, 1)
    calls = [call] + [
        call._replace(a=call.a.clone(), b=call.b.clone())
        for _ in range(min(copies, _MOST_COPIES - 1))
    ]
    neighbour = device.neighbour()
    once, _ = device.time_calls([partial(function, call) for function in functions.values()])
    rounds = int(longer * min(max(_TRIAL_NS / sum(once), _FEWEST_ROUNDS), _MOST_ROUNDS))
    order, launches, chance = [], [], random.Random(0)
    for turn in range(rounds):
        for place, name in enumerate(chance.sample([*functions], len(functions))):
            launch = partial(functions[name], calls[(turn + place) % len(calls)])
            order.append(name)
            launches.append(back_to_back([neighbour, launch]) if neighbour else launch)
        if neighbour:
            order.append("")
            launches.append(neighbour)
    times, _ = device.time_calls(launches)
    own: dict[str, list[float]] = {}
    for name, ns in zip(order, times, strict=True):
        own.setdefault(name, []).append(ns)
    around = median(own.pop("", [0.0]))
    return {name: [max(ns - around, 1.0) for ns in found] for name, found in own.items()}


def whole_numbers(call: Arguments) -> Arguments:
    """`call` with whole numbers, such that partial sums of a product of matrices are exact."""
    made, chance = _empty_like(call)
    for _, tensor in made.tensors:
        tensor.random_(-1, 2, generator=chance)
    made.a.random_(0, 2, generator=chance).mul_(2).sub_(1)
    share = _WHOLE_TERMS / call.a.shape[1]
    if share < 1:
        made.b.mul_(torch.empty_like(made.b).bernoulli_(share, generator=chance))
    return made


def normal_numbers(call: Arguments) -> Arguments:
    """`call` with normal numbers, and three elements of b that are not finite."""
    made, chance = _empty_like(call)
    for _, tensor in made.tensors:
        tensor.normal_(generator=chance)
    strange = made.b.new_tensor([math.nan, math.inf, -math.inf])
    places = (
        torch.randint(size, strange.shape, generator=chance, device=strange.device)
        for size in made.b.shape
    )
    made.b[tuple(places)] = strange
    return made


def _empty_like(call: Arguments) -> tuple[Arguments, torch.Generator]:
    tensors = {name: torch.empty_like(tensor) for name, tensor in call.tensors}
    return call._replace(**tensors), torch.Generator(call.a.device).manual_seed(0)


def agrees(function: Function, call: Arguments, wanted: torch.Tensor, is_exact: bool) -> bool:
    """Whether a function's result is that of torch, up to roundings unless `is_exact`, and nothing
    around the result is written."""
    memory = wanted.new_full((wanted.numel() + 2 * _MARGIN,), math.nan)
    out = memory[_MARGIN:-_MARGIN].view(wanted.shape)
    result = function(call._replace(out=out))
    margins = torch.stack([memory[:_MARGIN], memory[-_MARGIN:]])
    is_right = torch.equal(result, wanted) if is_exact else agree(result, wanted)
    return is_right and bool(margins.isnan().all())


def agree(result: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether two results of one call differ by roundings only, of an element or of their root mean
    square."""
    step = _ROUNDINGS * torch.finfo(wanted.dtype).eps
    got, known = result.float(), wanted.float()
    finite = known[known.isfinite()]
    norm = float(torch.linalg.vector_norm(finite, dtype=torch.float64))
    allowed = step * norm / math.sqrt(max(finite.numel(), 1))
    return bool(torch.isclose(got, known, rtol=step, atol=allowed, equal_nan=True).all())


def kernel_function(dispatcher: Dispatcher, problem: MatmulProblem, candidate: str) -> Function:
    """A function that launches a candidate, and leaves to torch what it cannot take: addresses
    that are not aligned, another current device, graphs that would keep its workspace."""
    operation = operation_of(problem)
    target, index = dispatcher.target, dispatcher.target.index or 0
    is_gpu = target.is_gpu
    roles = [spec.role for spec in operation.inputs]
    turned = [spec.layout is Layout.COLUMN for spec in operation.inputs]
    is_result_turned = operation.output.layout is Layout.COLUMN
    shape = (problem.m, problem.n)
    executables = {(stream := _stream(target)): dispatcher.executable(problem, candidate, stream)}
    only = executables[stream] if _workspace_bytes(executables[stream]) == 0 else None
    if is_gpu:
        # While a graph is recorded, where torch may have to compute, its handle cannot be created.
        with torch.cuda.device(index):
            torch.cuda.current_blas_handle()

    def of_stream() -> Executable | None:
        if is_capturing(target):
            return None
        stream = _stream(target)
        if stream not in executables:
            executables[stream] = dispatcher.executable(problem, candidate, stream)
        return executables[stream]

    def run(call: Arguments) -> torch.Tensor:
        a, b = call.a, call.b
        if is_gpu and (_is_unaligned(call) or _current_device() != index):
            return compute(call)
        executable = only or of_stream()
        if executable is None:
            return compute(call)
        given = {"lhs": a, "rhs": b, "addend": call.addend, "bias": call.bias}
        inputs = [
            given[role].mT if is_turned else given[role]
            for role, is_turned in zip(roles, turned, strict=True)
        ]
        out = call.out
        if out is None:
            out = torch.empty(shape, dtype=a.dtype, device=a.device)
        stored = executable.run(inputs, out.mT if is_result_turned else out)
        if executable.writes_output:
            return out
        return out.copy_(stored.mT if is_result_turned else stored)

    return run


def _workspace_bytes(executable: Executable | None) -> int | None:
    """Memory that launches write and that is the executable's own; None where that is not known. A
    graph would have to keep it, and two streams must not share it."""
    return getattr(executable, "workspace_bytes", None)


def _is_unaligned(call: Arguments) -> bool:
    addresses = call.a.data_ptr() | call.b.data_ptr()
    for tensor in call[2:5]:
        addresses |= 0 if tensor is None else tensor.data_ptr()
    return bool(addresses % _ALIGNMENT)


def why_untrusted(table: DispatchTable, target: Target) -> str:
    """Why the times of a table are not those of this device; "" if they are."""
    if table.device != (target.product or target.name):
        return f"this is {target.product or target.name}"
    return version_changes(table.versions, versions_here())


def versions_here() -> dict[str, str]:
    """The versions that a table is compared with."""
    own = provider_of(parts_of(CUBLAS)[0]).versions()
    found = {name: str(version) for name, version in own.items()}
    drivers = sorted({gpu.driver for gpu in nvidia_gpus().gpus if gpu.driver})
    return {**found, "driver": ", ".join(drivers)} if drivers else found


TRIALS_VARIABLE = "GEMMETRY_DISPATCHER_TRIALS"
"""Environment variable that switches trials on where it is 1."""

_dispatchers: dict[torch.device, Dispatcher] = {}
_trials: list[bool] = []
"""What :func:`use_trials` set, if it was called."""
_tables: list[DispatchTable | None] = []
"""The table that :func:`use_table` set, if it was called."""
listeners: list[Callable[[], None]] = []
"""Called when choices have to be made anew."""


def dispatcher_of(device: torch.device) -> Dispatcher:
    """The dispatcher of a device."""
    found = _dispatchers.get(device)
    if found is None:
        target = _target_of(device)
        has_trials = _trials[0] if _trials else os.environ.get(TRIALS_VARIABLE) == "1"
        made = Dispatcher(target, _table_for(target), has_trials=has_trials)
        found = _dispatchers.setdefault(device, made)
    return found


def use_table(table: str | os.PathLike[str] | DispatchTable | None) -> None:
    """Choose with another table from now on.

    Args:
        table: a table or its file; None: no table, everything is computed by torch.

    Raises:
        TableError: the file cannot be read or is damaged; nothing changes then.
    """
    is_path = isinstance(table, str | os.PathLike)
    _tables[:] = [read_table(Path(table)) if is_path else table]  # type: ignore[arg-type,list-item]
    reset()


def use_trials(has_trials: bool = True) -> None:
    """Measure, or do not measure, at the first call with a shape that was not measured.

    What cuBLASLt proposes for it, and the verified kernels that are likely to be fast, compute that
    call's product in turns with cuBLAS. Each must agree with torch on the call's tensors and on
    others of the same sizes. Their launches take 30 ms, or five rounds, next to what compiling
    takes. The fastest computes that shape from then on. Nothing is tried while a graph is captured,
    and where torch is to use deterministic algorithms.
    """
    _trials[:] = [has_trials]
    reset()


def reset() -> None:
    """Forget all choices; executables that are in use stay alive until they have run."""
    _dispatchers.clear()
    _warned.clear()
    _notify()


def _notify() -> None:
    for listener in listeners:
        listener()


def _target_of(device: torch.device) -> Target:
    """The GPU, or this machine's CPU for everything else."""
    gpus = gpu_targets() if device.type not in ("cpu", "meta") else []
    found = (target for target in gpus if target.index == (device.index or 0))
    return next(found, Target(TargetKind.CPU))


def _table_for(target: Target) -> DispatchTable | None:
    """The table that fits a device; None, with a warning where one was expected, if none does."""
    try:
        found = table_of(target)
    except GemmetryError as error:
        _warn(f"{error.message}; everything is computed by torch. {error.hint}")
        return None
    if found is not None and found.target != target.name:
        if target.is_gpu:
            _warn(
                f"the dispatcher's table is of {found.device}, not of {target.product}; everything "
                "is computed by torch. Make one with `gemmetry dispatcher tune`."
            )
        return None
    return found


def table_of(target: Target) -> DispatchTable | None:
    """The table that was set, else the one of the variable, else the one that comes with gemmetry
    for this product, or for another one whose kernels are the same; None if there is none.

    Raises:
        TableError: it cannot be read or is damaged.
    """
    if _tables:
        return _tables[0]
    path = os.environ.get(TABLE_VARIABLE, "")
    return read_table(Path(path)) if path else shipped_table(target.product, target.name)


class TrialsOnDevice:
    """Trials of the candidates of a table on random numbers, on its device.

    Raises:
        RequestError: there is no device of the table here.
    """

    def __init__(self, table: DispatchTable) -> None:
        targets = [*gpu_targets(), Target(TargetKind.CPU)]
        found = next((one for one in targets if one.name == table.target), None)
        if found is None:
            raise RequestError(
                f"there is no {table.target} here, on which candidates could be tried",
                hint="Leave --trials out: the choices of the table alone need no device.",
            )
        self._table, self._target = table, found

    def tried(self, problem: MatmulProblem, longer: int = 1) -> Trial | None:
        """What a first call with a problem measures; None where kernels do not compute it."""
        call, dispatcher = self._call(problem), self._dispatcher()
        if call is None or dispatcher.chooser is None:
            return None
        return dispatcher.tried(dispatcher.chooser, problem, call, longer)

    def times_ns(self, problem: MatmulProblem, names: Iterable[str]) -> Mapping[str, float]:
        """Times of cuBLAS and candidates in turns, longer than in a trial; without those that
        cannot be built or are wrong."""
        with open_device(self._target).errors("judging candidates"):
            call = self._call(problem)
            dispatcher = self._dispatcher()
            return dispatcher.timed(problem, names, call, LONGER).times_ns if call else {}

    def _dispatcher(self) -> Dispatcher:
        """One that knows nothing of earlier problems."""
        return Dispatcher(self._target, self._table, has_trials=True)

    def _call(self, problem: MatmulProblem) -> Arguments | None:
        """A product of random numbers; None where kernels do not compute such a problem."""
        operation, signature = operation_of(problem), operation_of(problem).signature
        formats = {dtype: torch_format for torch_format, dtype in _DISPATCHED.items()}
        given: dict[str, torch.Tensor] = {}
        for spec in operation.inputs:
            if spec.dtype not in formats or spec.role not in _TENSORS:
                return None
            device = self._target.device if self._target.is_gpu else "cpu"
            stored = torch.randn(spec.storage_shape, device=device).to(formats[spec.dtype])
            given[_TENSORS[spec.role]] = stored.mT if spec.layout is Layout.COLUMN else stored
        steps = [str(step) for step in signature.epilogue if str(step) in ACTIVATIONS]
        call = Arguments(
            **given, alpha=signature.alpha, beta=signature.beta, activation=next(iter(steps), None)
        )
        return call if problem_of_call(call) == problem else None


def doctor_lines() -> list[tuple[str, bool, str, str]]:
    """What :func:`gemmetry.matmul` chooses among on each GPU, or on the CPU: capability, whether
    there is more than torch, the table, and the next step."""
    rows = []
    for target in gpu_targets() or [Target(TargetKind.CPU)]:
        device, here = target.device or target.name, target.product or target.name
        name, step = f"matmul on {device}", ""
        if target.is_gpu:
            step = f"Make a table: gemmetry dispatcher tune --minutes 10 --device {device}"
        try:
            found = table_of(target)
        except GemmetryError as error:
            rows.append((name, False, f"torch computes everything: {error.message}", error.hint))
            continue
        if found is None or found.target != target.name:
            rows.append((name, False, f"torch computes everything: no table of {here}", step))
            continue
        refused, reason = refusals(found, provider_of), why_untrusted(found, target)
        allowed = len(found.certificates) - sum(refused.values())
        kind = f"ranking by the table of {found.device} ({reason})" if reason else "a table"
        text = f"{kind}, {allowed} of {len(found.certificates)} verified candidates fit"
        text += "".join(f"; {count}: {why}" for why, count in refused.items())
        rows.append((name, bool(allowed), text, step if reason or refused else ""))
    return rows


_warned: set[str] = set()


def _warn(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, DispatchWarning, stacklevel=2)


def is_capturing(target: Target) -> bool:
    """Whether the current stream records a graph, while which nothing can be loaded."""
    return target.is_gpu and torch.cuda.is_current_stream_capturing()


def _stream(target: Target) -> int:
    return _raw_stream(target.index or 0) if target.is_gpu else 0


def _current_stream(index: int) -> int:
    return int(torch.cuda.current_stream(index).cuda_stream)


_raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)
"""The handle of the current stream; torch's own compiled code asks for it the same way."""
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
