"""The process in which a submission runs: ``python -m gemmetry.judge.child``.

The parent (:mod:`gemmetry.judge.remote`) sends one JSON object a line and reads one a line, on
descriptors that it passes. Arrays are in the arena (:mod:`gemmetry.judge.memory`), which both map;
messages contain only their places. Nothing here is trusted by the parent: a submission may
change anything in this process.
"""

from __future__ import annotations

import importlib.util
import json
import math
import mmap
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_NAMES = 200
"""Names of kernels and operators that are reported."""


def main() -> None:
    """Serve requests until the parent closes its end."""
    setup = json.loads(sys.argv[1])
    received, sent, memory = setup["descriptors"]
    requests, replies = os.fdopen(received, "rb"), os.fdopen(sent, "wb", buffering=0)
    from gemmetry.judge.sandbox import confine

    missing = confine(
        Path(setup["scratch"]),
        memory_bytes=setup["memory_bytes"],
        is_gpu=setup["device"] != "cpu",
        without=setup["without"],
    )
    os.chdir(setup["scratch"])
    replies.write(_line({"missing": missing}))
    served = Served(setup, memory)
    for request in requests:
        replies.write(_line(served.answer(json.loads(request))))


def _line(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found).encode() + b"\n"


class Served:
    """A submission and the calls that were prepared."""

    def __init__(self, setup: Mapping[str, Any], descriptor: int) -> None:
        self._setup, self._descriptor = setup, descriptor
        self._is_gpu = setup["device"] != "cpu"
        self._memory: Any = None
        self._function: Callable[..., Any] | None = None
        self._calls: list[tuple[list[Any], list[Any]]] = []
        self._uploaded: list[list[Any]] | None = None
        self._packs = False

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request: ``error`` with its kind and text where it fails."""
        try:
            match request["do"]:
                case "open":
                    return self._open(request)
                case "load":
                    return self._load(request)
                case "prepare":
                    self._uploaded = None
                    self._calls = [
                        ([self._array(one) for one in call["inputs"]],
                         [self._array(one) for one in call["outputs"]])
                        for call in request["calls"]
                    ]  # fmt: skip
                    return {}
                case "upload":
                    self._uploaded = [list(map(self._on_device, one)) for one, _ in self._calls]
                    return {}
                case "return":
                    return self._return()
                case "go":
                    return self._counted() if request.get("counts") else self._go()
                case _:
                    return {"error": "unknown request"}
        except BaseException as error:  # whatever a submission raises is its verdict
            if isinstance(error, KeyboardInterrupt):
                raise
            trace = traceback.format_exc(limit=-4)
            return {"error": f"{type(error).__name__}: {error}", "trace": trace[-4000:]}

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Map the shared memory, before any of the submission's code runs."""
        import torch

        torch.set_num_threads(request["threads"])
        if self._is_gpu:
            torch.cuda.set_device(self._setup["device"])
            torch.zeros(1, device=self._setup["device"])
        if self._setup["transport"] == "device":
            from gemmetry.judge.memory import imported

            self._memory = imported(self._setup, self._descriptor)
        else:
            self._memory = mmap.mmap(self._descriptor, 0)
        os.close(self._descriptor)
        return {}

    def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        self._packs = request["packs"]
        random.seed(request["seed"])
        torch.manual_seed(request["seed"])
        function = load_function(
            Path(request["path"]), request["entry"], [self._array(x) for x in request["initial"]]
        )
        if self._is_gpu and hasattr(function, "parameters"):
            function = function.to(self._setup["device"])  # type: ignore[attr-defined]
        self._function = function
        return {}

    def _go(self) -> dict[str, Any]:
        """Run the calls; the reply has their time by this process's own clock."""
        if not self._is_gpu:
            before = time.perf_counter_ns()
            return self._run() or {"own_ns": time.perf_counter_ns() - before}
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        problem = self._run()
        end.record()
        torch.cuda.synchronize()
        return problem or {"own_ns": 1e6 * start.elapsed_time(end)}

    def _counted(self) -> dict[str, Any]:
        """Run as `_go` does, with the names of kernels and operators that torch's profiler has
        seen."""
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self._is_gpu]
        with profile(activities=activities) as profiled:
            found = self._go()
        counts: dict[tuple[str, str], int] = {}
        for event in profiled.events() or ():
            key = "kernel" if "CUDA" in str(event.device_type) else "operator", event.name[:300]
            counts[key] = counts.get(key, 0) + 1
        return found | {"ran": [[*key, count] for key, count in counts.items()][:MOST_NAMES]}

    def _run(self) -> dict[str, Any]:
        function = self._function
        assert function is not None
        for place, (arguments, outputs) in enumerate(self._calls):
            if self._uploaded is not None:
                arguments = self._uploaded[place]
            found = function(tuple(arguments)) if self._packs else function(*arguments)
            results = found if isinstance(found, (tuple, list)) else [found]
            if len(results) != len(outputs):
                return {"wrong": f"it returns {len(results)} results, not {len(outputs)}"}
            for result, output in zip(results, outputs, strict=True):
                if problem := self._store(result, output):
                    return {"wrong": problem}
        return {}

    def _on_device(self, argument: Any) -> Any:
        """A copy of an argument on the device; plain values stay."""
        if not hasattr(argument, "data_ptr"):
            return argument
        return argument.to(self._setup["device"], copy=True)

    def _return(self) -> dict[str, Any]:
        """Copy uploaded inputs back, so that the parent can see whether they changed."""
        for uploaded, (arguments, _) in zip(self._uploaded or (), self._calls, strict=False):
            for mine, given in zip(uploaded, arguments, strict=True):
                if hasattr(mine, "data_ptr"):
                    given.copy_(mine)
        return {}

    def _store(self, result: Any, output: Any) -> str:
        """Copy a result into the arena; returns why it cannot be."""
        shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        if shape is None or tuple(shape) != tuple(output.shape):
            form = type(result).__name__ if shape is None else tuple(shape)
            return f"a result is {form}, not {tuple(output.shape)}"
        if type(result).__name__ not in ("Tensor", "Parameter"):
            return f"a result is a {type(result).__name__}, not a tensor"
        if dtype != output.dtype:
            return f"a result is {dtype}, not {output.dtype}"
        output.copy_(result)
        return ""

    def _array(self, place: Mapping[str, Any]) -> Any:
        """The tensor at a place of the arena, or the plain value."""
        if "value" in place:
            return place["value"]
        import torch

        shape, start = tuple(place["shape"]), place["offset"]
        count, dtype = math.prod(shape), getattr(torch, place["dtype"])
        if not count:
            device = self._setup["device"] if self._setup["transport"] == "device" else "cpu"
            return torch.empty(shape, dtype=dtype, device=device)
        if self._setup["transport"] == "device":
            from gemmetry.judge.memory import index_of, tensor_at

            size, index = count * dtype.itemsize, index_of(self._setup["device"])
            return tensor_at(self._memory + start, size, index).view(dtype).view(shape)
        return torch.frombuffer(self._memory, dtype=dtype, count=count, offset=start).view(shape)


def load_function(path: Path, entry: str, initial: Sequence[Any]) -> Callable[..., Any]:
    """The function `entry` of a file; of a class, an instance made with `initial`.

    Raises:
        AttributeError: the file has no such name.
    """
    spec = importlib.util.spec_from_file_location("submission", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["submission"] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    found = getattr(module, entry)
    if isinstance(found, type):
        made = found(*initial)
        found = made.eval() if hasattr(made, "eval") else made
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
