"""The protocols between layers. A provider implements the first three; gemmetry implements the
rest.

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

from gemmetry.domain.dispatch import Configuration, Dispatch, Target
from gemmetry.domain.errors import DispatchError
from gemmetry.domain.files import is_writable
from gemmetry.domain.operation import Operation, TensorSpec
from gemmetry.domain.record import BuildFacts

Buffer: TypeAlias = Any
HostArray: TypeAlias = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Folder and resources that a provider may use."""

    generated: Path
    """Generated sources and binaries: ``<generated>/<dialect>/<kind>/<operation>/`` (iree),
    ``<generated>/<provider>/<kind>/<operation>/`` (others). Shared by parallel compiles."""
    jobs: int = 1
    """Threads or processes one compile call may use."""
    force: bool = False
    """Compile again even where a compiled result exists."""
    kept: Path | None = None
    """Machine code that other experiments find again; None: below `generated`."""

    def cache(self, name: str) -> Path:
        """The folder in which the compiler of `name` keeps machine code by what it depends on."""
        if self.kept is not None and is_writable(folder := self.kept / name / "cache"):
            return folder
        return self.generated / name / "cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The result of compiling one dispatch: its facts, or the error that becomes its outcome."""

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
        """Overwrite the buffer with `array`; its address does not change."""

    def download(self, buffer: Buffer, spec: TensorSpec) -> HostArray:
        """The buffer's content as a host array; waits for the device."""

    def same_bytes(self, left: Buffer, right: Buffer) -> bool:
        """Whether two buffers of the same spec hold the same bytes. Compares on the device where it
        can, and waits for the device."""

    def fill_bytes(self, buffer: Buffer, pattern: int) -> None:
        """Set every byte of the buffer to `pattern` (0–255)."""

    def clone(self, buffer: Buffer) -> Buffer:
        """A copy at another address."""

    def synchronize(self) -> None:
        """Wait for everything submitted to the device, on any stream.

        Raises:
            LaunchError: a launch has failed. DeviceLostError: the device is gone.
        """

    def time_calls(self, calls: Sequence[Callable[[], object]]) -> tuple[list[float], str]:
        """Run each call once, in order. Returns the duration of each in ns, and the method used
        (``wall_clock``, ``events``, ``graph`` or ``simulated``)."""

    def free_memory_bytes(self) -> int:
        """Bytes of memory available for new buffers."""

    def release(self) -> None:
        """Release cached memory."""

    def float64_matmul(self) -> Callable[[HostArray, HostArray], HostArray] | None:
        """``f(A, B) -> A @ B`` in float64 on this device, host arrays in and out, for references
        of large shapes; None where the device is the host or has no float64."""


@runtime_checkable
class RedZoneDevice(Protocol):
    """A device that can place red zones around buffers; verification uses them
    where the device has them."""

    def allocate_with_red_zones(
        self, spec: TensorSpec, *, zone_bytes: int, offset_bytes: int = 0
    ) -> Buffer:
        """Allocate as ``Device.allocate`` does, with a zone of at least `zone_bytes` just before
        and just after the buffer. Zones are filled with the byte 0xFF, which is NaN in every float
        format, so that reading a zone shows in the result.

        Args:
            offset_bytes: where the buffer begins within a 256-byte line; exposes kernels that
                assume an alignment that is not guaranteed. The guaranteed alignment is the device's
                attribute ``alignment_bytes``: 1 for any address of an element; 16 if the attribute
                is missing.
        """

    def red_zones_intact(self, buffer: Buffer) -> bool:
        """Whether the zones before and after a `buffer` that has them are unchanged."""


@runtime_checkable
class ThreadDevice(Protocol):
    """A device that any thread of its process can launch on; verification launches from another
    thread where it can."""

    def enter_thread(self) -> None:
        """Make this the current device of the calling thread, as libraries see it. A new thread
        calls this before it uses the device."""


@runtime_checkable
class DigestingDevice(Protocol):
    """A device that computes digests of buffers itself."""

    def digest(self, buffer: Buffer, negated: Sequence[tuple[slice, ...]] = ()) -> str | None:
        """Digest of the bytes of `buffer`, in which the parts `negated` count with the opposite
        sign; None where the host has to compute it. It differs from every digest of the host."""


