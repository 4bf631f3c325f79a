"""The kernel's signature, constants and arguments for an operation and a tile; tuned configurations
as ``triton.Config`` objects in a Python module, or as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from gemmetry.domain.contracts import TunedDispatch
from gemmetry.domain.errors import RequestError
from gemmetry.domain.operation import F16, F32, TF32, Layout, Operation, Scaling
from gemmetry.providers.triton_provider import block_scaled
from gemmetry.providers.triton_provider import tiles as descriptors
from gemmetry.providers.triton_provider.block_scaled import TRITON_TYPES, architecture_of
from gemmetry.providers.triton_provider.tiles import TritonTile, tile_of

ALIGNMENT = 16
"""Alignment in bytes (Triton's ``tt.divisibility``) that allows loads of 16 bytes at a time."""
_IMPRECISE_STEPS = 128
"""fp8 products summed in Hopper's 14-bit accumulator before the sum is promoted to f32: the
interval of DeepSeek-V3 (arXiv 2412.19437, section 3.5.2), which the error bounds assume."""

_POINTERS = {
    "a": "lhs", "b": "rhs", "c": "result",
    **{role: role for role in ("addend", "scale_a", "scale_b", "bias", "residual")},
}  # fmt: skip
"""Pointer arguments of the kernel, in order -> role of the tensor."""


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """All arguments of one launch except the pointers."""

    pointers: Mapping[str, str]
    """Pointer argument -> Triton type, in order; absent tensors are left out."""
    inputs: Mapping[str, int]
    """Pointer argument -> index into ``operation.inputs`` (not for ``c``)."""
    integers: Mapping[str, int]
    constants: Mapping[str, Any]
    programs: int
    warps: int
    stages: int
    boxes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Pointer argument -> the tile, as it is stored, in which a descriptor describes its matrix."""
    persistent: bool = False
    """Whether `programs` is the most that are useful: as many as the GPU runs at once do all."""
    kernel: str = "matmul_kernel"
    """Name of the function; :mod:`~gemmetry.providers.triton_provider.compiling` has them."""

    def signature(self, names: Sequence[str]) -> dict[str, str]:
        """Argument -> type for all `names` of the kernel, as ``ASTSource`` requires."""
        sizes = self.integers.items()
        integers = {name: "i32" if value < 2**31 else "i64" for name, value in sizes}
        return {name: self.pointers.get(name) or integers.get(name, "constexpr") for name in names}

    def attributes(self, names: Sequence[str]) -> dict[tuple[int], list[list[Any]]]:
        """Arguments divisible by 16, by position."""
        return {
            (position,): [["tt.divisibility", ALIGNMENT]]
            for position, name in enumerate(names)
            if (name in self.pointers and name not in self.boxes)
            or self.integers.get(name, 1) % ALIGNMENT == 0
        }

    def arguments(self, names: Sequence[str]) -> list[Any]:
        """The launch's arguments with None in place of pointers."""
        values = {**self.constants, **self.integers}
        return [values.get(name) for name in names]

    def document(self) -> dict[str, Any]:
        """The plan as readable JSON values."""
        return {
            "kernel": self.kernel,
            "pointers": dict(self.pointers),
            "integers": dict(self.integers),
            "constants": dict(self.constants),
            "programs": self.programs,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


def make_plan(operation: Operation, tile: TritonTile, *, interprets: bool = False) -> KernelPlan:
    """The plan of `operation` with `tile`, on a GPU or for Triton's interpreter."""
    s = operation.signature
    m, n, k, _ = operation.matmul_shape
    roles = {spec.role: index for index, spec in enumerate(operation.inputs)}
    tensors = (*operation.inputs, operation.output)
    types = {spec.role: f"*{TRITON_TYPES[spec.dtype]}" for spec in tensors}
    constants: dict[str, Any] = {
        "C_ROW_MAJOR": s.result_layout is Layout.ROW,
        "ALPHA": s.alpha,
        "BETA": s.beta,
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": tile.block_k,
        "GROUP_M": tile.group,
    }
    boxes: dict[str, tuple[int, int]] = {}
    if s.blocks is None:
        constants |= {
            "A_ROW_MAJOR": s.lhs_layout is Layout.ROW,
            "B_ROW_MAJOR": s.rhs_layout is Layout.ROW,
            "ROW_SCALING": s.scaling is Scaling.ROW,
        }
    if not tile.describes:
        constants |= {
            "EVEN_M": m % tile.block_m == 0,
            "EVEN_N": n % tile.block_n == 0,
            "EVEN_K": k % tile.block_k == 0,
        }
    kernel = "matmul_kernel"
    if tile.describes:
        kernel = "matmul_kernel_descriptors"
        boxes = descriptors.boxes(operation, tile)
        for name, (rows, columns) in boxes.items():
            role = _POINTERS[name]
            types[role] = f"tensordesc<{types[role][1:]}[{rows}, {columns}]>"
        constants |= {
            "PROMOTED": s.lhs.is_fp8,
            "PARTS": tile.parts,
            "PERSISTENT": tile.method == descriptors.PERSISTENT,
        }
    elif s.blocks is None:
        constants |= {
            "INPUT_PRECISION": "tf32" if s.lhs is TF32 else "ieee",
            "IMPRECISE_STEPS": min(tile.block_k, _IMPRECISE_STEPS) if s.lhs.is_fp8 else None,
            "ACCUMULATE_F16": s.accumulator is F16,
        }
    else:
        kernel = "matmul_kernel_block_scaled"
        constants |= block_scaled.constants(s, tile.method, interprets=interprets)
        # The kernel reinterprets bytes: e2m1 and e8m0 have no type in Triton.
        factors = "*fp32" if s.blocks.dtype is F32 else "*u8"
        types |= {"lhs": "*u8", "rhs": "*u8", "scale_a": factors, "scale_b": factors}
    for number, step in zip_longest(range(1, 5), map(str, s.epilogue)):
        constants[f"STEP_{number}"] = step
    constants |= {name: None for name, role in _POINTERS.items() if role not in types}
    return KernelPlan(
        pointers={name: types[role] for name, role in _POINTERS.items() if role in types},
        inputs={name: roles[role] for name, role in _POINTERS.items() if role in roles},
        integers={
            "m": m,
            "n": n,
            "k": k,
            "lda": k if s.lhs_layout is Layout.ROW else m,
            "ldb": n if s.rhs_layout is Layout.ROW else k,
            "ldc": n if s.result_layout is Layout.ROW else m,
            "stride_a": m * k,
            "stride_b": k * n,
            "stride_c": m * n,
            **({} if s.blocks is None else block_scaled.strides(operation)),
        },
        constants=constants,
        programs=tile.tiles(operation),
        warps=tile.warps,
        stages=tile.stages,
        boxes=boxes,
        persistent=tile.method == descriptors.PERSISTENT,
        kernel=kernel,
    )


def kernel_source(module: str = "triton_matmul") -> bytes:
    """The source of one of gemmetry's kernels, read as a file: importing it would import triton."""
    return files("gemmetry.providers.kernels").joinpath(f"{module}.py").read_bytes()


_CONSTANTS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "PARTS", "PERSISTENT")
"""Arguments of the kernels that a configuration determines."""

_CONFIG = """\
        # {name} of {kernel}: {us:.5g} µs
        triton.Config(
            {{{constants}}},
            num_warps={num_warps},
            num_stages={num_stages},
        ),"""


def tuned_text(shapes: Sequence[Sequence[TunedDispatch]], device: str, suffix: str) -> str:
    """See :class:`gemmetry.domain.contracts.TunedFormat`.

    Raises:
        RequestError: there is no configuration.
    """
    if not shapes:
        raise RequestError(
            "there is no configuration to write", hint="See why in the table of the search."
        )
    found = {str(own[0].dispatch.operation): [_row(one) for one in own] for own in shapes}
    if suffix == ".json":
        return json.dumps({"device": device, "configurations": found}, indent=1) + "\n"
    head = f'"""Configurations that gemmetry tuned on {device}."""'
    lines = [head, "", "import triton", "", "CONFIGS = {"]
    for operation, rows in found.items():
        lines.append(f'    "{operation}": [')
        for row in rows:
            constants = ", ".join(f'"{name}": {value}' for name, value in row["constants"].items())
            text = {**row, "constants": constants, "us": row["median_ns"] / 1e3}
            lines.append(_CONFIG.format(**text))
        lines.append("    ],")
    about = "Operation -> its configurations, the fastest first, then those that tie with it."
    return "\n".join([*lines, "}", f'"""{about}"""']) + "\n"


def _row(tuned: TunedDispatch) -> dict[str, Any]:
    dispatch = tuned.dispatch
    tile = tile_of(dispatch.configuration, dispatch.operation, architecture_of(dispatch.target))
    plan = make_plan(dispatch.operation, tile)
    return {
        "name": tile.name,
        "kernel": plan.kernel,
        "median_ns": tuned.median_ns,
        "constants": {n: plan.constants[n] for n in _CONSTANTS if n in plan.constants},
        "num_warps": plan.warps,
        "num_stages": plan.stages,
    }
