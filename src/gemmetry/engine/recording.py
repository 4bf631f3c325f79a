"""``traces_matmul/manifest.json``: maps each folder of traces to its dispatch.

A dispatch is numbered once and keeps its number, whatever is recorded in the folder later. The rest
of the file is derived from the journal, so that it can be regenerated at any time.

The job that records traces: each dispatch alone, under the profiler, into its own folder.

Records launches under torch's profiler: Kineto traces, and a Chakra execution trace.

It works wherever torch does, on CUDA and ROCm through the same calls. Everything that the process
runs is recorded, so kernels of other providers on a GPU appear too; operators are only torch's.

Records the traces of one dispatch, in its worker.

Folders of traces during a run: which dispatch gets which, and the manifest that lists them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
import numpy as np

from gemmetry.domain.columns import COLUMNS_BY_NAME, row
from gemmetry.domain.contracts import Buffer, Executable, HostArray
from gemmetry.domain.dispatch import Dispatch, split_dispatch_name
from gemmetry.domain.errors import (
    JournalDamagedError,
    LaunchError,
    NameSyntaxError,
    RequestError,
    Stage,
    StorageError,
    UnsupportedError,
)
from gemmetry.domain.files import remove, within, write_whole
from gemmetry.domain.operation import Layout
from gemmetry.domain.record import (
    DispatchFinished,
    Environment,
    Event,
    Listener,
    Record,
    TraceFacts,
)
from gemmetry.domain.settings import TraceSchedule
from gemmetry.engine.candidates import (
    Candidate,
    Document,
    Job,
    Lacking,
    Outputs,
)
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.schema import indented, storage_errors
from gemmetry.formats.events import GpuKind
from gemmetry.formats.kineto import read_kineto

if TYPE_CHECKING:
    from gemmetry.domain.contracts import Executable
    from gemmetry.domain.dispatch import Dispatch
    from gemmetry.engine.bench import Bench
    from gemmetry.engine.candidates import Candidate
    from gemmetry.engine.experiment import Experiment
    from gemmetry.engine.protocol import Opened, WireDispatch


TRACES = "traces_matmul"
"""Subfolder of the traces in an experiment folder, named as in the grid tracing document."""

_VERSION = 1

WRITE_EVERY_S = 1.0
"""Least time between two writes during recording: a manifest of a thousand folders is about a
megabyte, which should not be rewritten for each of them."""

_PRECISIONS = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "s8": "int8"}
"""The document's names of formats that gemmetry names differently."""

_TRANSPOSED = {Layout.ROW: False, Layout.COLUMN: True}

Key: TypeAlias = tuple[str, str, str]
"""(device or, where none is attached, target; provider; dispatch)."""

_COLUMNS = (
    "operation", "configuration", "kind", "m", "n", "k", "batch", "lhs_dtype", "rhs_dtype",
    "result_dtype", "accumulator", "layouts", "distribution", "seed", "verification", "reason",
    "environment_id", "reproduce",
)  # fmt: skip
"""Columns of the record that an entry includes."""


class Entry(msgspec.Struct, kw_only=True):
    """One configuration."""

    number: int
    folder: str
    """Folder relative to the experiment; it exists where `outcome` is ok."""
    device: str
    provider: str
    dispatch: str
    m: int | None = None
    n: int | None = None
    k: int | None = None
    """This field and the next four use the grid tracing document's names of properties of the
    dispatch."""
    dtype: str | None = None
    """Format of A in the document's spelling: fp32, fp16, bf16, int8."""
    transpose_a: bool | None = None
    """Whether A is stored column-major; None for a convolution."""
    transpose_b: bool | None = None
    batch_size: int | None = None
    schedule: dict[str, int] = {}
    chakra_all_steps: bool = False
    outcome: str | None = None
    """None: the dispatch has not run yet."""
    record: dict[str, Any] = {}
    files: list[str] = []
    operators: int | None = None
    kernels: int | None = None
    input_sha256: dict[str, str] = {}
    output_sha256: str | None = None

    @property
    def key(self) -> Key:
        """The key that the entry's number belongs to."""
        return self.device, self.provider, self.dispatch