@runtime_checkable
class EditableDevice(Protocol):
    """A device that can write to parts of a buffer, ordered with its launches. For other devices,
    whole buffers are written instead (:mod:`gemmetry.numerics.inputs`)."""

    def prepared_edit(
        self, buffer: Buffer, index: tuple[slice, ...], array: HostArray
    ) -> Callable[[], None]:
        """Return a function that writes `array` to ``buffer[index]``, after all launches queued
        earlier and before all queued later. Neither preparing nor writing waits for queued
        launches. The write changes only the bytes: a library's version counter of the buffer stays
        the same.

        Args:
            index: into the buffer's ``storage_shape``.
            array: host array of the shape of that part, in the buffer's format.
        """

    def fill_repeating(self, buffer: Buffer, values: HostArray) -> None:
        """Fill the buffer, in memory order, with repetitions of `values` (one-dimensional, in the
        buffer's format)."""


@runtime_checkable
class OrderedDevice(Protocol):
    """A device whose timing relies on work running in order (on one stream, or on the calling
    thread)."""

    def unordered_work(self, launch: Callable[[], object], output: Buffer) -> str:
        """Launch, and describe any work found outside the timed order: another stream that runs
        ahead or is not waited for, or a thread that writes after the launch has ended. "" if none.

        Args:
            launch: submits one launch that writes `output`.
        """


@runtime_checkable
class StreamDevice(Protocol):
    """A device whose ``time_calls`` covers the work of one stream, and that can capture
    launches."""

    def neighbour(self) -> Callable[[], object] | None:
        """Submits a small kernel on memory of its own, which can be captured. None where a launch
        ends before the next one begins anyway."""

    def captured(
        self, call: Callable[[], object], *, keeps_result: bool = False
    ) -> Callable[[], object]:
        """Capture `call` without running it. The returned function replays its launches without
        their host-side work.

        Args:
            keeps_result: a replay returns the result of `call`, whose memory is then reserved for
                the replay; otherwise it returns None.

        Raises:
            LaunchError: the call cannot be captured; the message states why, and the device remains
                usable.
        """

    def time_in_load(
        self,
        lead: Sequence[Callable[[], object]],
        calls: Sequence[Callable[[], object]],
        tail: Sequence[Callable[[], object]],
        lead_ns: float,
    ) -> list[float]:
        """Time `calls` as ``time_calls`` does, with `lead` immediately before and `tail`
        immediately after, untimed and without a gap. Returns when `calls` are done; `tail` may
        still be running.

        Args:
            lead_ns: the least time that the device needs for `lead`.
        """

    def stream_and_wall_ns(self, calls: Sequence[Callable[[], object]]) -> tuple[float, float]:
        """Run the calls back to back on the idle device. Returns the time for all of them in ns,
        first by the stream's own events, then by the host's clock until the whole device was idle.

        Raises:
            LaunchError: the device rejected a launch. DeviceLostError: the device is gone.
        """


@runtime_checkable
class StressDevice(Protocol):
    """A device that can make launches harder than they are on an idle device with clean memory."""

    def spoiled_scratch(self, size_bytes: int) -> AbstractContextManager[None]:
        """Within the context, memory that no launch has written holds the byte 0xFF, which is NaN
        in every float format: its allocations and, on a GPU, shared memory and
        registers, which are zeroed on exit unless the launch raised.

        Args:
            size_bytes: size of the workspace that a launch may request.

        Raises:
            LaunchError: the device failed. DeviceLostError: the device is gone.
        """

    def load(self) -> AbstractContextManager[None]:
        """While inside, the device does something else as well: memory is copied, and part of the
        processors is taken. Leaving waits for the launches made inside, and then ends the load.

        Launches are slower, and none waits for ever: what takes multiprocessors of a GPU gives
        them back within a millisecond.

        Raises:
            LaunchError: the device failed. DeviceLostError: the device is gone.
        """

    def stress_limits(self) -> str:
        """Unsupported parts of this protocol, and why; "" if the device supports everything."""


