"""The process in which a submission runs: ``python -m gemmetry.judge.child``.

The parent (:mod:`gemmetry.judge.remote`) sends one JSON object a line and reads one a line, on
descriptors that it passes. Arrays are in the arena, a memory file that both map; messages contain
only their places. Nothing here is trusted by the parent: a submission may
change anything in this process.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import random
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve requests until the parent closes its end."""
    setup = json.loads(sys.argv[1])
    received, sent, memory = setup["descriptors"]
    arena = mmap.mmap(memory, 0)
    os.close(memory)
    requests, replies = os.fdopen(received, "rb"), os.fdopen(sent, "wb", buffering=0)
    from gemmetry.judge.sandbox import confine

    missing = confine(Path(setup["scratch"]), memory_bytes=setup["memory_bytes"])
    os.chdir(setup["scratch"])
    replies.write(_line({"missing": missing}))
    served = Served(arena)
    for request in requests:
        replies.write(_line(served.answer(json.loads(request))))


def _line(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found).encode() + b"\n"


class Served:
    """A submission and the calls that were prepared."""

    def __init__(self, arena: mmap.mmap) -> None:
        self._arena = arena
        self._function: Callable[..., Any] | None = None
        self._calls: list[tuple[list[Any], list[Any]]] = []
        self._style, self._packs = "torch", False

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to one request: ``error`` with its kind and text where it fails."""
        try:
            match request["do"]:
                case "load":
                    return self._load(request)
                case "prepare":
                    self._calls = [
                        ([self._array(one) for one in call["inputs"]],
                         [self._array(one) for one in call["outputs"]])
                        for call in request["calls"]
                    ]  # fmt: skip
                    return {}
                case "go":
                    return self._go()
                case _:
                    return {"error": "unknown request"}
        except BaseException as error:  # whatever a submission raises is its verdict
            if isinstance(error, KeyboardInterrupt):
                raise
            trace = traceback.format_exc(limit=-4)
            return {"error": f"{type(error).__name__}: {error}", "trace": trace[-4000:]}

    def _load(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._style, self._packs = request["style"], request["packs"]
        seed = request["seed"]
        random.seed(seed)
        if self._style == "torch":
            import torch

            torch.manual_seed(seed)
            torch.set_num_threads(request["threads"])
        self._function = load_function(
            Path(request["path"]), request["entry"], [self._array(x) for x in request["initial"]]
        )
        return {}

    def _go(self) -> dict[str, Any]:
        function = self._function
        assert function is not None
        for arguments, outputs in self._calls:
            found = function(tuple(arguments)) if self._packs else function(*arguments)
            results = found if isinstance(found, (tuple, list)) else [found]
            if len(results) != len(outputs):
                return {"wrong": f"it returns {len(results)} results, not {len(outputs)}"}
            for result, output in zip(results, outputs, strict=True):
                if problem := self._store(result, output):
                    return {"wrong": problem}
        return {}

    def _store(self, result: Any, output: Any) -> str:
        """Copy a result into the arena; returns why it cannot be."""
        shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        if shape is None or tuple(shape) != tuple(output.shape):
            form = type(result).__name__ if shape is None else tuple(shape)
            return f"a result is {form}, not {tuple(output.shape)}"
        if self._style == "torch" and type(result).__name__ not in ("Tensor", "Parameter"):
            return f"a result is a {type(result).__name__}, not a tensor"
        if dtype != output.dtype:
            return f"a result is {dtype}, not {output.dtype}"
        if self._style == "torch":
            output.copy_(result)
        else:
            output[...] = result
        return ""

    def _array(self, place: Mapping[str, Any]) -> Any:
        """The tensor or array at a place of the arena, or the plain value."""
        if "value" in place:
            return place["value"]
        shape, start = tuple(place["shape"]), place["offset"]
        count = 1
        for size in shape:
            count *= size
        if self._style == "torch":
            import torch

            dtype = getattr(torch, place["dtype"])
            if not count:
                return torch.empty(shape, dtype=dtype)
            return torch.frombuffer(self._arena, dtype=dtype, count=count, offset=start).view(shape)
        import ml_dtypes
        import numpy as np

        name = place["dtype"]
        dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
        return np.frombuffer(self._arena, dtype, count, start).reshape(shape)


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
