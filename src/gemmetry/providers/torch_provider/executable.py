"""A torch product that runs on prepared buffers."""

from __future__ import annotations

from collections.abc import Sequence

from gemmetry.devices.torch import TORCH_ERRORS, TorchDevice
from gemmetry.domain.contracts import Buffer, Device
from gemmetry.domain.errors import UnsupportedError
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.providers.torch_provider.products import MathMode, Product


class TorchExecutable:
    """One operation, prepared for one device."""

    def __init__(
        self,
        name: str,
        device: TorchDevice,
        product: Product,
        mode: MathMode | None,
        writes: bool,
        declared: tuple[Trait, ...] = (),
    ) -> None:
        self.name = name
        self.device: Device = device
        self.facts = BuildFacts(declared=declared)
        self.writes_output = writes
        self._torch_device = device
        self._product = product
        self._mode = mode

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        if self._mode is not None:
            self._mode.apply()
        try:
            return self._product(inputs, output)
        except TORCH_ERRORS as error:
            if "CUBLAS_STATUS_NOT_SUPPORTED" in str(error):
                raise UnsupportedError(
                    f"cuBLAS has no kernel for {self.name}: {str(error).splitlines()[0]}",
                    hint="Try another layout, or sizes that are multiples of 16.",
                ) from error
            raise self._torch_device.translate(error, f"running {self.name}") from error

    def close(self) -> None:
        del self._product
        self.device.release()
