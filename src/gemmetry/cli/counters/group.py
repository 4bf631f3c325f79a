"""``gemmetry counters``: the group of commands about hardware counters."""

from __future__ import annotations

from typing import ClassVar

from gemmetry.cli.groups import LazyGroup, group_app


class CountersGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "collect": "counters.collect",
        "import": "counters.import_command",
        "diagnose": "counters.diagnose",
        "compare": "counters.compare",
        "metrics": "counters.metrics",
    }


app = group_app(CountersGroup, "Collect, read and diagnose the hardware counters of kernels.")
