"""Files of NCCL's example profiler plugin, which are recognised but not read: they have times of
the host's calls, not of kernels. They look like Kineto's arrays of events, so this format comes
first.
"""

from __future__ import annotations

import re

from gemmetry.formats.readers import TraceFormat

_EVENTS = re.compile(
    rb'\s*\[\s*(?:\{\s*\}\s*,\s*)*\{[^{}]{0,400}?"cat"\s*:\s*'
    rb'"(?:GROUP|COLL|P2P|PROXY|NET|GPU|KERNEL|CTRL|STEP)[A-Z0-9_]*"'
)
"""Categories of ``plugins/profiler/example/print_event.cc`` (NVIDIA/nccl); Kineto's are in small
letters."""


FORMAT = TraceFormat(
    name="events of NCCL's example profiler plugin",
    suffix=".json",
    begins=_EVENTS.match,
    problem="it was written by NCCL's example profiler plugin, which records what the host does "
    "for a collective, not the kernels of a GPU",
    hint="Give the Kineto trace of the run (torch.profiler); or record the collectives with NCCL "
    "Inspector, whose logs gemmetry sweep analyze reads.",
)
