"""Lets evaluations that demand a CUDA device run on a CPU; Python imports it at its start.

What they place on ``cuda`` is on the CPU, events read the host's clock, and there is nothing to
wait for. CUPTI's timer of the package flashinfer is replaced by such events, its own fallback.
Clients of language models, which KernelBench imports and does not use here, are empty.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import time
import types
from typing import Any

import torch


class Event:
    """Has the interface of torch.cuda.Event."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ns = 0

    def record(self, *_: Any) -> None:
        self.ns = time.perf_counter_ns()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return (end.ns - self.ns) / 1e6


def _here(value: Any) -> Any:
    is_device = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
    return torch.device("cpu") if is_device else value


def _on_host(function: Any) -> Any:
    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        options = {name: _here(value) for name, value in options.items()}
        return function(*map(_here, arguments), **options)

    return called


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _bench(
    fn: Any, dry_run_iters: int, repeat_iters: int, input_args: tuple[Any, ...], **_: Any
) -> list[float]:
    times = []
    for turn in range(-dry_run_iters, repeat_iters):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        fn(*input_args)
        end.record()
        torch.cuda.synchronize()
        if turn >= 0:
            times.append(start.elapsed_time(end))
    return times


for _name in ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "tensor", "Generator"):
    setattr(torch, _name, _on_host(getattr(torch, _name)))
for _owner in (torch.Tensor, torch.nn.Module):
    _owner.to = _on_host(_owner.to)
vars(torch.cuda).update(
    Event=Event, is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0,
    get_device_name=lambda *_, **__: "CPU", device=lambda *_: contextlib.nullcontext(),
    set_device=_nothing, synchronize=_nothing, empty_cache=_nothing,
    reset_peak_memory_stats=_nothing,
)  # fmt: skip
_MODULES: dict[str, dict[str, Any]] = {
    "flashinfer": {}, "flashinfer.testing": {"bench_gpu_time_with_cupti": _bench},
    "openai": {"OpenAI": None}, "litellm": {"completion": None},
    "dotenv": {"load_dotenv": _nothing},
}  # fmt: skip
for _name, _facts in _MODULES.items():
    if "." in _name or importlib.util.find_spec(_name) is None:
        sys.modules[_name] = types.ModuleType(_name)
        vars(sys.modules[_name]).update(_facts)
