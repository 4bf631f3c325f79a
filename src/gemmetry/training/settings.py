"""Settings of a point -> the environment that the communication library in use obeys.

NCCL (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html): ``NCCL_MIN_CTAS`` and
``NCCL_MAX_CTAS`` since 2.17, before that ``NCCL_MIN_NCHANNELS`` and ``NCCL_MAX_NCHANNELS``, which
are still obeyed; ``NCCL_NTHREADS``. RCCL reads the same variables, and ``RCCL_THREADS_PER_BLOCK``
for its kernels with warp specialisation (its changelog for 2.28). gloo has no such settings.
Whether a setting took effect, only the traces show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gemmetry.hardware.environment import masked_variables
from gemmetry.hardware.topology import has_amd_driver, has_gpu_driver
from gemmetry.training.axes import PATH_AXIS, AxisKind, SweepAxis
from gemmetry.training.points import PlannedPoint

PATHS = ("kernel", "symmetric", "copy_engine")
"""How the bytes of collectives move."""

_CHANNELS = ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS")
_THREADS = {"nccl": ("NCCL_NTHREADS",), "rccl": ("NCCL_NTHREADS", "RCCL_THREADS_PER_BLOCK")}

_ROCM = {"HSA_ENABLE_SDMA": "0", "PYTORCH_ROCM_PROFILER_ENABLE_TRACING": "1"}
"""Set for every point on ROCm, as in the sweep analysis document, unless the user has set them."""

_OF_PATH = {
    "kernel": {},
    "symmetric": {"NCCL_NVLS_ENABLE": "0"},
    "copy_engine": {"NCCL_CTA_POLICY": "2", "NCCL_NVLS_ENABLE": "0"},
}
"""Registered buffers without multicast over NVLink; ``NCCL_CTA_POLICY_ZERO`` by its number, which
every version with that policy reads."""


class CommunicationLibrary(StrEnum):
    """The library that moves the bytes."""

    NCCL = "nccl"
    RCCL = "rccl"
    GLOO = "gloo"


@dataclass(frozen=True, slots=True)
class RequestedSetting:
    """One setting of a point, and the variables that request it."""

    name: str
    value: str
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    """Why nothing is set; "" if something is."""

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name,
            "value": self.value,
            "environment": masked_variables(self.environment),
            "note": self.note,
        }


def library_of(backend: str | None) -> CommunicationLibrary:
    """The library behind torch's `backend` (nccl or gloo) on this machine; None: what this
    machine's devices use."""
    if backend == "gloo" or (backend is None and not has_gpu_driver()):
        return CommunicationLibrary.GLOO
    return CommunicationLibrary.RCCL if has_amd_driver() else CommunicationLibrary.NCCL


def requested_settings(
    point: PlannedPoint,
    axes: tuple[SweepAxis, ...],
    library: CommunicationLibrary,
    path: str,
) -> tuple[RequestedSetting, ...]:
    """What is requested for a point, in the order channels, threads, axes, path.

    Args:
        path: how the bytes move where no axis decides it.
    """
    found = []
    if point.channels is not None:
        found.append(_counted("channels", point.channels, _CHANNELS, library))
    if point.threads is not None:
        names = _THREADS.get(library, ())
        found.append(_counted("threads", point.threads, names, library))
    kinds = {axis.name: axis.kind for axis in axes}
    for name, value in point.axes:
        match kinds[name]:
            case AxisKind.VARIABLE:
                found.append(RequestedSetting(name, value, {name: value}))
            case AxisKind.PATH:
                found.append(RequestedSetting(name, value, _OF_PATH[value]))
            case _:
                found.append(RequestedSetting(name, value))
    if path != PATHS[0] and PATH_AXIS not in kinds:
        found.append(RequestedSetting(PATH_AXIS, path, _OF_PATH[path]))
    return tuple(found)


def variables_set_by(threads: bool, channels: bool, library: CommunicationLibrary) -> set[str]:
    """The variables that the axes of threads and channels set, which no other axis may set."""
    names = {*(_CHANNELS if channels else ()), *(_THREADS.get(library, ()) if threads else ())}
    return set() if library is CommunicationLibrary.GLOO else names


def common_environment(library: CommunicationLibrary, given: Mapping[str, str]) -> dict[str, str]:
    """Variables of every point, without those that the user has `given`."""
    if library is not CommunicationLibrary.RCCL:
        return {}
    return {name: value for name, value in _ROCM.items() if name not in given}


def _counted(
    name: str, value: int, variables: tuple[str, ...], library: CommunicationLibrary
) -> RequestedSetting:
    if library is CommunicationLibrary.GLOO:
        note = "gloo has no such setting, so that points differ in name only"
        return RequestedSetting(name, str(value), note=note)
    return RequestedSetting(name, str(value), dict.fromkeys(variables, str(value)))
