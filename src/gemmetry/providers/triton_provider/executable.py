"""Loads gemmetry's kernel and launches it on torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from gemmetry.devices.torch import TORCH_ERRORS, TorchDevice
from gemmetry.domain.contracts import Buffer, Device, Executable
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.triton_provider.compiling import Built, as_compile_error
from gemmetry.providers.triton_provider.kernels import KERNELS
from gemmetry.providers.triton_provider.plan import ALIGNMENT, KernelPlan


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
        self._inputs = [(names.index(name), index) for name, index in plan.inputs.items()]
        self._output = names.index("c")

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        arguments = self._arguments.copy()
        for position, index in self._inputs:
            arguments[position] = self._aligned(inputs[index])
        arguments[self._output] = self._aligned(output)
        try:
            self._launch(*arguments)
        except TORCH_ERRORS as error:
            raise self._torch_device.translate(error, f"running {self._name}") from error
        return output

    def close(self) -> None:
        del self._launch
        self._torch_device.release()

    def _aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._torch_device.is_gpu and tensor.data_ptr() % ALIGNMENT:
            raise LaunchError(
                f"{self._name} was compiled for buffers aligned to {ALIGNMENT} bytes",
                hint="Pass whole allocations, not slices that begin in the middle of one.",
            )
        return tensor


def load(dispatch: Dispatch, plan: KernelPlan, built: Built, device: TorchDevice) -> Executable:
    """Load the compiled kernel onto the current device.

    Raises:
        CompileError: the device does not have the resources that the kernel needs.
    """
    with as_compile_error(dispatch):
        launch = built.kernel[(plan.programs, 1, 1)]
    facts = built.facts
    if facts.registers is None:
        facts = replace(facts, registers=built.kernel.n_regs)
    return TritonExecutable(dispatch, plan, launch, device, facts)


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
