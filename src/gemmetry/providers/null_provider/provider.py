"""The behaviours of the null provider, and the names of the configurations that select them.

``kind`` or ``kind_value``, the value written as numbers in operation names are (``factor_1p5``).
:func:`parse_behaviour` is the inverse of :attr:`Behaviour.name`.

A simulated device for testing everything around a provider: exact results, a simulated clock.

It is correct, fast and deterministic unless a configuration selects a :class:`BehaviourKind`.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NoReturn

import numpy as np

from gemmetry.domain.contracts import Compiled, Device, Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_number
from gemmetry.domain.errors import (
    CompileError,
    DeviceLostError,
    LaunchError,
    OutOfMemoryError,
    UnknownNameError,
    UnsupportedError,
)
from gemmetry.domain.operation import Layout, Operation, operation_name, print_number
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.tables import grouped
from gemmetry.hardware.host_device import HostBuffer, HostDevice, red_zones
from gemmetry.numerics.references import evaluate, plain_product
from gemmetry.providers.base import BaseProvider, output_folder


class BehaviourKind(StrEnum):
    """Every behaviour; the value is the first part of the configuration's name."""

    DEFAULT = "default"
    FAST = "fast"
    """Takes 0.8 times the default's simulated time."""
    FACTOR = "factor"
    """Simulated time × value."""
    NOISY = "noisy"
    """Simulated time that varies by ± value percent instead of ± 0.5 percent."""
    SLOW = "slow"
    """Really sleeps for value milliseconds in every launch."""
    CHATTY = "chatty"
    """Correct, but writes lines to standard output and standard error at every launch."""

    WRONG = "wrong"
    """All elements are too large by a half (integers: by one)."""
    WRONG_NAN = "wrong_nan"
    """Correct except for a NaN in the last element (integers: the smallest value)."""
    PARTIAL = "partial"
    """The last row of the result is never written."""
    LATE = "late"
    """Correct until the device times it, wrong from then on."""
    MUTATE_INPUTS = "mutate_inputs"
    """Correct, but then changes one bit of A."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """Correct, but also writes eight bytes past the end of its output."""

    LAUNCH_ERROR = "launch_error"
    FLAKY = "flaky"
    """Every second launch raises LaunchError."""
    RAISES = "raises"
    """A launch raises an exception that is not one of gemmetry's."""
    OUT_OF_MEMORY = "out_of_memory"
    LEAK = "leak"
    """A launch allocates in small steps up to a limit that it sets itself, then raises
    MemoryError."""
    DEVICE_LOST = "device_lost"
    """After value launches every synchronisation reports that the device is gone."""
    CRASH = "crash"
    """A launch dies of SIGSEGV."""
    ABORT = "abort"
    """A launch dies of SIGABRT."""
    EXIT = "exit"
    """A launch ends the process with the status value."""
    HANG = "hang"
    """A launch never returns."""

    UNSUPPORTED = "unsupported"
    """Building raises UnsupportedError."""
    HANG_BUILD = "hang_build"
    COMPILE_ERROR = "compile_error"
    COMPILE_CRASH = "compile_crash"
    """Compiling dies of SIGSEGV."""
    HANG_COMPILE = "hang_compile"


