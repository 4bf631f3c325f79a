"""The protocols between layers. A provider implements the first three; the rest is ours.

A *buffer* is whatever a device hands out for memory on it (a torch tensor, a HAL buffer view, a
numpy array); only its own device looks inside. A *host array* is a C-contiguous numpy array of a
tensor's ``storage_shape`` in its dtype (ml_dtypes for bf16 and fp8; float32 for tf32).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.errors import DispatchError
from gemmetry.domain.operation import Operation, TensorSpec
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.target import Target

Buffer: TypeAlias = Any
HostArray: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Where a provider may write, and how it may work."""

    generated: Path
    """Generated sources and binaries: ``<generated>/<dialect>/<kind>/<operation>/`` (iree),
    ``<generated>/<provider>/<kind>/<operation>/`` (others). Shared by parallel compiles."""
    jobs: int = 1
    """Threads or processes one compile call may use."""
    force: bool = False
    """Compile again what is already there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What became of one dispatch in a compile call: facts, or the error that is its outcome."""

    dispatch: Dispatch
    facts: BuildFacts = BuildFacts()
    error: DispatchError | None = None


class Device(Protocol):
    """Memory and time of one device, for the worker process that owns it."""

    last_level_cache_bytes: int

    def allocate(self, spec: TensorSpec) -> Buffer:
        """Uninitialised memory of ``spec.storage_shape``."""

    def upload(self, array: HostArray, spec: TensorSpec) -> Buffer:
        """A new buffer holding `array`."""

    def write(self, buffer: Buffer, array: HostArray, spec: TensorSpec) -> None:
        """Overwrite the buffer with `array`; it stays at its address."""

    def download(self, buffer: Buffer, spec: TensorSpec) -> HostArray:
        """The buffer's content as a host array; waits for the device."""

    def same_bytes(self, left: Buffer, right: Buffer) -> bool:
        """Whether two buffers of one spec hold the same bytes; compared on the device where it
        can, and waits for it."""

    def fill_bytes(self, buffer: Buffer, pattern: int) -> None:
        """Set every byte of the buffer to `pattern` (0–255)."""

    def clone(self, buffer: Buffer) -> Buffer:
        """A copy at another address."""

    def synchronize(self) -> None:
        """Wait for everything submitted to the device, on any stream.

        Raises:
            LaunchError: a launch failed meanwhile. DeviceLostError: the device is gone.
        """

    def time_calls(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], str]:
        """Run each call once, in order; the duration of each in ns and the method used
        (``wall_clock``, ``events``, ``graph`` or ``simulated``)."""

    def free_memory_bytes(self) -> int:
        """Memory that new buffers may take."""

    def release(self) -> None:
        """Give cached memory back."""

    def float64_matmul(self) -> Callable[[HostArray, HostArray], HostArray] | None:
        """``f(A, B) -> A @ B`` in float64 on this device, host arrays in and out, for references
        of large shapes; None where the device is the host or has no float64."""


@runtime_checkable
class GuardedDevice(Protocol):
    """A device that can lay red zones around buffers; verification asks for them where it can."""

    def allocate_guarded(
        self, spec: TensorSpec, *, zone_bytes: int, offset_bytes: int = 0
    ) -> Buffer:
        """Like ``Device.allocate``, with a zone of at least `zone_bytes` just before and just
        after the buffer. Zones are filled with the byte 0xFF, which is NaN in every float format,
        so that a kernel that lets what it reads there into its result shows.

        Args:
            offset_bytes: where the buffer begins within a 256-byte line, for kernels that take an
                alignment for granted that nobody promised. What the device does promise stands in
                its attribute ``alignment_bytes``: 1 for any address of an element; 16 without it.
        """

    def red_zones_intact(self, buffer: Buffer) -> bool:
        """Whether nothing was written just before or just after a guarded `buffer`."""


@runtime_checkable
class ThreadDevice(Protocol):
    """A device that any thread of its process can launch on; verification launches from another
    thread where it can."""

    def enter_thread(self) -> None:
        """Called in a new thread before anything else of the device: makes it the one that
        libraries take for the thread's current device."""


@runtime_checkable
class EditableDevice(Protocol):
    """A device that can write into parts of a buffer, in the order of launches. Where one cannot,
    whole buffers are written instead (:mod:`gemmetry.numerics.editing`)."""

    def prepared_edit(
        self, buffer: Buffer, index: tuple[slice, ...], array: HostArray
    ) -> Callable[[], None]:
        """What writes `array` to ``buffer[index]`` when it is called: after the launches before and
        before those that follow; neither preparing nor writing waits for launches that are queued.
        The write leaves no trace but the bytes: no version that a library
        counts for the buffer changes.

        Args:
            index: into the buffer's ``storage_shape``.
            array: host array of that part's shape, in the buffer's format.
        """

    def fill_repeating(self, buffer: Buffer, values: HostArray) -> None:
        """Overwrite the buffer's elements, in the order of memory, with `values` (one-dimensional,
        in the buffer's format) over and over."""


@runtime_checkable
class OrderedDevice(Protocol):
    """A device with an order of work (a stream, the calling thread) that timing relies on."""

    def unordered_work(self, launch: Callable[[], object], output: Buffer) -> str:
        """Launch, and say what was seen of work outside the timed order: another stream that runs
        ahead or is not waited for, a thread that writes after the launch is over. "" if nothing.

        Args:
            launch: submits one launch that writes `output`.
        """


