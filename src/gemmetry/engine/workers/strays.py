"""Processes that a dispatch leaves running in a session of its own, beyond the reach of a kill of
the worker's process group."""

from __future__ import annotations

import os

from gemmetry.engine.workers.guardian import Process, collect, descendants, has_children, kill


class Strays:
    """Those of one worker. Each belongs to the dispatch after whose launches it was found first."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, Process]] = {}
        self._others = {process.pid for process in self._running()}
        """Those that were there before any dispatch."""

    def look(self, dispatch: int) -> tuple[str, ...]:
        """The names of those that are new since the last look; they are of `dispatch`."""
        known = self._found.keys() | self._others
        new = [process for process in self._running() if process.pid not in known]
        self._found |= {process.pid: (dispatch, process) for process in new}
        return tuple(map(str, new))

    def end(self, dispatch: int) -> None:
        """End those of `dispatch`."""
        mine = [process for owner, process in self._found.values() if owner == dispatch]
        running = {process.pid for process in self._running()} if mine else set()
        for process in mine:
            del self._found[process.pid]
            if process.pid in running:
                kill(process.pid)
                collect(process.pid)

    def _running(self) -> list[Process]:
        if not has_children():
            return []
        session = os.getsid(0)
        return [found for found in descendants(os.getpid()) if found.session != session]
