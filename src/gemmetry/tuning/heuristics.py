"""Tiles that NVIDIA's matmul heuristics propose, from processes of their own.

The library (``nvidia-matmul-heuristics``) needs no GPU. Version 0.1.0.27 ends with a segmentation
fault after its last answer, and where a second precision is requested, so each precision and
layout has a process: ``python -m gemmetry.tuning.heuristics`` reads a JSON request from standard
input and prints a line of JSON for each shape.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import EnvironmentFailure, RequestError
from gemmetry.domain.operation import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    TF32,
    Layout,
    Operation,
    OperationKind,
)
from gemmetry.domain.tables import grouped
from gemmetry.hardware.devices import device_or_like
from gemmetry.providers.base import traits_of
from gemmetry.tuning.search import SearchSpace

NAME = "heuristics"
_MODULE = "nvMatmulHeuristics"
_COUNT = 8
"""Proposals for a shape."""
_SECONDS = 60
_LETTERS = {F16: "H", BF16: "T", F32: "S", E4M3: "Q", E5M2: "R", TF32: "S"}
"""Formats in the library's names of precisions (nvMatmulHeuristics.h, "Supported precisions")."""
_TF32 = "F"
"""The letter of computing in tf32."""
_GPUS = {
    "H200 SXM": "H200_SXM", "H100 SXM5": "H100_SXM", "H100 PCIe": "H100_PCIE",
    "H100 NVL": "H100_NVL",
    "A100 SXM4 80GB": "A100_SXM_80GB", "A100 PCIe 80GB": "A100_PCIE_80GB", "A10": "A10_PCIE",
    "L4": "L4", "L40S": "L40S",
    "B200": "B200", "RTX 4090": "RTX_4090", "RTX 3090": "RTX_3090", "RTX 5090": "RTX_5090",
}  # fmt: skip
"""Product in our table of devices -> in the library."""


class ProposedTile(NamedTuple):
    """A tile that the library proposes."""

    m: int
    n: int
    k: int
    stages: int
    splits: int


def proposals(
    operations: Sequence[Operation], provider: str, target: Target
) -> dict[Operation, list[ProposedTile]]:
    """The library's proposals for each operation whose formats have a name there, the best first.

    Raises:
        RequestError: the library is missing, or does not know the GPU.
        EnvironmentFailure: its process died before it had answered.
    """
    import importlib.util

    if importlib.util.find_spec(_MODULE) is None:
        raise RequestError(
            "seeds from heuristics need nvidia-matmul-heuristics, which is not installed",
            hint="Install it with: pip install 'gemmetry[tune]'",
        )
    device = None
    if target.kind is TargetKind.CUDA:
        device = device_or_like(target.product, target.architecture)
    gpu = _GPUS.get(device.name) if device else None
    if gpu is None:
        raise RequestError(
            f"NVIDIA's heuristics do not know {target.product or target}",
            hint="Leave out --seeds heuristics.",
        )
    matmuls = [one for one in operations if one.signature.kind is OperationKind.MATMUL]
    groups = grouped(matmuls, lambda one: (_precision(one), _layout(one)))
    found: dict[Operation, list[ProposedTile]] = {}
    for (precision, layout), members in groups.items():
        if "?" in precision:
            continue
        request = {
            "gpu": gpu,
            "backend": traits_of(provider).heuristics_target,
            "precision": precision,
            "layout": layout,
            "shapes": [one.matmul_shape[:3] for one in members],
        }
        found.update(zip(members, _ask(request), strict=True))
    return found


def _precision(operation: Operation) -> str:
    """``TST`` or, where A is fp8, ``QQTST``; a question mark for a format without a letter."""
    s = operation.signature
    lhs, rhs, result = (_LETTERS.get(one, "?") for one in (s.lhs, s.rhs, s.result))
    inner = _TF32 if s.lhs is TF32 else _LETTERS.get(s.accumulator, "?")
    if s.lhs.is_fp8:
        return f"{lhs}{rhs}{result}{inner}{result}"
    return f"{lhs}{inner}{result}" if s.lhs is s.rhs else "?"


def _layout(operation: Operation) -> str:
    """``NT_ROW_MAJOR``: which inputs are not stored as the result is."""
    s = operation.signature
    a, b = ("N" if one is s.result_layout else "T" for one in (s.lhs_layout, s.rhs_layout))
    return f"{a}{b}_{'ROW' if s.result_layout is Layout.ROW else 'COL'}_MAJOR"


def _ask(request: Mapping[str, Any]) -> list[list[ProposedTile]]:
    command = [sys.executable, "-m", "gemmetry.tuning.heuristics"]
    lines: list[str] = []
    last = f"it took more than {_SECONDS} s"
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            command, input=json.dumps(request), capture_output=True, text=True, timeout=_SECONDS
        )
        lines = done.stdout.splitlines()
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    count = len(request["shapes"])
    if len(lines) < count:
        raise EnvironmentFailure(
            f"NVIDIA's heuristics answered for {len(lines)} of {count} shapes: {last}",
            hint="Leave out --seeds heuristics.",
        )
    return [[ProposedTile(*row) for row in json.loads(line)] for line in lines]


def nearest(space: SearchSpace, proposed: Sequence[ProposedTile]) -> list[int]:
    """The configurations of `space` that are most like each of the proposed tiles, by the sides of
    the tile, then its depth, stages and slices."""
    sizes = np.array([_sizes(dict(one.parameters), one.tile) for one in space.configurations])
    found: dict[int, None] = {}
    weights = np.array([4.0, 4.0, 2.0, 1.0, 1.0])
    for tile in proposed if len(sizes) else ():
        wanted = np.log2([*tile[:4], max(tile.splits, 1)])
        found.setdefault(int((np.abs(sizes - wanted) * weights).sum(axis=1).argmin()))
    return list(found)


def _sizes(parameters: Mapping[str, Any], tile: tuple[int, int, int] | None) -> list[float]:
    others = (parameters.get("stages", 1), parameters.get("splits", 1))
    return [math.log2(max(value, 1)) for value in (*(tile or (1, 1, 1)), *others)]


def main() -> None:
    """Answer a request; see the module."""
    import importlib

    library = importlib.import_module(_MODULE)
    request = json.load(sys.stdin)
    layout = library.NvMatmulHeuristicsMatmulLayout[request["layout"]]
    backend = library.NvMatmulHeuristicsTarget[request["backend"]]
    made = library.NvMatmulHeuristicsInterface(backend, precision=request["precision"])
    hardware = made.createHardwareDescriptor()
    made.setHardwarePredefinedGpu(hardware, library.NvMatmulHeuristicsNvidiaGpu[request["gpu"]])
    made.loadInternalDiscoverySet(layout, hardware)
    for shape in request["shapes"]:
        answer = made.get_with_mnk(*shape, layout, _COUNT, hardware)
        kernels = (one["kernel"] for one in sorted(answer, key=lambda one: one["runtime"]))
        rows = [[k.cta_tile_m, k.cta_tile_n, k.cta_tile_k, k.stages, k.split_k] for k in kernels]
        sys.stdout.write(json.dumps(rows) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
