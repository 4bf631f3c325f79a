"""Where the time of a run goes: wall and processor seconds of each stage, in the parent and in the
workers.

    python benchmarks/profile_time.py [--json FILE] [--set-constant MODULE.NAME=VALUE] \\
        -- ARGUMENTS OF gemmetry profile

Runs ``gemmetry profile ARGUMENTS`` with every worker's own stages timed, and prints three tables:
the stages of the parent (which waits for its workers), those of the workers that verify, and those
of the further processes of the same lanes. ``self`` is a stage's wall time without the stages
listed that ran within it, so that the column adds up; ``cpu`` is the processor time of the whole
process, its threads included; ``from`` and ``to`` are when a stage first began and last ended, in
seconds of the run. Stages of several workers are summed. ``--set-constant`` runs with
another value of a constant, in the parent and in all workers.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import importlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

FOLDER = "GEMMETRY_PROFILE_TIME"
"""The environment variable with the folder to which workers write their stages."""

CONSTANTS = "GEMMETRY_PROFILE_TIME_CONSTANTS"
"""The environment variable with the constants that are set, separated by spaces."""

BEGAN = "GEMMETRY_PROFILE_TIME_BEGAN"
"""The environment variable with the time at which the run began, in seconds since 1970."""

Totals = dict[str, list[float]]
"""Stage -> calls, wall s, self s, processor s, and from when to when, in s of the run."""


class Clock:
    """Sums of nested stages of one process."""

    def __init__(self) -> None:
        self.totals: Totals = {}
        self._local = threading.local()

    @contextmanager
    def stage(self, name: str) -> Any:
        """Time what runs within; the time of a stage within itself counts once."""
        stack: list[list[Any]] = self._local.__dict__.setdefault("stack", [])
        is_outermost = all(name != other for other, _ in stack)
        entry: list[Any] = [name, 0.0]
        stack.append(entry)
        began = time.time() - float(os.environ[BEGAN])
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            stack.pop()
            if stack:
                stack[-1][1] += wall
            total = self.totals.setdefault(name, [0, 0.0, 0.0, 0.0, began, began])
            total[0] += 1
            total[1] += wall if is_outermost else 0.0
            total[2] += wall - entry[1]
            total[3] += cpu if is_outermost else 0.0
            total[5] = max(total[5], began + wall)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, timed as a stage."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return function(*args, **kwargs)

        return call

    def methods(self, owner: type, names: Iterable[str], prefix: str = "") -> None:
        """Time methods of a class."""
        for name in names:
            if name in vars(owner):
                label = prefix + name.lstrip("_")
                setattr(owner, name, self.timed(label, vars(owner)[name]))

    def functions(self, *found: Callable[..., Any]) -> None:
        """Time functions wherever a module of gemmetry refers to them."""
        for function in found:
            timed = self.timed(function.__name__, function)
            for module in [m for name, m in sys.modules.items() if name.startswith("gemmetry")]:
                for name, value in list(vars(module).items()):
                    if value is function:
                        setattr(module, name, timed)


def set_constants() -> None:
    """Set the constants of modules that the environment names."""
    for text in os.environ.get(CONSTANTS, "").split():
        name, _, value = text.partition("=")
        module, _, constant = name.rpartition(".")
        vars(importlib.import_module(module))[constant] = float(value)


def worker(arguments: list[str]) -> NoReturn:
    """Serve as a worker whose stages are timed, or fork such workers."""
    clock = Clock()
    with clock.stage("imports: worker"):
        from gemmetry.engine import worker as main
    # What was imported ahead costs a fork nothing.
    os.register_at_fork(after_in_child=clock.totals.clear)
    load = vars(main)["load_provider"]

    def load_timed(name: str, options: Any) -> Any:
        with clock.stage("imports: provider"):
            provider = load(name, options)
        with clock.stage("imports: verification and measurement"):
            importlib.import_module("gemmetry.engine.bench")
        _time_worker(clock, provider)
        return provider

    vars(main)["load_provider"] = load_timed

    def write() -> None:
        if not clock.totals:
            return  # a guardian
        name = Path(os.environ["TMPDIR"]).name  # of its lane, with a number
        path = Path(os.environ[FOLDER]) / f"{name}.{os.getpid()}.json"
        path.write_text(json.dumps({"worker": name, "stages": clock.totals}))

    atexit.register(write)
    serve = vars(main)["_serve_forks"] if arguments[0] == "--forks" else main.main
    main.end_with(serve, arguments)


def _time_worker(clock: Clock, provider: Any) -> None:
    from gemmetry.engine import bench
    from gemmetry.engine import bench as companion_builder
    from gemmetry.engine import bench as inputs_and_references
    from gemmetry.hardware import monitors
    from gemmetry.measurement import launches, renewal, sampler
    from gemmetry.numerics import inputs, references
    from gemmetry.verification import after_timing, comparison, context, freivalds, protocol
    from gemmetry.verification.checks import memory

    set_constants()
    clock.methods(type(provider), ["build"])
    steps = ["_open_one", "_try", "_verify", "make_sampler", "_sample_one", "_close_one"]
    clock.methods(bench.Bench, steps)
    clock.methods(inputs_and_references.InputsAndReferences, ["inputs", "reference"])
    clock.methods(companion_builder.CompanionBuilder, ["_build"], "companion ")
    parts = ["prepare", "recheck", "_before_round", "_time", "_look_if_owed"]
    clock.methods(sampler.Sampler, [*parts, "_try_new_inputs_again"], "sampler ")
    clock.methods(renewal.Renewal, ["prepare", "undo"], "renewal ")
    clock.methods(launches.NewInputs, ["try_on", "_launch_ns", "_write"], "new inputs ")
    clock.functions(launches.check_stream, launches.measure_overhead, launches.make_sets)
    clock.methods(monitors.ReadingObserver, ["start", "sample", "stop"], "telemetry ")
    clock.functions(
        inputs.make_inputs, inputs.zero_share, references.compute_reference,
        references.exact_product, comparison.compare, comparison.compare_exactly,
        context._read, context._write, after_timing.digest, freivalds.freivalds,
    )  # fmt: skip
    protocol.CHECKS = tuple(
        replace(check, run=clock.timed(f"check {check.name}", check.run))
        for check in protocol.CHECKS
    )
    memory.check_form = clock.timed("check form", memory.check_form)
    torch_device = sys.modules.get("gemmetry.hardware.torch_device")
    if torch_device is not None:
        moves = [
            "upload", "write", "download", "same_bytes", "clone", "_float64_product", "digest",
            "upload_reference", "error_sums",
        ]  # fmt: skip
        clock.methods(torch_device.TorchDevice, [*moves, "__init__", "release"], "device ")


def _time_parent(clock: Clock) -> None:
    from gemmetry.engine import compiling as ahead
    from gemmetry.engine import process as local
    from gemmetry.engine import process as workers
    from gemmetry.engine import session
    from gemmetry.engine.device import DeviceSession

    clock.methods(DeviceSession, ["_open_all", "_sample_all", "_close_all"], "device ")
    clock.methods(workers.WorkerPool, ["start", "of", "stop"], "pool ")
    clock.methods(ahead.CompilingAhead, ["ready"], "compiled ahead: ")
    clock.functions(session._loaded, session._environment)
    vars(local)["WORKER"] = (str(Path(__file__).resolve()), "--worker")


def table(title: str, totals: Totals) -> str:
    """The stages, those with the longest wall time of their own first."""
    columns = ("wall s", "self s", "cpu s", "from", "to")
    lines = [f"{title:<44}{'calls':>7}" + "".join(f"{one:>9}" for one in columns)]
    for name, (calls, *times) in sorted(totals.items(), key=lambda item: -item[1][2]):
        if max(times[:2]) >= 0.005:
            lines.append(f"{name:<44}{calls:>7.0f}" + "".join(f"{one:>9.2f}" for one in times))
    return "\n".join(lines)


def added(some: Iterable[Totals]) -> Totals:
    """The sums of several processes."""
    whole: Totals = {}
    for totals in some:
        for name, values in totals.items():
            old = whole.get(name, [0.0] * 4 + values[4:])
            sums = [a + b for a, b in zip(old[:4], values[:4], strict=True)]
            whole[name] = [*sums, min(old[4], values[4]), max(old[5], values[5])]
    return whole


def main() -> int:
    """Run the command and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write all stages of all processes to FILE")
    parser.add_argument("--set-constant", action="append", default=[], metavar="MODULE.NAME=VALUE")
    parser.add_argument("command", nargs="+", help="arguments of gemmetry profile, after --")
    options = parser.parse_args()
    os.environ[CONSTANTS] = " ".join(options.set_constant)
    set_constants()
    clock = Clock()
    os.environ[BEGAN] = str(time.time())
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        _time_parent(clock)
        status = _run(clock, ["profile", *options.command])
        found = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    found.sort(key=lambda one: one["worker"])
    print()
    print(table("parent", clock.totals))
    for one in found:
        print()
        print(table(f"worker {one['worker']}", one["stages"]))
    print()
    print(table("all workers", added(one["stages"] for one in found)))
    if options.json is not None:
        document = {"parent": clock.totals, "workers": found}
        options.json.write_text(json.dumps(document, indent=1))
    return status


def _run(clock: Clock, arguments: list[str]) -> int:
    from gemmetry.cli.main import main as gemmetry

    sys.argv = ["gemmetry", *arguments]
    with clock.stage("whole run"):
        try:
            gemmetry()
        except SystemExit as ended:
            return int(ended.code or 0) if isinstance(ended.code, int | None) else 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2:])
    sys.exit(main())
