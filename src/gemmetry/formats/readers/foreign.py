"""Files that are recognised but not read, as they are no traces, or have no times of a GPU."""

from __future__ import annotations

import re

from gemmetry.domain.opening import XLSX_MAGIC
from gemmetry.formats.readers import TraceFormat

_PLUGIN_EVENTS = re.compile(
    rb'\s*\[\s*(?:\{\s*\}\s*,\s*)*\{[^{}]{0,400}?"cat"\s*:\s*'
    rb'"(?:GROUP|COLL|P2P|PROXY|NET|GPU|KERNEL|CTRL|STEP)[A-Z0-9_]*"'
)
"""Categories of ``plugins/profiler/example/print_event.cc`` (NVIDIA/nccl). Kineto's are in small
letters; as its arrays look like these, this module comes before that of Kineto."""

FORMATS = (
    TraceFormat(
        name="Chakra execution trace",
        suffix=".json",
        json_key="nodes",
        counts=lambda before: b'"schema"' in before,
        problem="it is a Chakra execution trace, which has no times of a GPU",
        hint="Give the *.pt.trace.json file that was recorded with it.",
    ),
    TraceFormat(
        name="events of NCCL's example profiler plugin",
        suffix=".json",
        begins=_PLUGIN_EVENTS.match,
        problem="it was written by NCCL's example profiler plugin, which records what the host "
        "does for a collective, not the kernels of a GPU",
        hint="Give the Kineto trace of the run (torch.profiler); or record the collectives with "
        "NCCL Inspector, whose logs gemmetry sweep analyze reads.",
    ),
    TraceFormat(
        name="workbook (xlsx)",
        suffix=".xlsx",
        begins=lambda text: text.startswith(XLSX_MAGIC),
        problem="it is a workbook",
        hint="Only gemmetry trace summary, gemms and shapes read workbooks, those of TraceLens; "
        "give the trace itself.",
    ),
)