_DEFAULT_VALUES: dict[BehaviourKind, float] = {BehaviourKind.EXIT: 1, BehaviourKind.DEVICE_LOST: 1}
_VALUE_REQUIRED = {BehaviourKind.SLOW, BehaviourKind.FACTOR, BehaviourKind.NOISY}
_INTEGER_VALUES = {BehaviourKind.EXIT, BehaviourKind.DEVICE_LOST}
_VALUE = re.compile(r"[0-9]+(?:p[0-9]+)?(?:em?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A kind with its value; 0 where the kind has no value."""

    kind: BehaviourKind = BehaviourKind.DEFAULT
    value: float = 0.0

    @property
    def name(self) -> str:
        """The configuration's name; a kind's default value is left out."""
        if self.kind in _VALUE_REQUIRED or self.value != _DEFAULT_VALUES.get(self.kind, 0.0):
            return f"{self.kind}_{print_number(self.value)}"
        return str(self.kind)


def parse_behaviour(name: str) -> Behaviour | None:
    """The behaviour whose name is exactly `name`; None if there is none."""
    kinds = {str(kind): kind for kind in BehaviourKind}
    if kind := kinds.get(name):
        value = _DEFAULT_VALUES.get(kind, 0.0)
    else:
        word, _, number = name.rpartition("_")
        kind = kinds.get(word)
        if kind not in _VALUE_REQUIRED | _INTEGER_VALUES or not _VALUE.fullmatch(number):
            return None
        value = parse_number(number)
        if kind in _INTEGER_VALUES and not value.is_integer():
            return None
    behaviour = Behaviour(kind, value)
    return behaviour if behaviour.name == name else None


def _behaviour_of(name: str) -> Behaviour:
    """
    Raises:
        UnknownNameError: there is no such behaviour.
    """
    if behaviour := parse_behaviour(name):
        return behaviour
    raise UnknownNameError("configuration of the null provider", name, BehaviourKind)


PEAK_FLOPS_PER_NS = 1000.0
"""Peak of the simulated device: 1 TFLOP/s."""

PEAK_BYTES_PER_NS = 100.0
"""Memory bandwidth of the simulated device: 100 GB/s."""

LAUNCH_OVERHEAD_NS = 2000.0

JITTER_PERCENT = 0.5

LEAK_LIMIT_BYTES = 256 * 2**20
"""Memory that ``leak`` allocates before it raises MemoryError, small enough not to affect other
processes."""

_COMPUTE_DTYPE = np.dtype(np.float64)

_LEAK_STEP_BYTES = 4 * 2**20


class NullDevice(HostDevice):
    """Host memory with a clock that advances only by the executables' simulated launch times."""

    def __init__(self) -> None:
        # Not super().__init__(): a simulated device has no cache to look up.
        self.last_level_cache_bytes = 0
        self.clock_ns = 0.0
        self.timing_began = False
        self.lost = False

    def time_calls(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], str]:
        """Simulated duration of each call in ns."""
        self.timing_began = True
        durations = []
        for call in calls:
            start = self.clock_ns
            call()
            durations.append(self.clock_ns - start)
        return durations, "simulated"

    def synchronize(self) -> None:
        if self.lost:
            raise DeviceLostError(
                "the simulated device null is gone, as its configuration requires",
                hint="Choose another configuration of the null provider.",
            )

    def free_memory_bytes(self) -> int:
        return 2**30


