"""Agents in threads of the test, so that none needs seconds to start."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gemmetry.domain.errors import GemmetryError
from gemmetry.engine.agents import fleet
from gemmetry.engine.agents.agent import AgentOptions, run_agent
from gemmetry.engine.agents.handshake import read_token
from gemmetry.engine.agents.server import address_of

PATIENCE_S = 60


class ThreadStarter:
    """Runs agents in threads; `devices` of each, or as many as are requested of the plan's."""

    name = "threads"

    def __init__(self, devices=None):
        self.devices = devices
        self.reports = []
        self.errors = []
        self.threads = []

    def available(self):
        return None

    def start(self, request):
        self.request = request
        devices = self.devices
        if devices is None:
            devices = [request.target.device] * request.count
        for number, device in enumerate(devices):
            self.add(f"agent-{number}", device)
        return self

    def add(self, name, device="", token=None):
        host, port = address_of(self.request.connect)
        token = token or read_token(Path(self.request.token_file))
        options = AgentOptions(host, port, token, device, name, connect_s=0)
        thread = threading.Thread(target=self._run, args=(options,), daemon=True)
        self.threads.append(thread)
        thread.start()

    def _run(self, options):
        try:
            run_agent(options, self.reports.append)
        except GemmetryError as error:
            self.errors.append(error)

    def problems(self):
        return ()

    def running(self):
        return sum(thread.is_alive() for thread in self.threads)

    def queued(self):
        return 0

    def close(self):
        for thread in self.threads:
            thread.join(PATIENCE_S)


@pytest.fixture
def use_starter(monkeypatch):
    """Has runs start agents with a starter."""

    def use(starter):
        monkeypatch.setattr(fleet, "load_starter", lambda _name: starter)
        return starter

    return use


@pytest.fixture
def thread_starter(use_starter):
    """Has runs start agents in threads."""

    def make(devices=None):
        return use_starter(ThreadStarter(devices))

    return make
