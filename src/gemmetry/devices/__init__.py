"""Devices on which providers of other packages can build their executables."""

from __future__ import annotations

from gemmetry.domain.contracts import Device


def host_device() -> Device:
    """Host memory: buffers are C-contiguous numpy arrays of the tensor's storage shape."""
    from gemmetry.devices.host import HostDevice

    return HostDevice()


def torch_device(kind: str, index: int = 0) -> Device:
    """Memory through torch on ``cpu``, ``cuda`` or ``hip``: buffers are contiguous tensors of the
    tensor's storage shape.

    Raises:
        ImportError: torch is not installed.
    """
    from gemmetry.devices.torch import TorchDevice

    return TorchDevice(kind, index)