class NullExecutable:
    """A dispatch on the simulated device; misbehaves as its configuration's name specifies."""

    writes_output = True

    def __init__(self, dispatch: Dispatch, behaviour: Behaviour) -> None:
        self._device = NullDevice()
        self.device: Device = self._device
        self.facts = BuildFacts(default_configuration="pretend")
        self._operation = dispatch.operation
        self._plain_product = plain_product(dispatch.operation, _COMPUTE_DTYPE)
        self._behaviour = behaviour
        self._duration_ns = simulated_ns(dispatch.operation, behaviour)
        is_noisy = behaviour.kind is BehaviourKind.NOISY
        self._spread = (behaviour.value if is_noisy else JITTER_PERCENT) / 100
        self._random = random.Random(f"{dispatch.provider}:{dispatch.name}")
        self._launches = 0

    def run(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> HostBuffer:
        """Compute in float64 and round once, then apply the configuration's behaviour."""
        self._launches += 1
        jitter = 1 + self._spread * self._random.uniform(-1, 1)
        self._device.clock_ns += max(0.0, self._duration_ns * jitter)
        kind = self._behaviour.kind
        _before(self._behaviour, self._launches)
        if kind is BehaviourKind.PARTIAL:
            self._compute_but_last_row(inputs, output)
        else:
            self._compute(inputs, output)
        match kind:
            case BehaviourKind.WRONG:
                _falsify(output)
            case BehaviourKind.LATE if self._device.timing_began:
                _falsify(output)
            case BehaviourKind.WRONG_NAN:
                is_integer = np.issubdtype(output.dtype, np.integer)
                output.reshape(-1)[-1] = np.iinfo(output.dtype).min if is_integer else np.nan
            case BehaviourKind.MUTATE_INPUTS:
                inputs[0].reshape(-1).view(np.uint8)[0] ^= 1
            case BehaviourKind.OUT_OF_BOUNDS:
                red_zones(output)[1][:8] = 0
            case BehaviourKind.DEVICE_LOST if self._launches >= self._behaviour.value:
                self._device.lost = True
        return output

    def close(self) -> None:
        """Nothing is held between launches."""

    def _compute(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> None:
        if self._plain_product is not None:
            self._plain_product(inputs, output)
        else:
            evaluate(self._operation, inputs, output, _COMPUTE_DTYPE)

    def _compute_but_last_row(self, inputs: Sequence[HostBuffer], output: HostBuffer) -> None:
        result = np.empty_like(output)
        self._compute(inputs, result)
        is_turned = self._operation.signature.result_layout is Layout.COLUMN
        last = np.s_[..., :-1] if is_turned else np.s_[..., :-1, :]
        output[last] = result[last]


class NullProvider(BaseProvider):
    """Options, all of them for tests:

    ``configurations``: names listed in addition to ``default`` and ``fast``;
    ``seconds_per_compile``: compiles ahead, each dispatch taking that long;
    ``unavailable``: why it is not available; ``unsupported``: kinds of operation it rejects;
    ``devices``: number of simulated devices (1);
    ``predicted_seconds``: predicted time of a launch, instead of the true one.
    """

    name: ClassVar[str] = "null"
    description: ClassVar[str] = "a simulated device with a simulated clock and faults, for tests"

    def available(self) -> str | None:
        reason = self.options.get("unavailable")
        return None if reason is None else str(reason)

    def supports(self, operation: Operation, target: Target) -> str | None:
        if target.kind is not TargetKind.NULL:
            return f"the null provider has its own simulated device, not {target}"
        if operation.kind in self.options.get("unsupported", ()):
            return f"{operation.kind} is among the kinds that the option `unsupported` names"
        return None

    def targets(self) -> Sequence[Target]:
        return [Target(TargetKind.NULL, "", i) for i in range(int(self.options.get("devices", 1)))]

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        return self._configurations

    @cached_property
    def _configurations(self) -> tuple[Configuration, ...]:
        """Configurations of every operation, created once: plans of a million operations call this
        for each."""
        more = self.options.get("configurations", ())
        names = dict.fromkeys(map(str, (BehaviourKind.DEFAULT, BehaviourKind.FAST, *more)))
        return tuple(_configuration(_behaviour_of(name)) for name in names)

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        behaviour = parse_behaviour(name)
        return None if behaviour is None else _configuration(behaviour)

    def compiles_ahead(self, target: Target) -> bool:
        return "seconds_per_compile" in self.options

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        """Write one text file per operation with the names of its dispatches."""

        def source_of(dispatch: Dispatch) -> Path:
            folder = output_folder(workspace.generated, dispatch)
            return folder / f"{operation_name(dispatch.operation)}.txt"

        found = grouped(dispatches, source_of)
        for source, own in found.items():
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text("".join(f"{one.name}\n" for one in own), encoding="utf-8")
        return list(found)

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterator[Compiled]:
        """Sleep ``seconds_per_compile`` for each dispatch that has no binary yet."""
        for dispatch in dispatches:
            try:
                compile_ns = self._compile_one(dispatch, workspace)
            except CompileError as error:
                yield Compiled(dispatch=dispatch, error=error)
            else:
                yield Compiled(dispatch=dispatch, facts=BuildFacts(compile_ns=compile_ns))

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        behaviour = _behaviour_of(dispatch.configuration.name)
        self._compile_one(dispatch, workspace)
        if behaviour.kind is BehaviourKind.HANG_BUILD:
            _hang()
        if behaviour.kind is BehaviourKind.UNSUPPORTED:
            raise UnsupportedError(f"{dispatch}: its configuration requests to be unsupported")
        return NullExecutable(dispatch, behaviour)

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        """The real time of a launch that sleeps, else its simulated time."""
        if "predicted_seconds" in self.options:
            return float(self.options["predicted_seconds"])
        behaviour = parse_behaviour(dispatch.configuration.name)
        return simulated_ns(dispatch.operation, behaviour) / 1e9 if behaviour else None

    def _compile_one(self, dispatch: Dispatch, workspace: Workspace) -> int:
        """Compile unless this has been done already. Returns the duration in ns."""
        began = time.perf_counter_ns()
        binary = None
        if self.compiles_ahead(dispatch.target):
            folder = output_folder(workspace.generated, dispatch)
            binary = folder / f"{dispatch.configuration.name}.bin"
            if binary.exists() and not workspace.force:
                return 0
        match parse_behaviour(dispatch.configuration.name):
            case Behaviour(BehaviourKind.COMPILE_ERROR):
                raise CompileError(
                    f"{dispatch}: its configuration requests that the compiler reject it",
                    hint="Choose another configuration of the null provider.",
                )
            case Behaviour(BehaviourKind.COMPILE_CRASH):
                _die_of(signal.SIGSEGV)
            case Behaviour(BehaviourKind.HANG_COMPILE):
                _hang()
        if binary is not None:
            time.sleep(float(self.options["seconds_per_compile"]))
            binary.parent.mkdir(parents=True, exist_ok=True)
            binary.write_text(dispatch.name + "\n", encoding="utf-8")
        return time.perf_counter_ns() - began


def _configuration(behaviour: Behaviour) -> Configuration:
    value = {"value": behaviour.value} if behaviour.value else {}
    return Configuration(behaviour.name, {"behaviour": str(behaviour.kind), **value})


def simulated_ns(operation: Operation, behaviour: Behaviour) -> float:
    """Duration of a launch without jitter: launch overhead plus the longer of compute and memory
    time, as in the roofline model; a real sleep counts in full."""
    work = max(operation.flops / PEAK_FLOPS_PER_NS, operation.bytes / PEAK_BYTES_PER_NS)
    duration = LAUNCH_OVERHEAD_NS + work
    match behaviour.kind:
        case BehaviourKind.FAST:
            return 0.8 * duration
        case BehaviourKind.FACTOR:
            return behaviour.value * duration
        case BehaviourKind.SLOW:
            return duration + behaviour.value * 1e6
    return duration


def _falsify(output: HostBuffer) -> None:
    if np.issubdtype(output.dtype, np.integer):
        output += 1
    else:
        output[...] = output.astype(np.float64) * 1.5


def _before(behaviour: Behaviour, launches: int) -> None:
    """Behaviour of a launch before it computes; `launches` counts it."""
    match behaviour.kind:
        case BehaviourKind.SLOW:
            time.sleep(behaviour.value / 1e3)
        case BehaviourKind.CHATTY:
            for stream in (1, 2):
                os.write(stream, f"output of the simulated kernel: launch {launches}\n".encode())
        case BehaviourKind.FLAKY if launches % 2:
            pass
        case BehaviourKind.LAUNCH_ERROR | BehaviourKind.FLAKY:
            raise LaunchError(f"launch {launches} was rejected, as its configuration requires")
        case BehaviourKind.RAISES:
            raise RuntimeError(f"launch {launches} raised, as its configuration requires")
        case BehaviourKind.OUT_OF_MEMORY:
            raise OutOfMemoryError(
                "the simulated device has no memory left, as its configuration requires"
            )
        case BehaviourKind.LEAK:
            _leak()
        case BehaviourKind.EXIT:
            os._exit(int(behaviour.value))
        case BehaviourKind.HANG:
            _hang()
        case BehaviourKind.CRASH:
            _die_of(signal.SIGSEGV)
        case BehaviourKind.ABORT:
            _die_of(signal.SIGABRT)


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)


def _die_of(number: signal.Signals) -> NoReturn:
    """Die like a crash in native code, but without leaving a core file."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    _hang()


def _leak() -> NoReturn:
    """Allocate until this process reaches its memory limit, which is set near its current size."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + LEAK_LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (min(limit, hard) if hard > 0 else limit, hard))
    leaked: list[HostBuffer] = []
    try:
        while len(leaked) * _LEAK_STEP_BYTES < 2 * LEAK_LIMIT_BYTES:
            leaked.append(np.ones(_LEAK_STEP_BYTES, np.uint8))
    finally:
        leaked.clear()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    raise MemoryError("the leak was not stopped by the limit on this process's address space")


PROVIDER = NullProvider
