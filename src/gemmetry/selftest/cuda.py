"""Driver functions that only CUDA mutants need.

Builds CUDA mutants: compiles, loads and launches them on torch's memory and stream.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from cuda.bindings import driver

from gemmetry.domain.contracts import Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import LaunchError, UnsupportedError
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.cuda_compiler import Cubin, compile_source
from gemmetry.hardware.cuda_driver import CudaError, Kernel, TensorMap, checked
from gemmetry.hardware.cuda_plans import ADDRESS_ALIGNMENT, Boxes, macros_of
from gemmetry.hardware.torch_device import TorchDevice, open_device
from gemmetry.selftest.provider import HOPPER_SOURCE, SPLIT_SOURCE, CudaRecipe, Mutant
from gemmetry.selftest.torch_callers import TorchMutant


def create_stream() -> int:
    """The address of a new stream that does not wait for any other.

    Raises:
        CudaError: the driver reported an error.
    """
    flags = int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
    return int(checked(driver.cuStreamCreate(flags), "creating a stream"))


TILED_THREADS, TILED_BYTES = 256, 4 * (64 * 16 + 16 * 64 + 64 * 64)
"""tiled_matmul.cu: the threads of a block, and the bytes of its two tiles and its staging
memory."""
SPLIT_BYTES = 4 * (64 * 16 + 16 * 64)
SLICES = 4
HOPPER_THREADS, HOPPER_RING_BYTES = 288, 4 * (128 * 64 + 64 * 64) * 2
"""hopper_matmul.cu: the threads of a block, and the bytes of its four stages."""
_UNCHECKED_BYTES = 100 * 1024
"""More than the 48 KiB of dynamic shared memory that a kernel gets without opting in."""

Submit = Callable[[Sequence[torch.Tensor], torch.Tensor, int], None]
"""(inputs, output, stream): submits one launch to the stream."""


def build(item: Mutant, dispatch: Dispatch) -> Executable:
    """Compile `item` (the process keeps the machine code) and prepare it for a shape.

    Raises:
        UnsupportedError: the kernel does not support the device or the shape.
        CompileError: NVRTC rejected the source. LaunchError: the driver refused the kernel.
    """
    recipe: CudaRecipe = item.recipe
    if reason := why_unsupported(recipe, dispatch):
        raise UnsupportedError(f"{dispatch}: {reason}")
    device = open_device(dispatch.target)
    architecture = code_architecture(recipe, dispatch.target.architecture)
    cubin = compile_item(item, architecture)
    try:
        kernel = _loaded(cubin, recipe.source, device.index)
        submit = _SUBMITTERS[recipe.source](item, recipe, kernel, dispatch.operation, device)
        facts = _facts(item, recipe, kernel, architecture)
    except CudaError as error:
        raise device.translate(error, f"loading {dispatch.name}") from error
    own_stream = create_stream() if item.slug == "side_stream" else None

    def launch(inputs: Sequence[torch.Tensor], output: torch.Tensor) -> None:
        try:
            submit(
                inputs, output, own_stream or torch.cuda.current_stream(device.index).cuda_stream
            )
        except CudaError as error:
            raise device.translate(error, f"running {dispatch.name}") from error

    return TorchMutant(item.slug, device, facts, launch)


def code_architecture(recipe: CudaRecipe, device_architecture: str) -> str:
    """The architecture to compile for: Hopper's matrix instructions need the variant with an
    ``a``."""
    return f"{device_architecture}a" if recipe.source == HOPPER_SOURCE else device_architecture


def compile_item(item: Mutant, architecture: str) -> Cubin:
    """The machine code of `item`; needs no GPU.

    Raises:
        CompileError: NVRTC rejected the source.
    """
    recipe: CudaRecipe = item.recipe
    if recipe.source == HOPPER_SOURCE:
        macros = macros_of(MUTANT=item.code, CLUSTER=recipe.cluster, CHUNK=recipe.chunk)
    else:
        inputs, _, result = item.operation.split("_")[2:5]
        macros = macros_of(
            MUTANT=item.code,
            SERIAL=int(recipe.serial),
            INPUT_BF16=int(inputs.startswith("bf16")),
            INPUT_S8=int(inputs.startswith("s8")),
            INPUT_E4M3=int(inputs.startswith("e4m3")),
            OUTPUT_BF16=int(result.startswith("bf16")),
            OUTPUT_S32=int(result.startswith("s32")),
        )
    return compile_source(f"mutants/{recipe.source}", macros, architecture)


def why_unsupported(recipe: CudaRecipe, dispatch: Dispatch) -> str | None:
    """Why the kernel does not run on the dispatch's target or shape; None if it does."""
    if recipe.source != HOPPER_SOURCE:
        return None
    if dispatch.target.architecture != "sm_90":
        return f"it uses matrix instructions of sm_90, which are missing on {dispatch.target}"
    shape = dispatch.operation.matmul_shape
    if shape.k % 8 or shape.n % 4:
        return "the copy engine needs rows of a multiple of 16 bytes: K % 8 == 0 and N % 4 == 0"
    return None


@cache
def _loaded(cubin: Cubin, name: str, device_index: int) -> Kernel:
    return Kernel(cubin, name)


