"""Targets: the devices that dispatches run on or are compiled for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from gemmetry.domain.errors import RequestError


class TargetKind(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"
    HIP = "hip"
    VULKAN = "vulkan"
    NULL = "null"
    """The simulated device of the null provider."""


@dataclass(frozen=True, slots=True)
class Target:
    """A device, or for cross-compiling just an architecture (then ``index`` is None).

    Two targets are the same for comparison when their ``name`` is.
    """

    kind: TargetKind
    architecture: str = ""
    """sm_90, gfx942 ...; empty for this machine's CPU."""
    index: int | None = 0
    """Which device of that kind on this machine; None: none is attached, compile only."""
    product: str = field(default="", compare=False)
    """The product name, e.g. "NVIDIA H200"; looked up in the table of devices."""

    @property
    def name(self) -> str:
        """``cpu``, ``cuda-sm_90`` ...: the key in records."""
        return f"{self.kind}-{self.architecture}" if self.architecture else str(self.kind)

    @property
    def device(self) -> str:
        """``cpu``, ``cuda:1`` ...: how the device is addressed here; "" if none is attached."""
        if self.index is None:
            return ""
        return str(self.kind) if self.kind is TargetKind.CPU else f"{self.kind}:{self.index}"

    @property
    def is_gpu(self) -> bool:
        return self.kind in (TargetKind.CUDA, TargetKind.HIP, TargetKind.VULKAN)

    def __str__(self) -> str:
        return self.name


_TARGET = re.compile(r"(?P<kind>[a-z]+)(?:-(?P<arch>[a-z0-9_]+))?(?::(?P<index>[0-9]{1,4}))?")


def parse_target(text: str) -> Target:
    """``cpu``, ``cuda``, ``cuda:1`` (a device here) or ``cuda-sm_90`` (compile only).

    Raises:
        RequestError: the text does not have that form.
    """
    match = _TARGET.fullmatch(text.strip().lower())
    if match is None or match["kind"] not in list(TargetKind):
        raise RequestError(
            f"cannot read the target {text!r}",
            hint=f"Write one of {', '.join(TargetKind)}, cuda:1 for a device, "
            "or cuda-sm_80 to compile only.",
        )
    compile_only = match["arch"] is not None and match["index"] is None
    return Target(
        TargetKind(match["kind"]),
        match["arch"] or "",
        None if compile_only else int(match["index"] or 0),
    )


def check_device_names(names: Iterable[str], *, with_agents: bool) -> None:
    """Check that none of the names of devices is their number.

    Args:
        with_agents: whether a number of agents can be given instead.

    Raises:
        RequestError: one is.
    """
    for name in names:
        if name.isdigit():
            instead = f", or --agents {name} for that many agents" if with_agents else ""
            raise RequestError(
                f"--devices {name}: a number names no device",
                hint=f"Name the devices, as in --devices cuda:0,cuda:1{instead}.",
            )