@runtime_checkable
class StreamDevice(Protocol):
    """A device whose ``time_calls`` sees the work of one stream, and that can record launches."""

    def captured(
        self, call: Callable[[], object], *, keeps_result: bool = False
    ) -> Callable[[], object]:
        """`call` recorded without running it; what is returned replays its launches, without the
        host's part of them.

        Args:
            keeps_result: a replay returns what `call` returned, whose memory then belongs to it
                alone; else None.

        Raises:
            LaunchError: it cannot be recorded, and why; the device works on.
        """

    def time_in_load(
        self,
        lead: Sequence[Callable[[], object]],
        calls: Sequence[Callable[[], object]],
        tail: Sequence[Callable[[], object]],
        lead_ns: float,
    ) -> list[float]:
        """Like ``time_calls``, with `lead` right before and `tail` right after, untimed and without
        a gap; returns when `calls` are done and `tail` may still run.

        Args:
            lead_ns: what the device needs for `lead` at least.
        """

    def stream_and_wall_ns(self, calls: Sequence[Callable[[], object]]) -> tuple[float, float]:
        """Run the calls back to back on the idle device: ns that the stream took for all of them
        by its own events, and ns by the host's clock until the whole device was done.

        Raises:
            LaunchError: the device rejected a launch. DeviceLostError: the device is gone.
        """


@runtime_checkable
class StressDevice(Protocol):
    """A device that can make launches harder than they are on an idle device with clean memory."""

    def spoiled_scratch(self, size_bytes: int) -> AbstractContextManager[None]:
        """While inside, memory that a launch gets without having written it holds the byte 0xFF,
        which is NaN in every float format: what it allocates, and on a GPU shared memory and
        registers, which are zero afterwards unless the launch raised.

        Args:
            size_bytes: of the workspace that a launch may ask for.

        Raises:
            LaunchError: the device failed. DeviceLostError: it is gone.
        """

    def load(self) -> AbstractContextManager[None]:
        """While inside, the device does something else as well: memory is copied, and part of the
        processors is taken. Leaving waits for the launches made inside, and then ends the load.

        Launches are slower, and none waits for ever: what takes multiprocessors of a GPU gives
        them back within a millisecond.

        Raises:
            LaunchError: the device failed. DeviceLostError: it is gone.
        """

    def stress_limits(self) -> str:
        """What of this the device cannot do, and why; "" if it can do all."""


class Executable(Protocol):
    """A dispatch that runs on prepared buffers. Built, used and closed in one worker process."""

    device: Device
    facts: BuildFacts
    writes_output: bool
    """True: `run` fills the buffer it is given; False: it returns one that it allocated, and
    checks on the output's surroundings do not apply."""

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """Submit one launch: inputs in the order of ``operation.inputs``; returns the buffer that
        holds the result. May return before the device is done.

        Raises:
            LaunchError: the device rejected it. OutOfMemoryError: not enough memory.
        """

    def close(self) -> None:
        """Free what the executable holds."""


class Provider(Protocol):
    """Turns dispatches into executables. Made anew in each process as ``Class(options)``.

    Four methods are a provider; the others have defaults in ``providers/base.py``.
    """

    name: str
    rebuilds_quickly: bool
    """True where building a configuration for another shape takes about a second or less, so that
    verification tries tail shapes at its default level and not at ``paranoid`` alone."""

    def available(self) -> str | None:
        """None if it works on this machine, else the reason and what to install."""

    def supports(self, operation: Operation, target: Target) -> str | None:
        """None if it can do `operation` on `target`, else the reason."""

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        """The configurations worth trying, validity filter applied, the default one first."""

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        """Load (compiling if `compile` was not called) an executable.

        Raises:
            DispatchError: this dispatch cannot be built; the engine records it and goes on.
        """

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        """The configuration called `name`, also one that `configurations` does not list; None if
        `name` is not of this provider's grammar."""

    def targets(self) -> Sequence[Target]:
        """The devices on this machine that it can run on, and architectures it can compile for
        (those with ``index`` None)."""

    def compiles_ahead(self, target: Target) -> bool:
        """True if `compile` does work worth doing in parallel, before measuring."""

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        """Write the sources of dispatches of one operation; the files written."""

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        """Compile dispatches of one target, one result each; one that fails costs no other."""

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        """A cheap prediction of one launch's time (smaller products, scaled), or None. It decides
        whether one launch is tried before all others, never by itself that none is made."""

    def versions(self) -> Mapping[str, str]:
        """Libraries whose version matters -> version."""

    def doctor_notes(self) -> Sequence[str]:
        """What ``gemmetry doctor`` should tell of this machine besides ``available``: limits that
        a user would otherwise find out from slow or missing results."""


@runtime_checkable
class Observer(Protocol):
    """Watches a run without knowing what runs. All methods are called in the worker process."""

    def start(self) -> None:
        """Before a sampling round."""

    def sample(self) -> None:
        """Between samples; must take less than a millisecond."""

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        """After the round: fields of ``Telemetry`` by name."""
