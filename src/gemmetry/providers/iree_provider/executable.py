"""A compiled dispatch that runs on prepared buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmetry.domain.contracts import Device
from gemmetry.domain.errors import LaunchError
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.iree_provider.device import (
    IreeBuffer,
    IreeDevice,
    LoadedModule,
    translate,
)


class IreeExecutable:
    """One function of a loaded module; it writes into the output buffer passed to it.

    Args:
        device: the device on which the module is loaded.
        module: kept alive by this executable.
        function_name: the dispatch's name.
        facts: facts from compiling.
    """

    writes_output = True

    def __init__(
        self, device: IreeDevice, module: LoadedModule, function_name: str, facts: BuildFacts
    ) -> None:
        import iree.runtime

        self.device: Device = device
        self._iree_device = device
        self.facts = facts
        self._list: Any = iree.runtime.VmVariantList
        self._function_name = function_name
        self._module: LoadedModule | None = module
        self._function = module.function(function_name)
        reflection = self._function.reflection
        self._is_async = reflection.get("iree.abi.model") == "coarse-fences"

    def run(self, inputs: Sequence[IreeBuffer], output: IreeBuffer) -> IreeBuffer:
        """Submit one launch; on the CPU it is complete when this returns.

        Raises:
            LaunchError: the runtime rejected it, or the executable is closed.
            OutOfMemoryError: not enough memory for the function's own allocations.
        """
        module = self._module
        if module is None:
            raise LaunchError(f"{self._function_name} is closed")
        arguments = self._list(len(inputs) + 3)
        for buffer in inputs:
            arguments.push_ref(buffer.view)
        arguments.push_ref(output.view)
        if self._is_async:
            wait, signal = self._iree_device.next_fences()
            arguments.push_ref(wait)
            arguments.push_ref(signal)
        try:
            module.context.invoke(self._function, arguments, self._list(1))
        except (RuntimeError, ValueError) as error:
            if self._is_async:
                self._iree_device.abandon_launch()
            raise translate(error, f"launching {self._function_name}") from error
        return output

    def close(self) -> None:
        """Release the module, which is unloaded with its last executable."""
        self.device.synchronize()
        self._module = None
        self._function = None
