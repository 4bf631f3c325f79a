"""Plans for the null provider and a way to run them."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import sqlite3
import threading
import time
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.dispatch import Plan, ProviderRequest, Target, TargetKind
from gemmetry.domain.errors import Stage
from gemmetry.domain.operation import F32, MatmulShape, Operation, OperationKind, Signature
from gemmetry.domain.record import Event, Record
from gemmetry.domain.settings import RunSettings
from gemmetry.engine import RunSummary, run, session
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.process import WorkerContext, WorkerProcess, start_worker
from gemmetry.engine.protocol import Frame, Reply
from gemmetry.measurement.stopping import Round

NULL = Target(TargetKind.NULL)
SIGNATURE = Signature(OperationKind.MATMUL, F32, F32, F32)


@dataclass
class Ran:
    """A finished run: summary, events, records by configuration (of the last operation)."""

    summary: RunSummary
    events: list[Event]
    records: list[Record]

    def __getitem__(self, configuration: str) -> Record:
        (record,) = [r for r in self.records if r.configuration == configuration]
        return record

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def outcomes(self) -> dict[str, str]:
        """Outcomes by configuration."""
        return {record.configuration: str(record.outcome) for record in self.records}


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    """A plan of `sizes` (M of an Mx8x8 matmul) for the null provider's `configurations`."""

    def make(
        configurations=(), *, sizes=(8,), options=None, targets=(NULL,),
        providers=None, deadlines_s=None, plan=None, **settings,
    ):  # fmt: skip
        options = {"configurations": list(configurations), **(options or {})}
        usual = {"verification_level": "quick", "jobs": 2}
        deadlines = {**dict.fromkeys(Stage, 20.0), **(deadlines_s or {})}
        return Plan(
            name="engine",
            operations=tuple(Operation(SIGNATURE, MatmulShape(size, 8, 8)) for size in sizes),
            providers=tuple(providers or (ProviderRequest(name="null", options=options),)),
            targets=tuple(targets),
            settings=RunSettings(deadlines_s=deadlines, **{**usual, **settings}),
            document={"configurations": list(configurations), "sizes": list(sizes)},
            **(plan or {}),
        )

    return make


@pytest.fixture
def stored_rounds() -> Callable[[Path], dict[tuple[int, int], bytes]]:
    """(dispatch, round) -> samples, as the journal of a folder has them; without one there are
    none."""

    def read(folder: Path) -> dict[tuple[int, int], bytes]:
        if not (folder / "journal.sqlite").exists():
            return {}
        path = f"file:{folder / 'journal.sqlite'}?mode=ro"
        with contextlib.closing(sqlite3.connect(path, uri=True)) as connection:
            rows = connection.execute("SELECT dispatch, round, samples FROM rounds").fetchall()
        return {(dispatch, number): samples for dispatch, number, samples in rows}

    return read


PATIENCE_S = 300.0
"""How long an event that must happen may take on a loaded machine."""


