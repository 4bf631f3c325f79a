"""``gemmetry dispatcher``: the group of commands about tables of fast kernels."""

from __future__ import annotations

from typing import ClassVar

from gemmetry.cli.groups import LazyGroup, group_app


class DispatcherGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "build": "dispatcher.build",
        "show": "dispatcher.show",
        "evaluate": "dispatcher.evaluate",
    }


app = group_app(DispatcherGroup, "Build, show and evaluate the tables of gemmetry.matmul.")
