"""How a configuration gets its algorithm: the heuristic's first proposal for ``default``, the
fastest of several in a short trial for ``best``, and the named one for all others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from gemmetry.devices.torch import TorchDevice
from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.target import Target
from gemmetry.providers.cublaslt_provider import bindings
from gemmetry.providers.cublaslt_provider.algorithms import parse_algorithm
from gemmetry.providers.cublaslt_provider.bindings import Matmul, Result
from gemmetry.providers.cublaslt_provider.executable import CublasLtExecutable
from gemmetry.providers.cublaslt_provider.problem import GemmProblem, problem_of
from gemmetry.providers.cublaslt_provider.selecting import algorithm_of, proposed, result_of
from gemmetry.providers.cublaslt_provider.support import capability
from gemmetry.providers.cublaslt_provider.trial import medians_ns
from gemmetry.providers.files import locked, output_folder, write_atomically

_WORKSPACE_BYTES = 32 * 2**20
_EARLIER_WORKSPACE_BYTES = 4 * 2**20
_FIRST_LARGE = 90
"""Workspaces that the cuBLAS documentation recommends (``cublasSetWorkspace``): 32 MiB on Hopper
and later, 4 MiB before."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """An algorithm, and how many were timed to choose it."""

    result: Result
    tried: int | None = None


@contextmanager
def described(problem: GemmProblem, target: Target, device: TorchDevice) -> Iterator[Matmul]:
    """The problem in the library's descriptors, on the device of a target, which is the current one
    inside; they are freed where an exception leaves the context.

    Raises:
        UnsupportedError: the library rejects the description. LaunchError: it cannot be used.
    """
    is_large = capability(target) >= _FIRST_LARGE
    limit = _WORKSPACE_BYTES if is_large else _EARLIER_WORKSPACE_BYTES
    with torch.cuda.device(device.index) if device.is_gpu else nullcontext():
        device.synchronize()  # Makes torch's context the current one.
        matmul = Matmul(problem, bindings.handle(device.index), limit)
        try:
            # The heuristic sees that there are such tensors; each launch sets their addresses.
            dummy = torch.empty(1, dtype=torch.float64, device=device.torch_device)
            matmul.point(dict.fromkeys(matmul.pointer_names, dummy.data_ptr()))
            yield matmul
        except BaseException:
            matmul.close()
            raise


def load(
    dispatch: Dispatch, proposals: int, device: TorchDevice, workspace: Workspace
) -> CublasLtExecutable:
    """The executable of a dispatch.

    Args:
        proposals: how many to time: for ``default`` 1, for a named algorithm 0.

    Raises:
        UnsupportedError: no algorithm, or not the named one, computes the operation.
        LaunchError: the library or a launch of the trial failed. OutOfMemoryError: its buffers do
            not fit.
    """
    operation, problem = dispatch.operation, problem_of(dispatch.operation)
    with described(problem, dispatch.target, device) as matmul:
        if proposals > 1:
            choice = _best(dispatch, matmul, proposals, device, workspace)
        elif proposals:
            choice = _Choice(proposed(matmul, operation, 1)[0])
        else:
            algorithm = parse_algorithm(dispatch.configuration.name)
            if algorithm is None:
                raise UnsupportedError(f"{dispatch}: cuBLASLt has no such configuration")
            choice = _Choice(result_of(matmul, problem, operation, algorithm))
        facts = BuildFacts(
            default_configuration=algorithm_of(matmul, choice.result).name if proposals else None,
            algorithms_tried=choice.tried,
            workspace_bytes=choice.result.workspace_bytes,
        )
        return CublasLtExecutable(dispatch.name, operation, matmul, choice.result, device, facts)


def _best(
    dispatch: Dispatch, matmul: Matmul, proposals: int, device: TorchDevice, workspace: Workspace
) -> _Choice:
    """The fastest proposal. The choice is kept in a file, so that all processes of a run, and the
    run that resumes it, measure the same algorithm; a second process waits for the first one's."""
    path = output_folder(workspace.generated, dispatch) / f"{dispatch.configuration.name}.json"
    made_for = {"cublaslt": bindings.version(), "device": dispatch.target.product}
    with locked(path.parent):
        kept = _kept(path, made_for)
        if kept is not None:
            return kept
        results = proposed(matmul, dispatch.operation, proposals)
        times = _trial(dispatch, matmul, results, device)
        chosen = results[times.index(min(times))]
        document = {
            **made_for,
            "algorithm": algorithm_of(matmul, chosen).name,
            "stored": chosen.stored,
            "workspace_bytes": chosen.workspace_bytes,
            "trial": [
                {"algorithm": algorithm_of(matmul, one).name, "median_ns": round(ns, 1)}
                for one, ns in zip(results, times, strict=True)
            ],
        }
        write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
        return _Choice(chosen, len(results))


def _trial(
    dispatch: Dispatch, matmul: Matmul, results: Sequence[Result], device: TorchDevice
) -> list[float]:
    """The median of each algorithm in ns."""
    candidates = [
        CublasLtExecutable(dispatch.name, dispatch.operation, matmul, one, device, BuildFacts())
        for one in results
    ]
    return medians_ns([one.run for one in candidates], dispatch.operation, device)


def _kept(path: Path, made_for: Mapping[str, str]) -> _Choice | None:
    """The choice in a file; None if there is none for this library and device."""
    try:
        found = json.loads(path.read_bytes())
        if any(found[key] != value for key, value in made_for.items()):
            return None
        result = bindings.stored_result(found["stored"], int(found["workspace_bytes"]))
        return _Choice(result, len(found["trial"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