_TRACED: Mapping[str, object] = {
    "files": (), "operators": None, "kernels": None, "input_sha256": {}, "output_sha256": None,
}  # fmt: skip
"""Fields of an entry that :class:`TraceFacts` has too, and their values without it."""


class TraceManifestDocument(msgspec.Struct, kw_only=True):
    """The file."""

    schema_version: int = _VERSION
    configurations: list[Entry] = []
    environments: dict[str, Any] = {}
    """Machine and versions, by ``environment_id``."""


class TraceManifest(Outputs):
    """The manifest of one experiment, for its writer, which assigns the folders that it lists."""

    def __init__(
        self, experiment: Path, environments: Callable[[], Mapping[str, Environment]] = dict
    ) -> None:
        """Read the existing file. `environments`: those that the records' ``environment_id``
        identifies.

        Raises:
            JournalDamagedError: the file cannot be read.
        """
        self._experiment, self._environments = experiment, environments
        self._path = experiment / TRACES / "manifest.json"
        self._written = 0.0
        self._document = _read(self._path)
        self._entries = {entry.key: entry for entry in self._document.configurations}

    def begin(
        self,
        keys: Iterable[Key],
        records: Iterable[Record],
        schedule: TraceSchedule,
        *,
        kept_of: str | None = None,
    ) -> None:
        """Number every key, update the entries from the journal, and write the file.

        Args:
            kept_of: files with fewer repeats than `schedule` requires are kept if they were
                recorded in the environment with this id; None: earlier recordings are discarded
                (``--fresh``).

        Raises:
            StorageError: the file cannot be written.
        """
        last = max((entry.number for entry in self._entries.values()), default=0)
        for key in keys:
            known = self._entries.get(key)
            last += known is None
            entry = _blank(key, last if known is None else known.number, schedule)
            if known is not None and _may_grow(known, schedule, kept_of):
                kept = {name: getattr(known, name) for name in ("record", *_TRACED)}
                entry = msgspec.structs.replace(entry, **kept)
            self._entries[key] = entry
        for record in records:
            self._fill(record)
        self.write()

    def assign(self, candidate: Candidate) -> None:
        """Assign a folder to a candidate, and the number of repeats to keep."""
        target = candidate.lane.target
        key = (target.device or target.name, candidate.lane.provider, candidate.name)
        candidate.trace_folder = str(self._experiment.resolve() / self.folder(key))
        candidate.trace_kept = self.kept(key)

    def noting(self, listener: Listener) -> Listener:
        """`listener`, preceded by updates of the manifest for its events."""

        def listen(event: Event) -> None:
            if isinstance(event, DispatchFinished):
                self.add(event.record)
            listener(event)

        return listen

    def close(self) -> None:
        """Write the manifest one last time, with the environments."""
        found = {key: asdict(one) for key, one in self._environments().items()}
        self._document.environments |= found
        self.write()

    def kept(self, key: Key) -> int:
        """Number of repeats of `key` recorded earlier, which are kept while it waits for more."""
        entry = self._entries[key]
        return _repeats(entry) if entry.outcome is None else 0

    def folder(self, key: Key) -> str:
        """The folder for the traces of `key`, relative to the experiment."""
        return self._entries[key].folder

    def add(self, record: Record) -> None:
        """Add a finished dispatch; its folder is removed if nothing was recorded.

        Raises:
            StorageError: the file cannot be written.
        """
        before = self._entries[key_of(record)]
        stays = before.files if before.outcome is None else []
        entry = self._fill(record)
        if record.trace is None:
            entry.files = stays
            folder = self._experiment / entry.folder
            with contextlib.suppress(OSError):
                _remove(folder, [folder / name for name in stays])
        if time.monotonic() - self._written > WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Replace the file.

        Raises:
            StorageError: the file cannot be written.
        """
        self._document.configurations = sorted(self._entries.values(), key=lambda e: e.number)
        with storage_errors(self._experiment):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, indented(self._document), durable=True)
        self._written = time.monotonic()

    def _fill(self, record: Record) -> Entry:
        entry = self._entries[key_of(record)]
        entry.outcome = str(record.outcome)
        entry.record = row(record, [COLUMNS_BY_NAME[name] for name in _COLUMNS])
        for name, nothing in _TRACED.items():
            setattr(entry, name, getattr(record.trace, name, nothing))
        entry.files = list(entry.files)
        return entry


def key_of(record: Record) -> Key:
    """The key that the number of a record's folder belongs to."""
    return record.device or record.target, record.provider, record.dispatch


