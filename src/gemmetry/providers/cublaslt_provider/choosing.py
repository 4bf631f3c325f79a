"""Times algorithms against each other, shortly, to choose one; what is reported of it is measured
anew by the engine.

Candidates alternate in rounds whose order changes, because a candidate that always runs second
reads a few percent slow. Each timed call is a captured run of launches over rotated buffers, so
that neither the host nor a warm cache decides. A small kernel runs ahead of each launch, and the
rounds that count begin once the device has settled at the clock that it sustains.

An algorithm on torch's memory and stream.

How a configuration gets its algorithm: the heuristic's first proposal for ``default``, the
fastest of several in a short trial for ``best`` (the default unless one beats it), and the named
one for all others.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

import torch

from gemmetry.domain.contracts import Buffer, Workspace
from gemmetry.domain.dispatch import Dispatch, Target
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.operation import F32, Operation, TensorSpec
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.torch_device import TorchDevice, stored_shape, torch_dtype
from gemmetry.providers.base import (
    TorchLaunch,
    compute_capability,
    locked,
    output_folder,
    write_atomically,
)
from gemmetry.providers.cublaslt_provider import bindings
from gemmetry.providers.cublaslt_provider.algorithms import (
    algorithm_of,
    parse_algorithm,
    proposed,
    result_of,
)
from gemmetry.providers.cublaslt_provider.bindings import GemmProblem, Matmul, Result, problem_of
from gemmetry.statistics.intervals import sign_shift

_ROUNDS = 15
_SETTLED_ROUNDS, _SETTLED, _MOST_SETTLING_NS = 4, 0.01, 1e9
"""Rounds that count begin once as many of them in a row differ by no more than this share, or after
this time: clocks at a power limit settle within one to three seconds, most of it in the first."""
_CONFIDENCE = 0.95
"""That an algorithm is faster than the default, over all candidates together."""
_CALL_NS = 200_000.0
"""The least that one timed call takes: far above the two microseconds of its events."""
_MOST_LAUNCHES = 64
_TRIAL_NS = 1e9
"""Of all rounds together, unless the fewest that can show a faster algorithm take longer."""
_OWN_LOAD_NS, _OWN_ROUNDS, _OWN_SAMPLES, _OWN_NS = 50e6, 12, 5, 3e9
"""An algorithm that is faster in turns of a few launches must also be faster than the default after
launches of its own for this long, in so many rounds of so many samples, fewer where they would
take longer than the last value. At a power limit algorithms that take turns
share one clock, and what draws more power has a lower one by itself: on an H100 the winner of turns
at 4096³ in bf16, ahead by 2 to 3 %, was 3 to 11 % slower alone (2026-11-27)."""
_MEMORY_SHARE = 4
"""The buffers take at most this part of the free memory."""

Launch = Callable[[Sequence[torch.Tensor], torch.Tensor], object]


class Trial:
    """Times algorithms on one operation, with a small kernel ahead of each launch.

    Args:
        launches: what submits one launch on inputs and an output.

    Raises:
        LaunchError: a launch failed. OutOfMemoryError: the buffers do not fit.
    """

    def __init__(
        self, launches: Sequence[Launch], operation: Operation, device: TorchDevice
    ) -> None:
        with device.errors("preparing a trial"):
            buffers = _buffers(operation, device)
        for launch in launches:
            _run(launch, buffers, 1)()  # Loads its kernel, which a capture must not do.
        device.synchronize()
        self._device = device
        rough_ns = max(min(device.time_calls([_run(launches[0], buffers, 1)] * 3)[0]), 1.0)
        self._count = min(max(math.ceil(_CALL_NS / rough_ns), 1), _MOST_LAUNCHES)
        self._call_ns = rough_ns * self._count
        neighbour = device.neighbour()
        self._calls = [
            device.captured(_run(launch, buffers, self._count, neighbour)) for launch in launches
        ]
        self._shuffled = random.Random(0)

    def rounds_ns(self) -> list[list[float]]:
        """The duration of one launch of each candidate in each round, with what runs ahead of it.
        Candidates take turns and share the clock."""
        count = len(self._calls)
        rounds = int(_TRIAL_NS / (self._call_ns * count))
        rounds = max(min(rounds, _ROUNDS), math.ceil(-math.log2(_level(count))))
        totals: list[float] = []
        while sum(totals) * self._count < _MOST_SETTLING_NS:
            totals.append(sum(self._timed()))
            last = totals[-_SETTLED_ROUNDS:]
            if len(last) == _SETTLED_ROUNDS and max(last) <= (1 + _SETTLED) * min(last):
                break
        found = [list(one) for one in zip(*(self._timed() for _ in range(rounds)), strict=True)]
        self._device.synchronize()  # Graphs end after their last replay.
        return found

    def _timed(self) -> list[float]:
        """One round, within a load: an idle device's clock rises above what it sustains."""
        order = list(range(len(self._calls)))
        self._shuffled.shuffle(order)
        ordered = [self._calls[index] for index in order]
        durations = self._device.time_in_load(ordered, ordered, (), self._call_ns)
        return [one / self._count for _, one in sorted(zip(order, durations, strict=True))]

    def own_load_ns(self, candidates: Sequence[int]) -> list[list[float]]:
        """The same of some candidates, each after a load of its own launches."""
        call_ns = self._call_ns
        lead = max(1, math.ceil(_OWN_LOAD_NS / call_ns))
        samples = _OWN_SAMPLES if _OWN_SAMPLES * call_ns < _OWN_LOAD_NS else 1
        rounds = int(_OWN_NS / (len(candidates) * (lead + samples) * call_ns))
        rounds = max(min(rounds, _OWN_ROUNDS), math.ceil(-math.log2(_level(len(candidates)))))
        times: dict[int, list[float]] = {one: [] for one in candidates}
        for _ in range(rounds):
            for one in self._shuffled.sample(candidates, len(candidates)):
                call = self._calls[one]
                durations = self._device.time_in_load(
                    [call] * lead, [call] * samples, (), call_ns * lead
                )
                times[one].append(median(durations) / self._count)
        self._device.synchronize()
        return list(times.values())

    def chosen(self) -> tuple[int, list[list[float]]]:
        """The number of the fastest candidate, the first where no other is shown to be faster in
        turns and by itself; and the times of all in turns."""
        times = self.rounds_ns()
        best = fastest(times)
        if best and not fastest(self.own_load_ns((0, best))):
            best = 0
        return best, times


