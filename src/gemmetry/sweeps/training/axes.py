"""The axes of a sweep: numbers of channels and threads, and further
axes of environment variables, configuration keys, or placeholders in a command.

The points of a sweep: the product of its axes, their order, and the folder of each.

Settings of a point -> the environment that the communication library in use obeys.

NCCL (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html): ``NCCL_MIN_CTAS`` and
``NCCL_MAX_CTAS`` since 2.17, before that ``NCCL_MIN_NCHANNELS`` and ``NCCL_MAX_NCHANNELS``, which
are still obeyed; ``NCCL_NTHREADS``. RCCL reads the same variables, and ``RCCL_THREADS_PER_BLOCK``
for its kernels with warp specialisation (its changelog for 2.28). gloo has no such settings.
Whether a setting took effect, only the traces show.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any
from urllib.parse import quote

from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.hardware.detect import has_amd_driver, has_gpu_driver, masked_variables
from gemmetry.sweeps.model import SweepConfiguration
from gemmetry.sweeps.rows import configuration_entry

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_PLACEHOLDER = re.compile(r"\{(\w[\w.]*)\}")
PATH_AXIS = "path"
AXIS_FORM = "Write --axis NAME=VALUE,VALUE, as in --axis NCCL_ALGO=Ring,Tree."


class AxisKind(StrEnum):
    """What an axis changes."""

    VARIABLE = "variable"
    """An environment variable."""
    KEY = "key"
    """A key of the workload's configuration, such as ``distributed.bucket_cap_mb``."""
    PLACEHOLDER = "placeholder"
    """``{name}`` in the user's own command."""
    PATH = "path"
    """How the bytes move, as ``--path`` does for a whole sweep."""


@dataclass(frozen=True, slots=True)
class SweepAxis:
    """A further axis of a sweep."""

    name: str
    kind: AxisKind
    values: tuple[str, ...]


def check_counts(values: Sequence[int], option: str) -> tuple[int, ...]:
    """The values of an axis of numbers.

    Raises:
        RequestError: one of them is not positive, or occurs twice.
    """
    for value in values:
        if value < 1:
            raise RequestError(
                f"{option}: {value} is not a positive whole number",
                hint=f"Write {option} 256,512.",
            )
    _check_once([str(value) for value in values], option)
    return tuple(values)


def make_axes(
    axes: Mapping[str, Sequence[object]], *, command: Sequence[str] | None, keys: Sequence[str]
) -> tuple[SweepAxis, ...]:
    """The further axes of a sweep, from the values of each.

    Args:
        command: the user's own command, None for the workload.
        keys: the names of the workload's configuration keys.

    Raises:
        RequestError: one has no values, or the same twice, or changes nothing.
    """
    found = []
    for name, values in axes.items():
        texts = tuple(map(str, values))
        if not texts:
            raise RequestError(f"--axis {name} has no values", hint=AXIS_FORM)
        _check_once(texts, f"--axis {name}")
        found.append(SweepAxis(name, _kind(name, command, keys), texts))
    return tuple(found)


def placeholders(command: Sequence[str]) -> set[str]:
    """The names in braces in a command."""
    return {name for word in command for name in _PLACEHOLDER.findall(word)}


def _kind(name: str, command: Sequence[str] | None, keys: Sequence[str]) -> AxisKind:
    if name == PATH_AXIS:
        return AxisKind.PATH
    if _VARIABLE.fullmatch(name):
        return AxisKind.VARIABLE
    if command is not None:
        if name in placeholders(command):
            return AxisKind.PLACEHOLDER
        raise RequestError(
            f"--axis {name} changes nothing: it is not the name of an environment variable, and "
            f"the command does not contain {{{name}}}",
            hint=f"Write {{{name}}} in --command where its value belongs.",
        )
    if name in keys:
        return AxisKind.KEY
    raise UnknownNameError(
        "configuration key or environment variable", name, keys, where="--axis",
        more=f"Environment variables are in capital letters: --axis {name.upper()}=...",
    )  # fmt: skip


def _check_once(values: Sequence[str], option: str) -> None:
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise RequestError(f"{option}: {twice} is given twice", hint="Give each value once.")


NCU = "ncu"
"""Folder of Nsight Compute's reports, in that of a point."""

_PLAIN = "+,@:^"
"""Characters that stay as they are in folders' names, in addition to letters, digits and ``_.-~``;
others are written as in an URL."""


@dataclass(frozen=True, slots=True)
class PlannedPoint(SweepConfiguration):
    """One run of a sweep; settings that are None are the library's own choice."""

    repeat: int = 1
    """Counted from 1."""
    has_repeat_folder: bool = False

    @property
    def folder(self) -> str:
        """Its folder in the sweep, ``256thread/nccl_28channels/NCCL_ALGO=Ring/repeat_01``, which
        also identifies it."""
        parts = []
        if self.threads is not None:
            parts.append(f"{self.threads}thread")
        if self.channels is not None:
            parts.append(f"nccl_{self.channels}channels")
        parts += [f"{name}={quote(value, safe=_PLAIN)}" for name, value in self.axes]
        if self.has_repeat_folder or not parts:
            parts.append(f"repeat_{self.repeat:02d}")
        return "/".join(parts)

    @property
    def title(self) -> str:
        """For people: ``256 threads, 28 channels, NCCL_ALGO=Ring, repeat 2``."""
        is_numbered = self.has_repeat_folder or not self.settings
        return ", ".join([*self.settings, *([f"repeat {self.repeat}"] if is_numbered else [])])

    def document(self) -> dict[str, Any]:
        """What identifies the point, as JSON values."""
        return {**configuration_entry(self), "repeat": self.repeat}


def plan_points(
    threads: Sequence[int],
    channels: Sequence[int],
    axes: Sequence[SweepAxis],
    *,
    repeats: int,
    first_has_folder: bool,
    seed: int | None,
) -> tuple[PlannedPoint, ...]:
    """The points in the order in which they run: each configuration once, then each again.

    Args:
        threads, channels: () for the library's own choice.
        first_has_folder: whether the first repeats have folders ``repeat_01``; they have none in a
            sweep that began with a single repeat.
        seed: of the order, which is drawn anew for each repeat, so that drift of the machine
            affects all configurations alike; None: the order of the axes.
    """
    names = [axis.name for axis in axes]
    configurations = [
        (one, other, tuple(zip(names, values, strict=True)))
        for one in threads or (None,)
        for other in channels or (None,)
        for values in product(*(axis.values for axis in axes))
    ]
    points = []
    for repeat in range(1, repeats + 1):
        order = list(configurations)
        if seed is not None:
            random.Random(f"{seed} {repeat}").shuffle(order)
        has_folder = first_has_folder or repeat > 1
        points += [PlannedPoint(*configuration, repeat, has_folder) for configuration in order]
    return tuple(points)


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