def _blank(key: Key, number: int, schedule: TraceSchedule) -> Entry:
    device, provider, dispatch = key
    steps: dict[str, Any] = asdict(schedule)
    all_steps = bool(steps.pop("chakra_all_steps"))
    return Entry(
        number=number, folder=f"{TRACES}/config_{number:04d}", device=device, provider=provider,
        dispatch=dispatch, schedule=steps, chakra_all_steps=all_steps, **_document_names(dispatch),
    )  # fmt: skip


def _document_names(dispatch: str) -> dict[str, Any]:
    """The parts of a dispatch under the names that the grid tracing document's configurations
    use."""
    try:
        operation, _ = split_dispatch_name(dispatch)
    except NameSyntaxError:
        return {}
    shape, s = operation.matmul_shape, operation.signature
    is_matrix = s.lhs_layout in _TRANSPOSED
    return {
        "m": shape.m,
        "n": shape.n,
        "k": shape.k,
        "dtype": _PRECISIONS.get(s.lhs.name, s.lhs.name),
        "transpose_a": _TRANSPOSED[s.lhs_layout] if is_matrix else None,
        "transpose_b": _TRANSPOSED[s.rhs_layout] if is_matrix else None,
        "batch_size": shape.batch,
    }


def _may_grow(entry: Entry, schedule: TraceSchedule, environment_id: str | None) -> bool:
    """True if the entry's files may be kept while further repeats are recorded. A single execution
    trace over all launches cannot be extended, and one configuration cannot combine repeats of two
    environments."""
    return (
        environment_id is not None
        and 0 < _repeats(entry) < schedule.repeats
        and not schedule.chakra_all_steps
        and entry.record.get("environment_id") == environment_id
    )


def _repeats(entry: Entry) -> int:
    return max(len(entry.files) - 1, 0)


def _read(path: Path) -> TraceManifestDocument:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return TraceManifestDocument()
    except OSError as error:
        raise _damaged(path, f"cannot be read: {error.strerror or error}") from error
    try:
        document = msgspec.json.decode(text, type=TraceManifestDocument)
        for entry in document.configurations:
            within(path.parents[1], entry.folder)
    except (msgspec.MsgspecError, UnicodeDecodeError, RequestError) as error:
        raise _damaged(path, f"cannot be read: {error}") from error
    if document.schema_version != _VERSION:
        version = document.schema_version
        raise _damaged(
            path, f"is of version {version}, but this version of gemmetry reads {_VERSION}"
        )
    return document


def _damaged(path: Path, cause: str) -> JournalDamagedError:
    return JournalDamagedError(
        f"the manifest {path} {cause}",
        hint="Without it, the numbers of the folders are unknown. Restore it from a copy, or give "
        "another --experiment.",
    )


