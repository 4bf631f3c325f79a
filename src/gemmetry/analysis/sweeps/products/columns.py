"""Columns that several tables of a sweep share."""

from __future__ import annotations

from typing import Any

from gemmetry.analysis.sweeps.products.model import ProductPoint
from gemmetry.domain.tables import Column
from gemmetry.traces.tracelens.columns import integer, text

AXES = (
    text("axes", "further axes of the sweep with their values"),
    integer("repeat", "number of the repeat; empty in a sweep without repeats"),
)
FULL_CONFIG = text("full_config", "point of the sweep: thread_config, channel_config, then further "
                   "axes and the repeat")  # fmt: skip
CONFIGURATION: dict[str, Column] = {
    column.name: column
    for column in (
        FULL_CONFIG,
        integer("threads_num", "threads per block of a collective, as requested"),
        text("thread_config", "the same as the name of a folder"),
        integer("channels_num", "channels of a collective, as requested"),
        text("channel_config", "the same as in the names of files"),
    )
}


def configuration_cells(point: ProductPoint) -> dict[str, Any]:
    """The values of :data:`CONFIGURATION` and :data:`AXES`."""
    return {
        "full_config": point.full_config,
        "threads_num": point.configuration.threads,
        "thread_config": point.thread_config,
        "channels_num": point.configuration.channels,
        "channel_config": point.channel_config,
        "axes": point.axes_text,
        "repeat": point.repeat,
    }
