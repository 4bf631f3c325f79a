"""The columns by which Nsight Compute's CSV files identify a launch, and the metrics that do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain

from gemmetry.formats.counters.cells import integer, triple
from gemmetry.formats.counters.launches import LaunchInfo, Triple

LAUNCH_COLUMNS = frozenset((
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
    "Stream", "Block Size", "Grid Size", "Device", "CC",
))  # fmt: skip
"""Columns that describe the launch; all others of the raw page are metrics. Early versions had
``Kernel Time``, and no sizes, no device and no CC."""

PRODUCT = "device__attribute_display_name"
_CAPABILITY = ("device__attribute_compute_capability_major",
               "device__attribute_compute_capability_minor")  # fmt: skip

_SIZES = {what: tuple(f"launch__{what}_dim_{axis}" for axis in "xyz")
          for what in ("grid", "block", "cluster")}  # fmt: skip
IDENTIFYING = (*sorted(LAUNCH_COLUMNS - {"ID", "Kernel Time"}), PRODUCT, *_CAPABILITY,
               *chain.from_iterable(_SIZES.values()))  # fmt: skip
"""Columns and metrics that :func:`launch_info` reads, besides the launch's number."""


def launch_info(cell: Callable[[str], str]) -> LaunchInfo:
    """The launch that a row describes.

    Args:
        cell: the cell of a column or of a metric; "" where the row has none.
    """
    info = LaunchInfo(
        name=cell("Kernel Name"),
        grid=triple(cell("Grid Size")),
        block=triple(cell("Block Size")),
        capability=cell("CC"),
        number=integer(cell("ID")),
        process=integer(cell("Process ID")),
        context=integer(cell("Context")),
        stream=integer(cell("Stream")),
    )
    return completed(info, lambda name: integer(cell(name)), cell(PRODUCT))


def completed(
    info: LaunchInfo, whole: Callable[[str], int | None], product: str = ""
) -> LaunchInfo:
    """`info` with what metrics state of the launch, where its own columns do not.

    Args:
        whole: the value of a metric that is a whole number.
        product: the GPU's name.
    """
    major, minor = map(whole, _CAPABILITY)
    known = f"{major}.{minor}" if major is not None and minor is not None else ""
    return replace(
        info,
        grid=info.grid or _sizes("grid", whole),
        block=info.block or _sizes("block", whole),
        cluster=_sizes("cluster", whole),
        device=product,
        capability=info.capability or known,
    )


def _sizes(what: str, whole: Callable[[str], int | None]) -> Triple | None:
    x, y, z = map(whole, _SIZES[what])
    return (x, y, z) if x and y and z else None
