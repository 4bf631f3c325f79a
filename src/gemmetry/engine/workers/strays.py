"""Processes that a dispatch leaves running in a session of its own, which a kill of the worker's
process group does not reach."""

from __future__ import annotations

import os

from gemmetry.engine.workers.guardian import Process, collect, descendants, has_children, kill


class Strays:
    """The stray processes of one worker. Each belongs to the dispatch after whose launches it was
    first found."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, Process]] = {}
        self._others = {process.pid for process in self._running()}
        """Processes that existed before any dispatch."""

    def find_new(self, dispatch: int) -> tuple[str, ...]:
        """The names of processes that are new since the last call; they belong to `dispatch`."""
        known = self._found.keys() | self._others
        new = [process for process in self._running() if process.pid not in known]
        self._found |= {process.pid: (dispatch, process) for process in new}
        return tuple(map(str, new))

    def end(self, dispatch: int) -> None:
        """End the processes of `dispatch`."""
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
