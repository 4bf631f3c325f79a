"""Hardware counters: what the commands of ``gemmetry counters`` do."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

from gemmetry.counters.catalogue import concepts, expression_on, flags_for
from gemmetry.counters.chips import chip_of
from gemmetry.counters.collecting import collector
from gemmetry.counters.collecting.request import CollectRequest, ToolName
from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.tables import Column, Table
from gemmetry.engine.opaque.executor import run_command
from gemmetry.hardware.detect import amd_gpus, nvidia_gpus

_COLUMNS = (
    Column("concept", description="what counters show"),
    Column("chip"),
    Column("metric", description="the metric, or the expression of metrics, that shows it"),
    Column("unit"),
    Column("collect", description="the options of ncu or rocprofv3 that collect it"),
    Column("meaning"),
    Column("source", description="where the expression is defined or was checked"),
)


def metric_table(chip: str | None = None, pattern: str | None = None) -> Table:
    """The concepts of the catalogue with their metrics on a chip.

    Args:
        chip: like that of :func:`~gemmetry.counters.chips.chip_of`; None: of this machine's GPU.
        pattern: a glob on the concepts' names; None: all.

    Raises:
        UnknownNameError: there is no such chip.
        RequestError: no chip was given and this machine has no GPU; nothing has such a name.
    """
    known = chip_of(chip) if chip is not None else chip_here()
    rows = []
    for one in concepts():
        if pattern is None or fnmatchcase(one.name, pattern):
            flags = flags_for([one], known) or None
            rows.append((one.name, known, expression_on(known, one), one.unit or None, flags,
                         one.meaning, one.source or None))  # fmt: skip
    if not rows:
        raise EmptySelectionError(
            f"no concept matches {pattern!r}", hint="gemmetry counters metrics lists them all."
        )
    return Table("metrics", _COLUMNS, rows)


def chip_here() -> str:
    """The chip of this machine's first GPU.

    Raises:
        RequestError: it has none, or one that is not listed.
    """
    for found in (nvidia_gpus(), amd_gpus()):
        for gpu in found.gpus:
            if gpu.architecture:
                return chip_of(gpu.architecture)
    raise RequestError(
        "this machine has no GPU whose chip could be the default", hint="Give one: --chip gh100"
    )


def plan_counters(
    request: CollectRequest, output: Path | None = None, *, tool: ToolName | None = None,
    is_shown_only: bool = False,
) -> collector.Collection:  # fmt: skip
    """Plan a collection; see :func:`gemmetry.counters.collecting.collector.plan`.

    Args:
        output: None: a folder with the time in its name.
        is_shown_only: the plan is not carried out: the profiler may be missing, which a note says.
    """
    place = output or Path(f"counters_{datetime.now():%Y%m%d_%H%M%S}")
    if not is_shown_only:
        return collector.plan(request, place, tool=tool)
    found, notes = collector.find_tool_or_name(tool)
    planned = collector.plan(request, place, tool=found)
    return replace(planned, notes=(*notes, *planned.notes))


def collect_counters(
    planned: collector.Collection, *, replace: bool = False
) -> collector.Collected:
    """Collect; see :func:`gemmetry.counters.collecting.collector.collect`. The profiler, the
    application and everything that they start end with this process."""
    return collector.collect(planned, run_command, replace=replace)