@dataclass(frozen=True, slots=True)
class Recording(Job):
    """Traces of every dispatch are recorded once it is verified; see :class:`Job`."""

    schedule: TraceSchedule

    may_leave_out: ClassVar[bool] = True
    older_plans_grow: ClassVar[bool] = True  # it may have had fewer repeats
    keeps_verdicts: ClassVar[bool] = False
    works_alone: ClassVar[bool] = True
    leaves_files: ClassVar[bool] = True
    worker_defaults: ClassVar[Mapping[str, str]] = {
        "KINETO_LOG_LEVEL": "6",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    """Torch's profiler writes four lines per repeat, which would displace the explanation of a
    failure from the end of the output. It raises its errors in any case, as seen with torch
    2.13."""

    def outputs(self, store: Experiment, environment_id: str, *, fresh: bool) -> Outputs:
        """The folders of the traces and their manifest."""
        lanes = {lane.id: lane for lane in store.lanes()}
        places = {key: one.target.device or one.target.name for key, one in lanes.items()}
        keys = ((places[one.lane], lanes[one.lane].provider, one.name) for one in store.planned())
        manifest = TraceManifest(store.path, store.environments)
        kept_of = None if fresh else environment_id
        manifest.begin(keys, store.records(), self.schedule, kept_of=kept_of)
        return manifest

    def without_growth(self, old: Document, new: Document) -> Document:
        """More repeats are added to the existing ones; fewer would be another grid."""
        if "trace" not in old or "trace" not in new:
            return new
        before, now = old["trace"], new["trace"]
        return {**new, "trace": {**now, "repeats": min(before["repeats"], now["repeats"])}}

    def lacking(self, store: Experiment, *, other_amounts: bool) -> Lacking | None:
        """Dispatches that have fewer repeats than the schedule, or lost their folder."""

        def lacks(number: int, record: Record) -> bool:
            if (trace := record.trace) is None:
                return False
            return trace.repeats < self.schedule.repeats or not (store.path / trace.folder).is_dir()

        return lacks

    def flaw_of_opened(self, opened: Opened, wire: WireDispatch) -> str:
        """Traces must be in the dispatch's own folder."""
        if opened.trace is None or opened.trace.folder != wire.trace_folder:
            return "traces in a folder that is not the dispatch's"
        return ""

    @property
    def launch_limit_s(self) -> float:
        """All launches of the schedule must fit the deadline of the stage."""
        return self.settings.deadlines_s[Stage.TRACE] / self.schedule.steps

    def objection(self, seconds: float) -> str:
        """Names the deadline to set instead."""
        steps, deadline_s = self.schedule.steps, self.settings.deadlines_s[Stage.TRACE]
        if steps * seconds <= deadline_s:
            return ""
        return (
            f"so that the {steps} launches of its traces would exceed their deadline of "
            f"{deadline_s:g} s; run it with --set "
            f"deadlines.trace={math.ceil(2 * steps * seconds)} or fewer repeats"
        )

    def prepare(
        self, bench: Bench, wire: WireDispatch, dispatch: Dispatch, executable: Executable
    ) -> TraceFacts:
        """Record the traces."""
        bench.enter(wire, Stage.TRACE)
        inputs, folder = bench.known.inputs(dispatch.operation), Path(wire.trace_folder)
        return record_traces(executable, dispatch, inputs, self, folder, wire.trace_kept)


CHAKRA_NAME = "CPU_trace.json"
"""The name that the grid tracing document gives the execution trace."""

KINETO_SUFFIX = ".pt.trace.json"

_SMALL_TRACE_BYTES = 1 << 20

METADATA_KEY = "gemmetry"
"""Key at the top level of a Kineto trace whose value describes the recording."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Result of a recording."""

    files: tuple[str, ...]
    """File names in the folder, the execution trace first."""
    operators: int
    kernels: int


def trace_names(repeats: int) -> list[str]:
    """The files of a recording: the execution trace, then a Kineto trace for each repeat."""
    return [CHAKRA_NAME, *(_kineto_name(number) for number in range(1, repeats + 1))]


def _kineto_name(number: int) -> str:
    return f"repeat_{number:02d}{KINETO_SUFFIX}"


def record(
    launch: Callable[[], object],
    synchronize: Callable[[], object],
    folder: Path,
    schedule: TraceSchedule,
    *,
    on_gpu: bool,
    about: Mapping[str, Any],
    kept: int = 0,
) -> Recorded:
    """Launch as often as `schedule` specifies and write the traces into the existing `folder`.

    One step is one launch and the wait for it: a kernel lies within the step of its launch.
    Every repeat writes a file ``repeat_01.pt.trace.json`` ... The execution trace covers the first
    repeat: its ``rf_id`` are that Kineto trace's ``Record function id``, and a linker would find no
    times for operators of other repeats. With ``schedule.chakra_all_steps`` it holds every
    launch instead, including those of waiting and warm-up.

    Args:
        about: JSON values that go into each Kineto trace, under :data:`METADATA_KEY`.
        kept: number of repeats whose files, and the execution trace, already are in `folder`; they
            are kept, and only further repeats are launched.

    Raises:
        StorageError: the disk is full.
        UnsupportedError: torch is not installed, or the trace contains nothing of the launch.
        LaunchError: the launch ran on a GPU, but no kernel was recorded.
    """
    if importlib.util.find_spec("torch") is None:
        what = "recording traces needs torch's profiler; pip install 'gemmetry[torch]'"
        raise UnsupportedError(what)
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile
    from torch.profiler import schedule as torch_schedule

    remaining = replace(schedule, repeats=schedule.repeats - kept)
    earlier = [(name, *_count(folder / name)) for name in trace_names(kept)[1:]]
    counts: list[tuple[str, int, int]] = []
    # The execution trace exists where further repeats are added to a grid.
    observer = None if kept else ExecutionTraceObserver()
    if observer is not None:
        observer.register_callback(str(folder / CHAKRA_NAME))
    of_all = observer if schedule.chakra_all_steps else None

    def keep(profiler: Any) -> None:
        name = _kineto_name(kept + len(counts) + 1)
        profiler.export_chrome_trace(str(folder / name))
        if observer is not None and of_all is None:
            observer.unregister_callback()  # Closes the file; harmless from the second repeat on.
        counts.append((name, *_count(folder / name)))

    with warnings.catch_warnings():
        # Warnings that it keeps only the last repeat (each is written when it ends), and that a
        # schedule without warm-up skews results (which was requested).
        warnings.filterwarnings("ignore", message=".*Profiler ", category=UserWarning)
        profiler = profile(
            activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * on_gpu],  # ROCm's too
            schedule=torch_schedule(
                wait=remaining.wait_steps, warmup=remaining.warmup_steps,
                active=remaining.active_steps, repeat=remaining.repeats,
            ),
            on_trace_ready=keep,
            record_shapes=True,
            execution_trace_observer=None if of_all is not None else observer,
        )  # fmt: skip
        profiler.preset_metadata_json(METADATA_KEY, json.dumps(about))
        with contextlib.ExitStack() as recording:
            if of_all is not None:
                of_all.start()
                recording.callback(of_all.unregister_callback)
                recording.callback(of_all.stop)
            recording.enter_context(profiler)
            for _ in range(remaining.steps):
                launch()
                synchronize()
                profiler.step()
    _check(counts, remaining, on_gpu)
    _, operators, kernels = zip(*earlier, *counts, strict=True)
    return Recorded(tuple(trace_names(schedule.repeats)), sum(operators), sum(kernels))