def _facts(item: Mutant, recipe: CudaRecipe, kernel: Kernel, architecture: str) -> BuildFacts:
    return BuildFacts(
        registers=kernel.attribute("NUM_REGS"),
        # No kernel has arrays that need local memory, so it contains only spilled registers.
        spill_bytes=kernel.attribute("LOCAL_SIZE_BYTES"),
        shared_memory_bytes=kernel.attribute("SHARED_SIZE_BYTES") + _dynamic_bytes(recipe),
        matrix_instruction="wgmma" if recipe.source == HOPPER_SOURCE else "none",
        compiled_for=architecture,
        declared=item.declared,
    )


def _dynamic_bytes(recipe: CudaRecipe) -> int:
    if recipe.source == HOPPER_SOURCE:
        return HOPPER_RING_BYTES + 2 * 64 * recipe.chunk * 4
    return SPLIT_BYTES if recipe.source == SPLIT_SOURCE else TILED_BYTES + recipe.extra_bytes


def _tiled(
    item: Mutant, recipe: CudaRecipe, kernel: Kernel, operation: Operation, device: TorchDevice
) -> Submit:
    m, n, k, _ = operation.matmul_shape
    tiles = -(-m // 64) * -(-n // 64)
    blocks = min(recipe.blocks, tiles) if recipe.blocks else tiles
    unchecked = item.slug == "unchecked_launch"
    dynamic_bytes = _UNCHECKED_BYTES if unchecked else _dynamic_bytes(recipe)

    def submit(inputs: Sequence[torch.Tensor], output: torch.Tensor, stream: int) -> None:
        arguments = _arguments((*inputs, output), m, n, k)
        kernel.launch(blocks, TILED_THREADS, dynamic_bytes, stream, arguments, check=not unchecked)

    return submit


def _split_k(
    item: Mutant, recipe: CudaRecipe, kernel: Kernel, operation: Operation, device: TorchDevice
) -> Submit:
    m, n, k, _ = operation.matmul_shape
    tiles = -(-m // 64) * -(-n // 64)
    semaphores = torch.zeros(tiles, dtype=torch.int32, device=device.torch_device)
    adds_to_zeros = not recipe.serial and item.slug != "atomics_without_zeros"

    def submit(inputs: Sequence[torch.Tensor], output: torch.Tensor, stream: int) -> None:
        if adds_to_zeros:
            address = driver.CUdeviceptr(output.data_ptr())
            zeroed = driver.cuMemsetD32Async(address, 0, output.numel(), driver.CUstream(stream))
            checked(zeroed, "setting memory to zero")
        arguments = _arguments((*inputs, output, semaphores), m, n, k, SLICES)
        kernel.launch(tiles * SLICES, TILED_THREADS, SPLIT_BYTES, stream, arguments)

    return submit


_STALE: dict[Operation, tuple[list[TensorMap], list[torch.Tensor]]] = {}
"""What ``stale_tensor_map`` caches by shape, although it should also compare the addresses. It
keeps the tensors too, so that what it writes to them affects nothing else."""


def _hopper(
    item: Mutant, recipe: CudaRecipe, kernel: Kernel, operation: Operation, device: TorchDevice
) -> Submit:
    m, n, k, _ = operation.matmul_shape
    tiles = -(-m // (128 * recipe.cluster)) * -(-n // 64)
    clusters = min(recipe.blocks, tiles) if recipe.blocks else tiles
    dynamic_bytes = _dynamic_bytes(recipe)
    kernel.allow_shared_memory(dynamic_bytes)

    boxes = [
        Boxes(element="bf16", extents=(k, m), box=(64, 128), swizzle_bytes=128),
        Boxes(element="bf16", extents=(k, n), box=(64, 64 // recipe.cluster), swizzle_bytes=128),
        Boxes(element="f32", extents=(n, m), box=(recipe.chunk, 64)),
    ]

    def make_maps(tensors: Sequence[torch.Tensor]) -> list[TensorMap]:
        return [TensorMap(_aligned(t), one) for t, one in zip(tensors, boxes, strict=True)]

    def submit(inputs: Sequence[torch.Tensor], output: torch.Tensor, stream: int) -> None:
        if item.slug == "stale_tensor_map":
            tensors = [*inputs, output]
            maps, _ = _STALE.setdefault(operation, (make_maps(tensors), tensors))
        else:
            maps = make_maps((*inputs, output))
        arguments = [*(one.argument for one in maps), *map(ctypes.c_int, (m, n, k))]
        kernel.launch(clusters * recipe.cluster, HOPPER_THREADS, dynamic_bytes, stream, arguments)

    return submit


_SUBMITTERS: dict[str, Callable[[Mutant, CudaRecipe, Kernel, Operation, TorchDevice], Submit]] = {
    "tiled_matmul": _tiled,
    SPLIT_SOURCE: _split_k,
    HOPPER_SOURCE: _hopper,
}


def _arguments(tensors: Sequence[torch.Tensor], *sizes: int) -> list[Any]:
    return [*(ctypes.c_void_p(one.data_ptr()) for one in tensors), *map(ctypes.c_int, sizes)]


def _aligned(tensor: torch.Tensor) -> int:
    address = tensor.data_ptr()
    if address % ADDRESS_ALIGNMENT:
        raise LaunchError(
            f"the copy engine needs addresses aligned to {ADDRESS_ALIGNMENT} bytes",
            hint="Pass whole allocations, not slices that begin in the middle of one.",
        )
    return int(address)
