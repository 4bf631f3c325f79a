"""Times algorithms against each other, shortly, to choose one; what is reported of it is measured
anew by the engine.

Candidates alternate in rounds whose order changes, because a candidate that always runs second
reads a few percent slow. Each timed call is a captured run of launches over rotated buffers, so
that neither the host nor a warm cache decides.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence

import torch

from gemmetry.devices.torch import TorchDevice
from gemmetry.devices.torch_parts.storage import stored_shape, torch_dtype
from gemmetry.domain.dtypes import F32
from gemmetry.domain.operation import Operation, TensorSpec

_ROUNDS = 15
_CALL_NS = 200_000.0
"""The least that one timed call takes: far above the two microseconds of its events."""
_MOST_LAUNCHES = 64
_TRIAL_NS = 1e9
"""Of all rounds together, unless :data:`_LEAST_ROUNDS` take longer."""
_LEAST_ROUNDS = 5
_MEMORY_SHARE = 4
"""The buffers take at most this part of the free memory."""

Launch = Callable[[Sequence[torch.Tensor], torch.Tensor], object]


def medians_ns(
    launches: Sequence[Launch], operation: Operation, device: TorchDevice
) -> list[float]:
    """The median duration of one launch of each candidate.

    Args:
        launches: what submits one launch on inputs and an output.

    Raises:
        LaunchError: a launch failed. OutOfMemoryError: the buffers do not fit.
    """
    with device.errors("preparing a trial"):
        buffers = _buffers(operation, device)
    for launch in launches:
        _run(launch, buffers, 1)()  # Loads its kernel, which a capture must not do.
    device.synchronize()
    rough_ns = max(_rough_ns(launches[0], buffers, device), 1.0)
    count = min(max(math.ceil(_CALL_NS / rough_ns), 1), _MOST_LAUNCHES)
    calls = [device.captured(_run(launch, buffers, count)) for launch in launches]
    rounds = int(_TRIAL_NS / (rough_ns * count * len(calls)))
    rounds = min(max(rounds, _LEAST_ROUNDS), _ROUNDS)
    order, shuffled = list(range(len(calls))), random.Random(0)
    times: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        shuffled.shuffle(order)
        durations, _ = device.time_calls([calls[index] for index in order])
        for index, duration in zip(order, durations, strict=True):
            if number:  # The first round warms up.
                times[index].append(duration / count)
    return [statistics.median(one) for one in times]


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
    wide = torch.randn(shape, dtype=torch_dtype(F32), device=where)
    return wide.to(dtype)


def _rough_ns(launch: Launch, buffers: _Buffers, device: TorchDevice) -> float:
    calls = [_run(launch, buffers, 1)] * 3
    return min(device.time_calls(calls)[0])


def _run(launch: Launch, buffers: _Buffers, count: int) -> Callable[[], object]:
    def run() -> None:
        for number in range(count):
            inputs, output = buffers[number % len(buffers)]
            launch(inputs, output)

    return run
