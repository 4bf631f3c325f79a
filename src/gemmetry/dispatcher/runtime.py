"""Turns choices into functions that run: one dispatcher for each device, made when the device is
first used."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch

from gemmetry.devices.torch import TORCH_ERRORS, gpu_targets
from gemmetry.dispatcher.arguments import Arguments, problem_of_call
from gemmetry.dispatcher.building import dispatch_of
from gemmetry.dispatcher.choosing import Choice, ChoiceStep, Chooser
from gemmetry.dispatcher.digests import source_digest
from gemmetry.dispatcher.library import CublasLt, compute
from gemmetry.dispatcher.problems import CUBLAS, MatmulProblem, operation_of, parts_of
from gemmetry.dispatcher.table import DispatchTable, read_table, shipped_table
from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import DispatchError, GemmetryError, UnsupportedError
from gemmetry.domain.operation import Layout
from gemmetry.domain.target import Target, TargetKind
from gemmetry.hardware.detect import nvidia_gpus
from gemmetry.providers.registry import load_provider
from gemmetry.traces.cache import cache_folder

TABLE_VARIABLE = "GEMMETRY_DISPATCHER_TABLE"
"""Environment variable with the path of a table that replaces the one that comes with gemmetry."""

Function = Callable[[Arguments], torch.Tensor]

_ALIGNMENT = 16
"""Bytes: what kernels require of addresses (PTX ISA, ld.v4 and tensormap)."""
_CUBLASLT = "torch:cublaslt"
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

    def __init__(self, target: Target, table: DispatchTable | None) -> None:
        """
        Args:
            table: None: everything is computed by torch.
        """
        self.target = target
        self._lock = threading.RLock()
        self._fresh: dict[tuple[str, str], bool] = {}
        self._built: dict[tuple[str, MatmulProblem, int], Executable | None] = {}
        self._workspace_bytes = 0
        self.chooser: Chooser | None = None
        if table is not None:
            reason = why_times_changed(table, versions_here())
            if reason:
                _warn(
                    f"the dispatcher's table of {table.device} was measured with other versions "
                    f"({reason}); kernels are ranked by prediction. Make the table again with "
                    "`gemmetry dispatcher build`."
                )
            self.chooser = Chooser(table, self._permits, trusts_times=not reason)

    def function(self, call: Arguments) -> tuple[Function, Choice]:
        """What computes calls like `call`, which is a checked one."""
        problem = problem_of_call(call)
        if self.chooser is None or problem is None or is_capturing(self.target):
            why = "there is no table" if self.chooser is None else "kernels do not take these"
            return compute, Choice(CUBLAS, ChoiceStep.CUBLAS, why)
        with self._lock:
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

    def _usable(self, problem: MatmulProblem, candidate: str, call: Arguments) -> Function | None:
        """A function that has computed `call` once; None if the candidate fails."""
        if candidate == _CUBLASLT:
            if not call.is_plain or self.target.kind is not TargetKind.CUDA:
                return None
            product = CublasLt()
            return lambda one: product(one.a, one.b)
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
            dispatch = self._dispatch(problem.name, candidate)
            folder = cache_folder().with_name("dispatcher") / "generated"
            return provider_of(dispatch.provider).build(dispatch, Workspace(generated=folder))
        except UnsupportedError:
            return None  # Not every size suits every configuration.
        except (GemmetryError, *TORCH_ERRORS) as error:
            line = str(error).splitlines()[0]
            _warn(f"{candidate} cannot be built for {problem.name}, another one is used: {line}")
            return None

    def _dispatch(self, operation: str, candidate: str) -> Dispatch:
        found = dispatch_of(operation, candidate, self.target.name, provider_of)
        return Dispatch(found.operation, found.configuration, found.provider, self.target)

    def _permits(self, problem: MatmulProblem, candidate: str) -> bool:
        """Whether the provider works here, supports the operation, and still has the sources that
        were verified."""
        if candidate == _CUBLASLT:
            return self.target.kind is TargetKind.CUDA
        name = parts_of(candidate)[0]
        try:
            provider = provider_of(name)
            if provider.available() is not None:
                return False
            if provider.supports(operation_of(problem), self.target) is not None:
                return False
        except GemmetryError:
            return False
        key = (problem.signature, candidate)
        if key not in self._fresh:
            self._fresh[key] = self._is_fresh(*key)
        return self._fresh[key]

    def _is_fresh(self, signature: str, candidate: str) -> bool:
        assert self.chooser is not None
        certificate = self.chooser.table.certified[signature, candidate]
        name = parts_of(candidate)[0]
        try:
            # As when the table was made, for the architecture rather than for a device.
            dispatch = dispatch_of(certificate.operation, candidate, self.target.name, provider_of)
            is_fresh = source_digest(provider_of(name), dispatch) == certificate.digest
        except GemmetryError:
            is_fresh = False
        if not is_fresh:
            _warn(
                f"{candidate} is not what the dispatcher's table verified (its source or its "
                "compiler changed) and is not used. Verify it again, and make the table again with "
                "`gemmetry dispatcher build`."
            )
        return is_fresh


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


def why_times_changed(table: DispatchTable, here: Mapping[str, str]) -> str:
    """The versions that are not those of the table; "" if all are the same."""
    changed = [
        f"{name} {then}, now {here.get(name, 'none')}"
        for name, then in sorted(table.versions.items())
        if here.get(name) != then
    ]
    return ", ".join(changed)


def versions_here() -> dict[str, str]:
    """The versions that a table is compared with."""
    found = dict(provider_of(parts_of(CUBLAS)[0]).versions())
    drivers = sorted({gpu.driver for gpu in nvidia_gpus().gpus if gpu.driver})
    return {**found, "driver": ", ".join(drivers)} if drivers else found


_dispatchers: dict[torch.device, Dispatcher] = {}
_tables: list[DispatchTable | None] = []
"""The table that :func:`use_table` set, if it was called."""
listeners: list[Callable[[], None]] = []
"""Called when choices have to be made anew."""


def dispatcher_of(device: torch.device) -> Dispatcher:
    """The dispatcher of a device."""
    found = _dispatchers.get(device)
    if found is None:
        target = _target_of(device)
        found = _dispatchers.setdefault(device, Dispatcher(target, _table_for(target)))
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
    path = os.environ.get(TABLE_VARIABLE, "")
    try:
        if _tables:
            found = _tables[0]
        else:
            found = read_table(Path(path)) if path else shipped_table(target.product)
    except GemmetryError as error:
        _warn(f"{error.message}; everything is computed by torch. {error.hint}")
        return None
    if found is None:
        return None
    here = target.product or target.name
    if found.target != target.name or found.device != here:
        if target.is_gpu:
            _warn(
                f"the dispatcher's table is of {found.device}, not of {here}; everything is "
                "computed by torch. Make one with `gemmetry dispatcher build`."
            )
        return None
    return found


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