@pytest.fixture(scope="session")
def wait_until() -> Callable[[Callable[[], object]], None]:
    """Waits for what must become true."""

    def wait(is_so: Callable[[], object]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < until, "it never happens"
            time.sleep(0.005)

    return wait


@pytest.fixture
def interrupted(wait_until: Callable[..., None]) -> Callable[..., AbstractContextManager[None]]:
    """Sends what runs an interrupt when ``is_time()``, and calls ``came()`` when it comes."""

    @contextlib.contextmanager
    def at(is_time: Callable[[], object], came: Callable[[], object] = int) -> Iterator[None]:
        def interrupt() -> None:
            wait_until(is_time)
            os.kill(os.getpid(), signal.SIGINT)

        def handle(*_: object) -> None:
            came()
            raise KeyboardInterrupt

        # Shells start what runs in the background with interrupts ignored.
        before = signal.signal(signal.SIGINT, handle)
        watcher = threading.Thread(target=interrupt)
        watcher.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                yield
        finally:
            watcher.join()
            signal.signal(signal.SIGINT, before)

    return at


@pytest.fixture(scope="session")
def is_running() -> Callable[[int], bool]:
    """Whether a process is neither gone nor a zombie that nobody has collected yet."""

    def look(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    return look


@pytest.fixture
def make_context(tmp_path: Path) -> Callable[..., WorkerContext]:
    """What workers of a run in ``tmp_path`` share; `start` starts them."""

    def make(start=start_worker, **settings):
        values, generated = RunSettings(**settings), tmp_path / "generated"
        return WorkerContext(settings=values, start=start, generated=generated, folder=tmp_path)

    return make


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[WorkerProcess]:
    """Those that were started, in order."""
    started: list[WorkerProcess] = []
    original = WorkerProcess.__init__

    def remember(self: WorkerProcess, *arguments: Any, **named: Any) -> None:
        started.append(self)
        original(self, *arguments, **named)

    monkeypatch.setattr(WorkerProcess, "__init__", remember)
    return started


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[WorkerProcess, Frame]]:
    """All messages to workers, in order."""
    messages: list[tuple[WorkerProcess, Frame]] = []
    send = WorkerProcess.send

    def note(self: WorkerProcess, message: Frame) -> None:
        messages.append((self, message))
        send(self, message)

    monkeypatch.setattr(WorkerProcess, "send", note)
    return messages


@pytest.fixture
def use_executor(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Has runs start their workers with an executor."""

    def use(executor: Any) -> None:
        monkeypatch.setattr(session, "WorkerContext", partial(WorkerContext, start=executor.start))

    return use


@pytest.fixture
def run_plan(tmp_path: Path) -> Callable[..., Ran]:
    """Runs a plan in ``tmp_path/experiment``."""

    def go(plan: Plan, **arguments: Any) -> Ran:
        events: list[Event] = []
        folder = arguments.pop("folder", tmp_path / "experiment")
        summary = run(plan, folder, listener=events.append, **arguments)
        with Experiment.open(folder) as experiment:
            return Ran(summary, events, list(experiment.records()))

    return go


def value_of(kind: Any, chance: random.Random, depth: int = 0) -> Any:
    """A random value that a decoder would accept for the type `kind`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return value_of(chance.choice(arguments), chance, depth)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(value_of(item, chance, depth + 1) for item in arguments)
    if origin is tuple:
        count = chance.choice((0, 1, 3)) if depth < 4 else 0
        return tuple(value_of(arguments[0], chance, depth + 1) for _ in range(count))
    if origin is not None:  # a mapping
        key, item = arguments
        return {value_of(key, chance): value_of(item, chance, depth + 1) for _ in range(2)}
    if kind is Any:
        return chance.choice((None, 1, "x"))
    if issubclass(kind, Enum):
        return chance.choice(list(kind))
    simple = {
        bool: (False, True), int: (0, 1, 2, 3, -1, 2**62, 7), type(None): (None,),
        float: (0.0, 1.0, -1.0, 1e308, math.nan, math.inf, 5e-324),
        str: ("", "x", "a/../../b", "\0", "é" * 50, "LaunchError", "MemoryError"),
    }  # fmt: skip
    if kind in simple:
        return chance.choice(simple[kind])
    if kind is Round and chance.random() < 0.5:
        return Round(samples_ns=(1.0, 2.5), method="events")
    hints = _type_hints(kind)
    return kind(**{name: value_of(hint, chance, depth + 1) for name, hint in hints.items()})


_type_hints = cache(typing.get_type_hints)


@pytest.fixture
def some_replies() -> Callable[[random.Random], Iterator[Frame]]:
    """Random replies that decode, most of them senseless; as many as are taken."""

    def make(chance: random.Random) -> Iterator[Frame]:
        kinds = typing.get_args(Reply)
        while True:
            yield value_of(chance.choice(kinds), chance)

    return make
