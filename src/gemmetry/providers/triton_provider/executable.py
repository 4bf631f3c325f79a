"""Loads gemmetry's kernel and launches it on torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmetry.domain.contracts import Buffer, Device, Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.record import BuildFacts
from gemmetry.hardware.torch_device import TORCH_ERRORS, TorchDevice
from gemmetry.providers.triton_provider.compiling import Built, as_compile_error
from gemmetry.providers.triton_provider.plan import ALIGNMENT, KernelPlan
from gemmetry.providers.triton_provider.triton_kernels import KERNELS

_RESERVED_SHARED_BYTES = 1024
"""Shared memory of each block for the system (CUDA C++ Programming Guide, compute capability 8.x
and later)."""


class TritonExecutable:
    """One kernel with its arguments; only the pointers change from launch to launch."""

    writes_output = True
    workspace_bytes = 0

    def __init__(
        self,
        dispatch: Dispatch,
        plan: KernelPlan,
        launch: Callable[..., object],
        device: TorchDevice,
        facts: BuildFacts,
    ) -> None:
        self.device: Device = device
        self.facts = facts
        self._name = dispatch.name
        self._launch = launch
        self._torch_device = device
        names = KERNELS[plan.kernel].arg_names
        self._arguments: list[Any] = plan.arguments(names)
        self._boxes = {names.index(name): list(box) for name, box in plan.boxes.items()}
        self._inputs = [(names.index(name), index) for name, index in plan.inputs.items()]
        self._output = names.index("c")

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        arguments = self._arguments.copy()
        for position, index in self._inputs:
            arguments[position] = self._argument(position, inputs[index])
        arguments[self._output] = self._argument(self._output, output)
        try:
            self._launch(*arguments)
        except TORCH_ERRORS as error:
            raise self._torch_device.translate(error, f"running {self._name}") from error
        return output

    def close(self) -> None:
        del self._launch
        self._torch_device.release()

    def _argument(self, position: int, tensor: torch.Tensor) -> torch.Tensor | TensorDescriptor:
        """What the kernel takes for `tensor`: itself, or its description in tiles."""
        if self._torch_device.is_gpu and tensor.data_ptr() % ALIGNMENT:
            raise LaunchError(
                f"{self._name} was compiled for buffers aligned to {ALIGNMENT} bytes",
                hint="Pass whole allocations, not slices that begin in the middle of one.",
            )
        box = self._boxes.get(position)
        return tensor if box is None else TensorDescriptor.from_tensor(tensor, box)


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
    return TritonExecutable(dispatch, plan, launch, device, facts)


def _resident_programs(plan: KernelPlan, built: Built, device: TorchDevice) -> int:
    """How many programs the device runs at once, at most one for each tile."""
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
    facts = BuildFacts(matrix_instruction="none", notes=("ran in Triton's interpreter",))
    interpret = KERNELS[plan.kernel][(plan.programs,)]
    types = list(plan.pointers.values())

    def launch(*arguments: Any) -> None:
        # The interpreter takes types from the tensors, where bytes stand for several formats.
        given = iter(types)
        interpret(
            *(
                value.view(torch.uint8)
                if isinstance(value, torch.Tensor) and next(given) == "*u8"
                else value
                for value in arguments
            )
        )

    return TritonExecutable(dispatch, plan, launch, device, facts)
