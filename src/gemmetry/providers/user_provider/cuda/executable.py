"""Launches a user's CUDA C++ kernel on torch's memory and stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from gemmetry.devices.cuda_driver import CudaError, Kernel, PreparedLaunch
from gemmetry.devices.cuda_plans import Grid
from gemmetry.devices.torch import TorchDevice, open_device
from gemmetry.domain.contracts import Buffer, Device, Workspace
from gemmetry.domain.dispatch import Dispatch, Parameter
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.user_provider.cuda.compiling import compile_kernel
from gemmetry.providers.user_provider.cuda.launch import arguments_for, launch_sizes
from gemmetry.providers.user_provider.cuda.manifest import CudaManifest

_PORTABLE_CLUSTER = 8
"""Blocks of a cluster that every GPU with clusters supports (CUDA C++ Programming Guide)."""
_DEFAULT_SHARED_BYTES = 48 * 1024
"""What a block gets without opting in (the same guide)."""


class UserCudaExecutable:
    """One kernel with its arguments; only addresses change from launch to launch."""

    writes_output = True

    def __init__(
        self,
        kernel: CudaManifest,
        dispatch: Dispatch,
        values: Mapping[str, Parameter],
        loaded: Kernel,
        device: TorchDevice,
        facts: BuildFacts,
    ) -> None:
        sizes = launch_sizes(kernel, dispatch.operation, values)
        arguments = arguments_for(kernel, dispatch.operation, values)
        grid = Grid(
            blocks=sizes.grid,
            threads=sizes.block,
            cluster=sizes.cluster,
            dynamic_bytes=sizes.shared_bytes,
        )
        if sizes.shared_bytes > _DEFAULT_SHARED_BYTES:
            loaded.allow_shared_memory(sizes.shared_bytes)
        x, y, z = sizes.cluster
        if x * y * z > _PORTABLE_CLUSTER:
            loaded.allow_large_clusters()
        self.device: Device = device
        self.facts = facts
        self._name = dispatch.name
        self._torch_device = device
        self._loaded = loaded  # its module holds the function that is launched
        self._inputs = arguments.inputs
        self._outputs = arguments.outputs
        self._launch = PreparedLaunch(loaded, grid, arguments.values)

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """Submit one launch to torch's current stream.

        Raises:
            LaunchError: the driver rejected it.
        """
        arguments = self._launch.arguments
        for position, index in self._inputs:
            arguments[position].value = inputs[index].data_ptr()
        for position in self._outputs:
            arguments[position].value = output.data_ptr()
        try:
            self._launch(torch.cuda.current_stream(self._torch_device.index).cuda_stream)
        except CudaError as error:
            raise self._torch_device.translate(error, f"running {self._name}") from error
        return output

    def close(self) -> None:
        del self._launch, self._loaded
        self._torch_device.release()


def build_executable(
    kernel: CudaManifest, dispatch: Dispatch, values: Mapping[str, Parameter], workspace: Workspace
) -> UserCudaExecutable:
    """Compile `kernel` or find its machine code, and load it.

    Raises:
        CompileError: it cannot be compiled. LaunchError: the driver refused it.
    """
    cubin, facts = compile_kernel(kernel, dispatch, values, workspace.generated)
    device = open_device(dispatch.target)
    try:
        loaded = Kernel(cubin, kernel.function_name)
        # A kernel may have arrays of its own in local memory, so that not all of it is spilled.
        facts = replace(facts, registers=loaded.attribute("NUM_REGS"))
        return UserCudaExecutable(kernel, dispatch, values, loaded, device, facts)
    except CudaError as error:
        raise device.translate(error, f"loading {dispatch.name}") from error
