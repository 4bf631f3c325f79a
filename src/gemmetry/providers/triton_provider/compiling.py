"""Compiles the kernel for an architecture, stores the compiler's output, reads the machine code,
and launches it on torch tensors. Importing this module imports triton; torch is imported where a
kernel is loaded, which processes that only compile never do.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmetry.domain.contracts import Buffer, Executable, Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import CompileError, LaunchError
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.base import TorchLaunch, matrix_instruction, written_files
from gemmetry.providers.kernels.triton_block_scaled import matmul_kernel_block_scaled
from gemmetry.providers.kernels.triton_descriptors import matmul_kernel_descriptors
from gemmetry.providers.kernels.triton_matmul import matmul_kernel
from gemmetry.providers.triton_provider.block_scaled import Architecture
from gemmetry.providers.triton_provider.plan import ALIGNMENT, KernelPlan

if TYPE_CHECKING:
    import torch

    from gemmetry.hardware.torch_device import TorchDevice

KERNELS: dict[str, Any] = {
    "matmul_kernel": matmul_kernel,
    "matmul_kernel_descriptors": matmul_kernel_descriptors,
    "matmul_kernel_block_scaled": matmul_kernel_block_scaled,
}
"""The kernels of this provider by name."""

_FACTS = {
    "ttir": "source_path", "ttgir": "", "ptx": "assembly_path", "cubin": "binary_path",
    "amdgcn": "assembly_path", "hsaco": "binary_path",
}  # fmt: skip
"""Forms of a kernel that are kept -> the fact that names the file."""
_CUOBJDUMP_SECONDS = 30


class Built(NamedTuple):
    """Triton's compiled kernel and the facts from building it."""

    kernel: Any
    facts: BuildFacts


def compile_kernel(
    dispatch: Dispatch,
    plan: KernelPlan,
    architecture: Architecture,
    workspace: Workspace,
) -> Built:
    """Compile `plan` for `architecture`, writing the intermediate forms below
    ``workspace.generated``.

    Triton keeps its own cache in the workspace's (unless TRITON_CACHE_DIR is set): kernels
    compiled ahead load immediately in another process.

    Raises:
        CompileError: Triton or ptxas rejected the kernel.
        StorageError: the files cannot be written.
    """
    function = KERNELS[plan.kernel]
    names = function.arg_names
    source = ASTSource(
        function, plan.signature(names), dict(plan.constants), plan.attributes(names)
    )
    options = {"num_warps": plan.warps, "num_stages": plan.stages, "enable_fp_fusion": True}
    os.environ.setdefault("TRITON_CACHE_DIR", str(workspace.cache("triton")))
    backend = ("hip", architecture.name) if architecture.is_amd else ("cuda", architecture.number)
    target = GPUTarget(*backend, architecture.warp_size)
    before = time.perf_counter_ns()
    with _always_compiling(workspace.force), as_compile_error(dispatch):
        kernel = triton.compile(source, target=target, options=options)
    elapsed_ns = time.perf_counter_ns() - before
    shared = int(kernel.metadata.shared)
    if shared > architecture.shared_memory_bytes:
        raise CompileError(
            f"{dispatch.name} needs {shared} bytes of shared memory, {architecture.name} has "
            f"{architecture.shared_memory_bytes} per block",
            hint="Use fewer stages or smaller tiles.",
        )
    facts = _read_facts(kernel, dispatch, architecture, elapsed_ns, workspace.generated)
    return Built(kernel, facts)


@contextlib.contextmanager
def _always_compiling(force: bool) -> Iterator[None]:
    with triton.knobs.compilation.scope() if force else contextlib.nullcontext():
        if force:
            triton.knobs.compilation.always_compile = True
        yield


@contextlib.contextmanager
def as_compile_error(dispatch: Dispatch) -> Iterator[None]:
    """Turn Triton's exceptions for kernels that it cannot compile or load into CompileError.

    Triton has no common base class: its front end raises CompilationError, its pass manager
    RuntimeError and ValueError, ptxas PTXASError, the loader OutOfResources.
    """
    try:
        yield
    except (triton.TritonError, RuntimeError, ValueError, AssertionError, KeyError) as error:
        raise CompileError(
            f"triton cannot compile {dispatch.name}: {first_useful_line(error)}",
            hint="Try another configuration; the whole output is in the worker's log.",
        ) from error


def first_useful_line(error: BaseException) -> str:
    """The line of a compiler's output that states the cause of an error, not its location.

    Triton's front end chains one error per function that it was inlining; the first one is the
    cause.
    """
    while error.__cause__ is not None and str(error.__cause__).strip():
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    words = re.compile(r"error|exceed|out of resource|assert", re.I)
    # Triton's front end shows the code with a caret under it, and the reason in the last line.
    last = lines[-1] if lines else type(error).__name__
    return next(filter(words.search, lines), last)[:300]


def _read_facts(
    kernel: Any, dispatch: Dispatch, architecture: Architecture, elapsed_ns: int, generated: Path
) -> BuildFacts:
    """Write the kernel's forms. Returns what they and the compiler show."""
    stem = f"{dispatch.configuration.name}.{architecture.name}"
    files = {
        fact or form: (f"{stem}.{form}", data if isinstance(data, bytes) else data.encode())
        for form, fact in _FACTS.items()
        if (data := kernel.asm.get(form)) is not None
    }
    paths = written_files(dispatch, generated, files)
    assembly = kernel.asm.get("ptx") or kernel.asm.get("amdgcn") or ""
    if architecture.is_amd:
        registers, spilled = amd_resources(assembly)
    else:
        cubin = generated.parent / paths["binary_path"] if "cubin" in kernel.asm else None
        printed = None if cubin is None else _resource_usage(cubin)
        registers, spilled = parse_resource_usage(printed or "")
        if cubin is not None and printed is not None:
            log = f"$ cuobjdump -res-usage {cubin.name}\n{printed}".encode()
            paths |= written_files(dispatch, generated, {"tool_output_path": (f"{stem}.log", log)})
    paths.pop("ttgir", None)
    return BuildFacts(
        registers=registers,
        spill_bytes=spilled,
        shared_memory_bytes=int(kernel.metadata.shared),
        matrix_instruction=matrix_instruction(assembly),
        compiled_for=architecture.name,
        compile_ns=elapsed_ns,
        **paths,
    )


