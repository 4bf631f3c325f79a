"""``gemmetry history``: the group of commands about the history of many runs."""

from __future__ import annotations

from typing import ClassVar

from gemmetry.cli.groups import LazyGroup, group_app


class HistoryGroup(LazyGroup):
    """The commands, each in a module of this folder."""

    modules: ClassVar = {
        "add": "history.add",
        "show": "history.show",
        "check": "history.check",
        "annotate": "history.annotate",
        "site": "history.site",
    }


app = group_app(HistoryGroup, "Store medians of many runs, find changes and their causes.")
