"""An algorithm on torch's memory and stream."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gemmetry.devices.torch import TORCH_ERRORS, TorchDevice
from gemmetry.domain.contracts import Buffer, Device
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.cublaslt_provider.bindings import Matmul, Result
from gemmetry.providers.cublaslt_provider.problem import problem_of


class CublasLtExecutable:
    """One algorithm; only the addresses and the stream change from launch to launch."""

    writes_output = True

    def __init__(
        self, name: str, operation: Operation, matmul: Matmul, result: Result,
        device: TorchDevice, facts: BuildFacts,
    ) -> None:  # fmt: skip
        """
        Raises:
            OutOfMemoryError: the workspace of the algorithm does not fit.
        """
        with device.errors(f"allocating the workspace of {name}"):
            self._memory = torch.empty(
                result.workspace_bytes, dtype=torch.uint8, device=device.torch_device
            )
        problem = problem_of(operation)
        roles = [spec.role for spec in operation.inputs]
        self.device: Device = device
        self.facts = facts
        self.workspace_bytes = result.workspace_bytes
        """Memory that launches write and that belongs to the executable."""
        self._name = name
        self._matmul = matmul
        self._result = result
        self._torch_device = device
        self._a, self._b = roles.index(problem.a.role), roles.index(problem.b.role)
        self._c = roles.index(problem.c_role) if problem.c_role else None
        self._pointers = {key: roles.index(role) for key, role in matmul.pointer_names.items()}

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        d = output.data_ptr()
        c = d if self._c is None else inputs[self._c].data_ptr()
        addresses = (inputs[self._a].data_ptr(), inputs[self._b].data_ptr(), c, d)
        pointers = {key: inputs[index].data_ptr() for key, index in self._pointers.items()}
        try:
            stream = torch.cuda.current_stream(self._torch_device.index).cuda_stream
            self._matmul.launch(self._result, addresses, pointers, self._memory.data_ptr(), stream)
        except TORCH_ERRORS as error:
            raise self._torch_device.translate(error, f"running {self._name}") from error
        return output

    def close(self) -> None:
        self._matmul.close()
        del self._memory
        self._torch_device.release()
