"""Runs a plan on torch's memory and stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gemmetry.devices.cuda_driver import CudaError
from gemmetry.devices.cuda_plans import LaunchPlan
from gemmetry.devices.cuda_runner import LoadedPlan
from gemmetry.devices.torch import TORCH_ERRORS, TorchDevice
from gemmetry.domain.contracts import Buffer, Device, Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.cuda_provider.launching.compiling import CompiledPlan


class CudaKernelExecutable:
    """A loaded plan; only the addresses and the stream change from launch to launch."""

    writes_output = True

    def __init__(
        self, name: str, loaded: LoadedPlan, memory: list[torch.Tensor], device: TorchDevice,
        facts: BuildFacts,
    ) -> None:  # fmt: skip
        """
        Args:
            memory: the workspaces, which are freed with the executable.
        """
        self.device: Device = device
        self.facts = facts
        self._name = name
        self._loaded = loaded
        self._memory = memory
        self._torch_device = device

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        addresses = [tensor.data_ptr() for tensor in inputs]
        addresses.append(output.data_ptr())
        try:
            stream = torch.cuda.current_stream(self._torch_device.index).cuda_stream
            self._loaded(addresses, stream)
        except (CudaError, *TORCH_ERRORS) as error:
            raise self._torch_device.translate(error, f"running {self._name}") from error
        return output

    @property
    def workspace_bytes(self) -> int:
        """Memory that launches write and that belongs to the executable."""
        return sum(tensor.nbytes for tensor in self._memory)

    def close(self) -> None:
        del self._loaded
        self._memory.clear()
        self._torch_device.release()


def load(
    dispatch: Dispatch, plan: LaunchPlan, compiled: CompiledPlan, device: TorchDevice
) -> Executable:
    """Load the compiled plan onto the current device.

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
    except (CudaError, *TORCH_ERRORS) as error:
        raise device.translate(error, f"loading {dispatch.name}") from error
    facts = compiled.facts
    if facts.registers is None:  # The compiler's output has none.
        facts = _with_resources(facts, plan, loaded)
    return CudaKernelExecutable(dispatch.name, loaded, memory, device, facts)


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
