"""Detects work outside the order in which launches are timed: that of the current stream on a GPU,
of the calling thread on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gemmetry.devices.late_work import WAIT_S, late_work

_BLOCK_CYCLES = 24_000_000
"""Clock cycles for which the stream is kept busy: 12 ms at 2 GHz, longer than submitting a launch
takes. The exact time does not matter: an event shows whether the stream was still blocked."""

_LEAD_S = 0.003
"""Time given to work that runs ahead; a bf16 kernel of 8192³ takes 1.6 ms on an H200."""

_UNTOUCHED = 0xFF

_ATTEMPTS = 3
"""Number of trials: work on another stream races with the copy that must come first, and is
unlikely to go unnoticed three times."""

_OTHER_STREAM = 1
"""The trial that uses a new stream as the current one."""


def unordered_on_host(launch: Callable[[], object], output: torch.Tensor) -> str:
    """For a CPU: whether a launch keeps writing after it has returned."""
    _bytes(output).fill_(_UNTOUCHED)
    holder = [output]

    def run() -> None:
        holder[0] = _result(launch(), output)

    return late_work(run, lambda: holder[0].detach().clone(), same_bits)


def unordered_on_stream(launch: Callable[[], object], output: torch.Tensor) -> str:
    """For a GPU: whether a launch runs ahead of the current stream or is not waited for by it.

    A spinning kernel blocks the current stream. Anything that a launch queued after it writes
    meanwhile does not follow the stream. A copy of the result queued after the launch must then
    hold the final result; where it does not, the stream continued before the work was done, and so
    do events. A launch that itself waits for the device cannot be caught running ahead. One trial
    uses a new stream as the current one, as callers may use any stream: work on the default stream
    is then on another stream, and does not wait for it.
    """
    for attempt in range(_ATTEMPTS):
        if attempt == _OTHER_STREAM:
            with torch.cuda.stream(torch.cuda.Stream(output.device)):
                problem = _look(launch, output, wait_s=0.0)
            if problem:
                return f"launched while another stream than the default one is current: {problem}"
            continue
        problem = _look(launch, output, wait_s=WAIT_S if attempt == 0 else 0.0)
        if problem:
            return problem
    return ""


def _look(launch: Callable[[], object], output: torch.Tensor, *, wait_s: float) -> str:
    stream = torch.cuda.current_stream(output.device)
    other = torch.cuda.Stream(output.device)
    _bytes(output).fill_(_UNTOUCHED)
    before, copy = output.clone(), torch.empty_like(output)
    torch.cuda.synchronize(output.device)
    with torch.cuda.stream(other):
        same_bits(output, before)  # Allocates what the trial below needs, while nothing is blocked.
    torch.cuda.synchronize(output.device)

    torch.cuda._sleep(_BLOCK_CYCLES)
    unblocked = torch.cuda.Event()
    unblocked.record(stream)
    result = _result(launch(), output)
    is_given = result.data_ptr() == output.data_ptr()
    copy = copy.copy_(result) if is_given else result.detach().clone()
    if is_given and not unblocked.query():
        time.sleep(_LEAD_S)
        with torch.cuda.stream(other):
            is_early = not same_bits(output, before)
        if is_early and not unblocked.query():
            torch.cuda.synchronize(output.device)
            return (
                "the result was written while the timed stream was still blocked: the work runs on "
                "another stream that does not wait for it"
            )
    torch.cuda.synchronize(output.device)
    if not same_bits(copy, result):
        return (
            "the result changed after the timed stream had finished: it does not wait for all of "
            "the work, which runs on another stream"
        )
    time.sleep(wait_s)
    torch.cuda.synchronize(output.device)
    if not same_bits(copy, result):
        return "the result changed after the device was idle: another thread continues to launch"
    return ""


def _result(returned: object, output: torch.Tensor) -> torch.Tensor:
    """The tensor that a launch returned, if it is on the same device, else the output passed to the
    launch."""
    if isinstance(returned, torch.Tensor) and returned.device == output.device:
        return returned
    return output


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(torch.uint8)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bytes; compared eight bytes at a
    time where possible, which is several times faster on a CPU."""
    pair = [_bytes(part).reshape(-1) for part in (left, right)]
    if all(part.numel() % 8 == 0 and part.data_ptr() % 8 == 0 for part in pair):
        pair = [part.view(torch.int64) for part in pair]
    return bool(torch.equal(*pair))
