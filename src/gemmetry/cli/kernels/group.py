"""``gemmetry kernels``: the group of commands about our own kernels."""

from __future__ import annotations

from typing import ClassVar

from gemmetry.cli.groups import LazyGroup, group_app


class KernelsGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "list": "kernels.list_command",
        "check": "kernels.check",
        "ladder": "kernels.ladder",
    }


app = group_app(KernelsGroup, "List, check and measure this project's own CUDA kernels.")