class Executable(Protocol):
    """A dispatch ready to run on prepared buffers. It is built, used and closed in one worker
    process."""

    device: Device
    facts: BuildFacts
    writes_output: bool
    """True: `run` fills the buffer passed to it. False: it returns a buffer that it allocated, and
    the checks of memory around the output do not apply."""

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """Submit one launch, with inputs in the order of ``operation.inputs``. Returns the buffer
        that holds the result, possibly before the device is done.

        Raises:
            LaunchError: the device rejected the launch. OutOfMemoryError: not enough memory.
        """

    def close(self) -> None:
        """Free the executable's resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedDispatch:
    """A dispatch that a search found, or a baseline of one."""

    dispatch: Dispatch
    median_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedFormat:
    """A format in which a provider's own users keep tuned configurations."""

    name: str
    suffixes: tuple[str, ...]
    module: str
    """Has ``tuned_text(shapes, device, suffix)``: it takes a list of :class:`TunedDispatch` for
    each shape, the fastest first and then those that tie with it, the product of the device and the
    file's suffix, returns the file's text, and raises RequestError where it would be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTraits:
    """Facts about a provider that are needed before it is loaded, declared by its package as
    ``TRAITS``."""

    is_default: bool = True
    """Runs that name no provider take it where it works."""
    takes_kernels: bool = False
    """``--kernel`` gives it the functions that it runs."""
    baseline_rank: int | None = None
    """Place among the vendor libraries (cuBLAS, hipBLASLt, MKL, OpenBLAS), the best first, which
    are what readers compare a kernel with; None: it is not such a library."""
    best_configuration: str = ""
    """The configuration that is the fastest of several algorithms of that library: a stricter
    baseline than the algorithm that the library takes by itself."""
    records_traces: bool = False
    """``trace record`` takes it where a request names no provider."""
    spec_keys: tuple[str, ...] = ()
    """Keys of a spec that its constructor is given as options."""
    is_listed: bool = True
    """Whether lists, completion and suggestions include the provider; if not, it must be named."""
    is_dispatch_profilers: bool = False
    """The dispatch profiler's own set of dispatches is for it."""
    legacy_label: str = ""
    """Label in the dispatch profiler's formats, if it differs."""
    support_targets: tuple[str, ...] = ()
    """Names of the targets that the support matrix shows for it."""
    colour: int | None = None
    """Index into the palette of reports; None: chosen by name."""
    tuned_formats: tuple[TunedFormat, ...] = ()
    """Formats of files that ``gemmetry tune`` writes of its configurations."""
    heuristics_target: str = "CUTLASS3"
    """Whose tiles it should be proposed: a name of ``NvMatmulHeuristicsTarget``."""


class Provider(Protocol):
    """Turns dispatches into executables. Each process creates its own instance as
    ``Class(options)``.

    Four methods are enough for a provider; the others have defaults in ``providers/base.py``.
    """

    name: str
    rebuilds_quickly: bool
    """True where building a configuration for another shape takes at most about a second, so that
    verification tests tail shapes at its default level and not only at ``paranoid``."""

    def available(self) -> str | None:
        """None if the provider works on this machine, else the reason and what to install."""

    def supports(self, operation: Operation, target: Target) -> str | None:
        """None if the provider supports `operation` on `target`, else the reason."""

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        """The valid configurations worth trying, the default one first."""

    def search_space(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        """All valid configurations that a search may try, which may be many more."""

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        """Load (compiling if `compile` was not called) an executable.

        Raises:
            DispatchError: this dispatch cannot be built; the engine records the error and
                continues.
        """

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        """The configuration called `name`, even if `configurations` does not list it; None if
        `name` does not follow this provider's grammar."""

    def why_not(self, name: str, operation: Operation, target: Target) -> str | None:
        """Reason why the configuration called `name` cannot be built; None where nothing is known
        without building it."""

    def targets(self) -> Sequence[Target]:
        """The devices of this machine that the provider runs on. Also the architectures it can
        compile for (those with ``index`` None)."""

    def prepare(self, target: Target) -> None:
        """Load what the first dispatch on a GPU would otherwise load: libraries, the device's
        context. All worker processes do so at once, before the first dispatch; errors are left to
        `build`."""

    def compiles_ahead(self, target: Target) -> bool:
        """True if `compile` does work that is worth doing in parallel before measuring."""

    def generate(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Sequence[Path]:
        """Write the sources of dispatches of one operation. Returns the files written."""

    def compile(self, dispatches: Sequence[Dispatch], workspace: Workspace) -> Iterable[Compiled]:
        """Compile dispatches of one target, with one result each. A failure does not affect the
        others."""

    def seconds_per_launch(self, dispatch: Dispatch) -> float | None:
        """A cheap prediction of one launch's time in ns (scaled from smaller products), or None. A
        high prediction makes the engine try a single launch first; it never skips a dispatch by
        itself."""

    def versions(self) -> Mapping[str, str]:
        """Maps the libraries whose version matters to their versions."""

    def doctor_notes(self) -> Sequence[str]:
        """Notes of ``gemmetry doctor`` in addition to ``available``: limits of this machine that a
        user would otherwise discover through slow or missing results."""


@runtime_checkable
class ProposingProvider(Protocol):
    """A provider that predicts which of its configurations are fast."""

    def proposals(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        """A few configurations that compute `operation`, the most promising one first."""


@runtime_checkable
class Observer(Protocol):
    """Observes a run, whatever is being run. All methods are called in the worker process."""

    def start(self) -> None:
        """Called before a sampling round."""

    def sample(self) -> None:
        """Called between samples; must take less than a millisecond."""

    def stop(self) -> Mapping[str, float | str | tuple[str, ...]]:
        """Called after the round; returns fields of ``Telemetry`` by name."""