def _count(path: Path) -> tuple[int, int]:
    """Numbers of operators and kernels in a Kineto trace, read back from the file."""
    with path.open("rb") as file:
        rows = read_kineto(file)
    if rows is None or rows.partial:
        _check_room(path.parent)
        what = "wrote no trace events into" if rows is None else "did not end"
        raise LaunchError(f"torch's profiler {what} {path.name}")
    return len(rows.operators.name), int(np.count_nonzero(rows.gpu.kind == GpuKind.KERNEL))


def _check_room(folder: Path) -> None:
    """Check that traces can be written, as the profiler does not report write errors.

    Raises:
        StorageError: the folder cannot hold a file of the size of a small trace.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_SMALL_TRACE_BYTES))
            file.flush()
    except OSError as error:
        raise StorageError(
            f"cannot write traces into {folder}: {error.strerror or error}",
            hint="Free some space, and run the same command again.",
        ) from error


def _check(counts: list[tuple[str, int, int]], schedule: TraceSchedule, on_gpu: bool) -> None:
    if len(counts) != schedule.repeats:
        raise LaunchError(
            f"torch's profiler ended {len(counts)} of {schedule.repeats} repeats",
            hint="Run it again; the profiler's output is in the worker's log.",
        )
    for name, operators, kernels in counts:
        if on_gpu and kernels == 0:
            raise LaunchError(
                f"torch's profiler recorded no GPU kernel in {name}",
                hint="Another profiler may be using the GPU, or this build of torch lacks CUPTI "
                "or roctracer.",
            )
        if operators == 0 and kernels == 0:
            raise UnsupportedError(
                "torch's profiler does not record launches that bypass torch",
                hint="Record --providers torch, or user kernels that call torch.",
            )


_SENTINEL = 0xFF
"""The byte with which the result is filled before the first launch: NaN in every float format."""


def record_traces(
    executable: Executable,
    dispatch: Dispatch,
    inputs: Sequence[HostArray],
    job: Recording,
    folder: Path,
    kept: int = 0,
) -> TraceFacts:
    """Run `dispatch` under the profiler and keep its files.

    Args:
        inputs: the inputs of ``dispatch.operation``, on the host.
        folder: the folder of the files, whose contents are replaced.
        kept: the repeats of an earlier run that are kept; only further ones are recorded. If one of
            their files is missing, all are recorded.

    Raises:
        UnsupportedError, LaunchError: see :func:`gemmetry.engine.recording.record`.
        OutOfMemoryError: inputs and output do not fit.
    """
    stays = [folder / name for name in trace_names(kept)] if kept else []
    if not all(path.is_file() for path in stays):
        kept, stays = 0, []
    _remove(folder, stays)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        operation, device = dispatch.operation, executable.device
        buffers = [device.upload(a, s) for a, s in zip(inputs, operation.inputs, strict=True)]
        output = device.allocate(operation.output)
        device.fill_bytes(output, _SENTINEL)
        device.synchronize()
        results: list[Buffer] = [output]

        def launch() -> None:
            results[:] = [executable.run(buffers, output)]

        recorded = record(
            launch,
            device.synchronize,
            folder,
            job.schedule,
            on_gpu=dispatch.target.is_gpu,
            kept=kept,
            about={
                "dispatch": dispatch.name, "provider": dispatch.provider,
                "target": dispatch.target.name, "seed": job.settings.seed,
                "distribution": job.settings.distribution,
            },
        )  # fmt: skip
        roles = [spec.role for spec in operation.inputs]
        return TraceFacts(
            folder=str(folder), **asdict(recorded),
            input_sha256=dict(zip(roles, map(digest, inputs), strict=True)),
            output_sha256=digest(device.download(results[0], operation.output)),
        )  # fmt: skip
    except BaseException:
        # A reader would take half a trace, as written to a full disk, for a whole one.
        _remove(folder, stays)
        raise


def _remove(folder: Path, stays: Sequence[Path]) -> None:
    """Remove everything from `folder` except `stays`; the folder too, if nothing remains."""
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir() if stays else [folder]:
            if path not in stays:
                remove(path, inside=folder.parents[1])  # the experiment's


def digest(array: HostArray) -> str:
    """SHA-256 over the array's bytes in storage order."""
    return hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).hexdigest()
