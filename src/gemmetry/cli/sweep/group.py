"""``gemmetry sweep``: the group of commands about training sweeps."""

from __future__ import annotations

from typing import ClassVar

from gemmetry.cli.groups import LazyGroup, group_app
from gemmetry.cli.sweep.arguments import SweepCommand


class SweepGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    command_class = SweepCommand
    modules: ClassVar = {
        "run": "sweep.run",
        "analyze": "sweep.analyze",
        "compare": "sweep.compare",
        "tuner-config": "sweep.tuner_config",
        "rocprof-input": "sweep.rocprof_input",
    }


app = group_app(
    SweepGroup, "Run, analyse and compare sweeps of training runs over settings of communication."
)