def amd_resources(assembly: str) -> tuple[int | None, int | None]:
    """Vector registers (with accumulation registers) and spilled bytes per lane, from the kernel
    metadata at the end of AMD assembly (LLVM AMDGPU guide, code object V5 metadata)."""

    vector = re.search(r"\.vgpr_count:\s+(\d+)", assembly)
    spilled = re.search(r"\.vgpr_spill_count:\s+(\d+)", assembly)
    if vector is None or spilled is None:
        return None, None
    # .vgpr_count is the unified total on CDNA 2 and later, accumulation registers included.
    return int(vector[1]), 4 * int(spilled[1])


def _resource_usage(cubin: Path) -> str | None:
    """Facts about a kernel from the cuobjdump in Triton's package; None where it cannot run."""
    try:
        return subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)],
            capture_output=True, text=True, check=True, timeout=_CUOBJDUMP_SECONDS,
        ).stdout  # fmt: skip
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None


def parse_resource_usage(output: str) -> tuple[int | None, int | None]:
    """``REG:210 STACK:0 SHARED:0 LOCAL:0`` -> (210, 0): registers, stack plus local bytes. The
    kernel has no arrays of its own, so its stack holds spilled registers only."""
    match = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", output)
    return (int(match[1]), int(match[2]) + int(match[3])) if match else (None, None)


_RESERVED_SHARED_BYTES = 1024
"""Shared memory of each block for the system (CUDA C++ Programming Guide, compute capability 8.x
and later)."""


def _executable(
    dispatch: Dispatch,
    plan: KernelPlan,
    kernel: Callable[..., object],
    device: TorchDevice,
    facts: BuildFacts,
) -> TorchLaunch:
    """One kernel with its arguments; only the pointers change from launch to launch."""
    names = KERNELS[plan.kernel].arg_names
    usual = plan.arguments(names)
    boxes = {names.index(name): list(box) for name, box in plan.boxes.items()}
    places = [(names.index(name), index) for name, index in plan.inputs.items()]
    of_output = names.index("c")

    def argument(position: int, tensor: torch.Tensor) -> torch.Tensor | TensorDescriptor:
        """Kernel's argument for `tensor`: itself, or its description in tiles."""
        if device.is_gpu and tensor.data_ptr() % ALIGNMENT:
            raise LaunchError(
                f"{dispatch.name} was compiled for buffers aligned to {ALIGNMENT} bytes",
                hint="Pass whole allocations, not slices that begin in the middle of one.",
            )
        box = boxes.get(position)
        return tensor if box is None else TensorDescriptor.from_tensor(tensor, box)

    def launch(inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        arguments = usual.copy()
        for position, index in places:
            arguments[position] = argument(position, inputs[index])
        arguments[of_output] = argument(of_output, output)
        kernel(*arguments)
        return output

    return TorchLaunch(dispatch.name, device, facts, launch)


def load(dispatch: Dispatch, plan: KernelPlan, built: Built, device: TorchDevice) -> Executable:
    """Load the compiled kernel onto the current device.

    Raises:
        CompileError: the device does not have the resources that the kernel needs.
    """
    with as_compile_error(dispatch):
        # Loads it, which counts its registers.
        launch = built.kernel[(plan.programs, 1, 1)]
        if plan.persistent:
            launch = built.kernel[(_resident_programs(plan, built, device), 1, 1)]
    facts = built.facts
    if facts.registers is None:
        facts = replace(facts, registers=built.kernel.n_regs)
    return _executable(dispatch, plan, launch, device, facts)


def _resident_programs(plan: KernelPlan, built: Built, device: TorchDevice) -> int:
    """Number of programs that the device runs at once, at most one for each tile."""
    import torch

    limits = torch.cuda.get_device_properties(device.torch_device)
    registers = 32 * plan.warps * max(int(built.kernel.n_regs), 1)
    shared = int(built.kernel.metadata.shared) + _RESERVED_SHARED_BYTES
    each = min(
        int(limits.regs_per_multiprocessor) // registers,
        int(limits.shared_memory_per_multiprocessor) // shared,
    )
    return min(plan.programs, int(limits.multi_processor_count) * max(each, 1))


def interpreted(dispatch: Dispatch, plan: KernelPlan, device: TorchDevice) -> Executable:
    """The kernel in Triton's interpreter, on CPU tensors."""
    import torch

    facts = BuildFacts(matrix_instruction="none", notes=("ran in Triton's interpreter",))
    interpret = KERNELS[plan.kernel][(plan.programs,)]

    def launch(*arguments: Any) -> None:
        # The interpreter takes types from the tensors, where bytes stand for several formats.
        types, given = iter(plan.pointers.values()), list(arguments)
        for position, value in enumerate(arguments):
            if isinstance(value, torch.Tensor) and next(types) == "*u8":
                given[position] = value.view(torch.uint8)
        interpret(*given)

    return _executable(dispatch, plan, launch, device, facts)