def _level(candidates: int) -> float:
    """The significance of one algorithm against the default (Bonferroni)."""
    return (1 - _CONFIDENCE) / max(1, candidates - 1)


def fastest(times: Sequence[Sequence[float]]) -> int:
    """Which candidate to take: the first, which is the library's default, unless the rounds show
    that another is faster (sign test); of those the one with the least median."""
    faster = [
        number
        for number, one in enumerate(times[1:], 1)
        if sign_shift(
            [other - own for other, own in zip(times[0], one, strict=True)], confidence=_CONFIDENCE
        ).p_greater <= _level(len(times))
    ]  # fmt: skip
    return min(faster, key=lambda number: median(times[number]), default=0)


_Buffers = list[tuple[list[torch.Tensor], torch.Tensor]]


def _buffers(operation: Operation, device: TorchDevice) -> _Buffers:
    """So many sets of buffers that together they exceed twice the last-level cache."""
    size = operation.bytes
    budget = device.free_memory_bytes() // _MEMORY_SHARE
    count = max(1, min(math.ceil(2 * device.last_level_cache_bytes / size), budget // size))
    count = min(count, _MOST_LAUNCHES)
    first = [_random(spec, device.torch_device) for spec in operation.inputs]
    return [
        ([one.clone() for one in first] if number else first, device.allocate(operation.output))
        for number in range(count)
    ]


def _random(spec: TensorSpec, where: torch.device) -> torch.Tensor:
    """Normal data, as its bits decide the power that a product draws; ones as factors."""
    shape, dtype = stored_shape(spec), torch_dtype(spec.dtype)
    if spec.role.startswith("scale"):
        return torch.ones(shape, dtype=dtype, device=where)
    if spec.dtype.is_integer:
        return torch.randint(-128, 128, shape, dtype=dtype, device=where)
    return torch.randn(shape, dtype=torch_dtype(F32), device=where).to(dtype)


def _run(
    launch: Launch, buffers: _Buffers, count: int, neighbour: Callable[[], object] | None = None
) -> Callable[[], object]:
    def run() -> None:
        for number in range(count):
            if neighbour is not None:
                neighbour()
            inputs, output = buffers[number % len(buffers)]
            launch(inputs, output)

    return run


def executable(
    dispatch: Dispatch, matmul: Matmul, result: Result, device: TorchDevice, facts: BuildFacts
) -> TorchLaunch:
    """One algorithm; only the addresses and the stream change from launch to launch.

    Raises:
        OutOfMemoryError: the workspace of the algorithm does not fit.
    """
    size = result.workspace_bytes
    with device.errors(f"allocating the workspace of {dispatch.name}"):
        memory = torch.empty(size, dtype=torch.uint8, device=device.torch_device)
    problem = problem_of(dispatch.operation)
    roles = [spec.role for spec in dispatch.operation.inputs]
    a, b = roles.index(problem.a.role), roles.index(problem.b.role)
    c = roles.index(problem.c_role) if problem.c_role else None
    places = {key: roles.index(role) for key, role in matmul.pointer_names.items()}

    def launch(inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        d = output.data_ptr()
        added = d if c is None else inputs[c].data_ptr()
        addresses = (inputs[a].data_ptr(), inputs[b].data_ptr(), added, d)
        pointers = {key: inputs[index].data_ptr() for key, index in places.items()}
        stream = torch.cuda.current_stream(device.index).cuda_stream
        matmul.launch(result, addresses, pointers, memory.data_ptr(), stream)
        return output

    return TorchLaunch(
        dispatch.name, device, facts, launch, workspace_bytes=size, free=matmul.close
    )


_WORKSPACE_BYTES = 32 * 2**20
_EARLIER_WORKSPACE_BYTES = 4 * 2**20
_FIRST_LARGE = 90
"""Workspaces that the cuBLAS documentation recommends (``cublasSetWorkspace``): 32 MiB on Hopper
and later, 4 MiB before."""


_Choice = tuple[Result, int | None]
"""An algorithm, and how many were timed to choose it."""


@contextmanager
def described(problem: GemmProblem, target: Target, device: TorchDevice) -> Iterator[Matmul]:
    """The problem in the library's descriptors, on the device of a target, which is the current one
    inside; they are freed where an exception leaves the context.

    Raises:
        UnsupportedError: the library rejects the description. LaunchError: it cannot be used.
    """
    is_large = compute_capability(target.architecture) >= _FIRST_LARGE
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
) -> TorchLaunch:
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
            result, tried = _best(dispatch, matmul, proposals, device, workspace)
        elif proposals:
            result, tried = proposed(matmul, operation, 1)[0], None
        else:
            algorithm = parse_algorithm(dispatch.configuration.name)
            if algorithm is None:
                raise UnsupportedError(f"{dispatch}: cuBLASLt has no such configuration")
            result, tried = result_of(matmul, problem, operation, algorithm), None
        facts = BuildFacts(
            default_configuration=algorithm_of(matmul, result).name if proposals else None,
            algorithms_tried=tried,
            workspace_bytes=result.workspace_bytes,
        )
        return executable(dispatch, matmul, result, device, facts)


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
        runs = [executable(dispatch, matmul, one, device, BuildFacts()).run for one in results]
        best, times = Trial(runs, dispatch.operation, device).chosen()
        chosen = results[best]
        document = {
            **made_for,
            "algorithm": algorithm_of(matmul, chosen).name,
            "stored": chosen.stored,
            "workspace_bytes": chosen.workspace_bytes,
            "trial": [
                {"algorithm": algorithm_of(matmul, one).name, "median_ns": round(median(ns), 1)}
                for one, ns in zip(results, times, strict=True)
            ],
        }
        write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())
        return chosen, len(results)


def _kept(path: Path, made_for: Mapping[str, str]) -> _Choice | None:
    """The choice in a file; None if there is none for this library and device."""
    try:
        found = json.loads(path.read_bytes())
        if any(found[key] != value for key, value in made_for.items()):
            return None
        result = bindings.stored_result(found["stored"], int(found["workspace_bytes"]))
        return result, len(found["trial"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
