"""Compiles the sources of a plan for Hopper, writes what the compiler made, and reads the facts.

Runs a plan on torch's memory and stream.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gemmetry.domain.contracts import Buffer, Executable, Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.cuda_compiler import SOURCES, Cubin, compile_kept
from gemmetry.hardware.cuda_driver import LoadedPlan
from gemmetry.hardware.cuda_plans import (
    Compilation,
    LaunchPlan,
    ResourceUsage,
    performance_notes,
    ptxas_usage,
)
from gemmetry.hardware.torch_device import TORCH_ERRORS, TorchDevice
from gemmetry.providers.base import TorchLaunch, matrix_instruction, written_files
from gemmetry.providers.cuda_provider.kernel import ARCHITECTURE


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """The machine code of a plan, and the facts from building it."""

    code: Mapping[Compilation, Cubin]
    facts: BuildFacts


def compile_plan(plan: LaunchPlan, dispatch: Dispatch, workspace: Workspace) -> CompiledPlan:
    """Compile `plan`, and write sources, PTX, machine code and the compiler's output of the
    kernel itself below ``workspace.generated``.

    Raises:
        CompileError: the compiler is missing, or it rejected a source.
        StorageError: the files cannot be written.
    """
    before = time.perf_counter_ns()
    code = {
        compilation: compile_kept(
            compilation, ARCHITECTURE, workspace.cache("cuda"), fresh=workspace.force
        )
        for compilation in dict.fromkeys(launch.compilation for launch in plan.launches)
    }
    elapsed_ns = time.perf_counter_ns() - before
    main = next((one for one in code if one.entry == "gemm"), next(iter(code)))
    source = SOURCES.joinpath(f"{main.source}.cu").read_bytes()
    macros = " ".join(f"-D{name}={value}" for name, value in main.macros)
    head = f"// NVRTC, {ARCHITECTURE}, {main.source}.cu {macros}\n"
    files = {"source_path": (f"{Path(main.source).name}.cu", source)}
    facts = facts_of(plan, code, main, ARCHITECTURE, dispatch, workspace.generated, files, head)
    return CompiledPlan(code, replace(facts, compile_ns=elapsed_ns))


def facts_of(
    plan: LaunchPlan,
    code: Mapping[Compilation, Cubin],
    main: Compilation,
    architecture: str,
    dispatch: Dispatch,
    generated: Path,
    files: Mapping[str, tuple[str, bytes]],
    head: str = "",
) -> BuildFacts:
    """What the compiler shows of a plan. Its PTX, machine code and output of `main` are written
    below `generated`, after `files` (:func:`written_files`); the output follows `head`.

    Raises:
        StorageError: the files cannot be written.
    """
    usage, cubin = usage_of(plan, code), code[main]
    stem = f"{dispatch.configuration.name}.{architecture}"
    own = {
        "assembly_path": (f"{stem}.ptx", cubin.ptx.encode()),
        "binary_path": (f"{stem}.cubin", cubin.code),
        "tool_output_path": (f"{stem}.log", f"{head}{cubin.log}\n".encode()),
    }
    return BuildFacts(
        registers=max((one.registers for one in usage), default=None),
        spill_bytes=max((one.spill_bytes for one in usage), default=None),
        shared_memory_bytes=max((one.shared_bytes for one in usage), default=None),
        matrix_instruction=matrix_instruction("".join(one.ptx for one in code.values())),
        compiled_for=architecture,
        notes=tuple(note for one in code.values() for note in performance_notes(one.log)),
        **written_files(dispatch, generated, {**files, **own}),
    )


def usage_of(plan: LaunchPlan, code: Mapping[Compilation, Cubin]) -> list[ResourceUsage]:
    """What each launch needs, dynamic shared memory included."""
    found = []
    for launch in plan.launches:
        usage = ptxas_usage(code[launch.compilation].log).get(launch.compilation.entry)
        if usage is not None:
            shared = usage.shared_bytes + launch.grid.dynamic_bytes
            found.append(replace(usage, shared_bytes=shared))
    return found


def load(
    dispatch: Dispatch, plan: LaunchPlan, compiled: CompiledPlan, device: TorchDevice
) -> Executable:
    """Load the compiled plan onto the current device; only the addresses and the stream change
    from launch to launch.

    Raises:
        LaunchError: the driver rejected it. OutOfMemoryError: its workspaces do not fit.
    """
    memory: list[torch.Tensor] = []

    def allocate(size_bytes: int) -> int:
        memory.append(torch.zeros(size_bytes, dtype=torch.uint8, device=device.torch_device))
        return int(memory[-1].data_ptr())

    buffers = [spec.role for spec in (*dispatch.operation.inputs, dispatch.operation.output)]
    try:
        torch.cuda.synchronize(device.torch_device)  # Makes torch's context the current one.
        loaded = LoadedPlan(plan, buffers, compiled.code.__getitem__, allocate, device.index)
        torch.cuda.synchronize(device.torch_device)  # Workspaces hold zeros on every stream.
    except TORCH_ERRORS as error:
        raise device.translate(error, f"loading {dispatch.name}") from error
    facts = compiled.facts
    if facts.registers is None:  # The compiler's output has none.
        facts = _with_resources(facts, plan, loaded)

    def launch(inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        addresses = [tensor.data_ptr() for tensor in (*inputs, output)]
        loaded(addresses, torch.cuda.current_stream(device.index).cuda_stream)
        return output

    size = sum(tensor.nbytes for tensor in memory)
    return TorchLaunch(
        dispatch.name, device, facts, launch, workspace_bytes=size, free=memory.clear
    )


def _with_resources(facts: BuildFacts, plan: LaunchPlan, loaded: LoadedPlan) -> BuildFacts:
    """`facts` with what the driver shows of the kernels; none of this package has arrays in local
    memory, so that it contains only spilled registers."""
    shared = (
        kernel.attribute("SHARED_SIZE_BYTES") + launch.grid.dynamic_bytes
        for kernel, launch in zip(loaded.kernels, plan.launches, strict=True)
    )
    return replace(
        facts,
        registers=max(kernel.attribute("NUM_REGS") for kernel in loaded.kernels),
        spill_bytes=max(kernel.attribute("LOCAL_SIZE_BYTES") for kernel in loaded.kernels),
        shared_memory_bytes=max(shared),
    )
