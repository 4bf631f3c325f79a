"""Compiles the Gluon kernel and launches it; importing this module imports triton and torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from gemmetry.domain.contracts import Buffer, Device
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.operation import BF16, F16, F32, DType, Layout, Operation
from gemmetry.hardware.torch_device import TORCH_ERRORS, TorchDevice
from gemmetry.providers.kernels.triton_gluon import gluon_matmul_kernel
from gemmetry.providers.triton_provider.block_scaled import TRITON_TYPES, Architecture
from gemmetry.providers.triton_provider.compiling import Built, as_compile_error, compile_source
from gemmetry.providers.triton_provider.plan import ALIGNMENT
from gemmetry.providers.triton_provider.tiles import TritonTile

_ELEMENTS = {BF16: gl.bfloat16, F16: gl.float16, F32: gl.float32}


class Box:
    """A tile of a matrix in shared memory: its shape, and the swizzle that bulk copies apply."""

    def __init__(self, rows: int, columns: int, dtype: DType) -> None:
        self.shape = [rows, columns]
        self.layout = gl.NVMMASharedLayout.get_default_for(self.shape, _ELEMENTS[dtype])
        self.type = f"tensordesc<{TRITON_TYPES[dtype]}[{rows}, {columns}],{self.layout!r}>"
        """As Triton writes the type of an argument that describes a matrix in such boxes."""

    def of(self, tensor: torch.Tensor) -> TensorDescriptor:
        """The argument that describes `tensor`."""
        return TensorDescriptor.from_tensor(tensor, self.shape, self.layout)


def boxes_of(operation: Operation, tile: TritonTile) -> tuple[Box, Box, Box]:
    """The boxes of A, B and C; of a column-major B those of its transpose."""
    s = operation.signature
    right = (tile.block_k, tile.block_n)
    if s.rhs_layout is Layout.COLUMN:
        right = (tile.block_n, tile.block_k)
    return (
        Box(tile.block_m, tile.block_k, s.lhs),
        Box(*right, s.rhs),
        Box(tile.block_m, tile.block_n, s.result),
    )


def compile_tile(
    dispatch: Dispatch,
    tile: TritonTile,
    architecture: Architecture,
    generated: Path,
    *,
    force: bool,
) -> Built:
    """Compile the kernel for the dispatch's formats and `tile`.

    Raises:
        CompileError: Triton or ptxas rejected it. StorageError: the files cannot be written.
    """
    types = [box.type for box in boxes_of(dispatch.operation, tile)] + ["i32"] * 3
    constants = _constants(dispatch.operation, tile)
    names = gluon_matmul_kernel.arg_names
    signature = dict(zip(names, types, strict=False)) | dict.fromkeys(constants, "constexpr")
    source = GluonASTSource(gluon_matmul_kernel, signature, constants, {})
    options = {"num_warps": tile.warps}
    return compile_source(dispatch, source, options, architecture, generated, force=force)


def _constants(operation: Operation, tile: TritonTile) -> dict[str, Any]:
    """In the order of the kernel's arguments."""
    return {
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": tile.block_k,
        "GROUP_M": tile.group,
        "STAGES": tile.stages,
        "WARPS": tile.warps,
        "B_ROW_MAJOR": operation.signature.rhs_layout is Layout.ROW,
    }


class GluonExecutable:
    """The kernel with its tile; each launch describes the matrices anew."""

    writes_output = True

    def __init__(
        self, dispatch: Dispatch, tile: TritonTile, built: Built, device: TorchDevice
    ) -> None:
        """
        Raises:
            CompileError: the device does not have the resources that the kernel needs.
        """
        operation = dispatch.operation
        with as_compile_error(dispatch):
            self._launch = built.kernel[(tile.tiles(operation), 1, 1)]
        registers = built.facts.registers or built.kernel.n_regs
        self.device: Device = device
        self.facts = replace(built.facts, registers=registers)
        self._torch_device = device
        self._name = dispatch.name
        self._boxes = boxes_of(operation, tile)
        m, n, k, _ = operation.matmul_shape
        self._numbers = [m, n, k, *_constants(operation, tile).values()]

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """Submit one launch to torch's current stream.

        Raises:
            LaunchError: a buffer is not aligned, or the driver rejected the launch.
        """
        tensors = (*inputs, output)
        if any(tensor.data_ptr() % ALIGNMENT for tensor in tensors):
            raise LaunchError(
                f"bulk copies need buffers aligned to {ALIGNMENT} bytes: {self._name}",
                hint="Pass whole allocations, not slices that begin in the middle of one.",
            )
        described = [box.of(tensor) for box, tensor in zip(self._boxes, tensors, strict=True)]
        try:
            self._launch(*described, *self._numbers)
        except TORCH_ERRORS as error:
            raise self._torch_device.translate(error, f"running {self._name}") from error
        return output

    def close(self) -> None:
        del self._launch
        self._torch_device.release()
