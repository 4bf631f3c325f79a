"""A launch that takes hundreds of times as long as expected has hung. A timer then ends the worker
(SIGALRM, whose default action needs no cooperation of the kernel), long before the deadline of the
stage.

Detects kernels that fork and return twice: the copy of the worker is ended as soon as it returns
from the launch, before it forks again, and the dispatch is rejected.

A copy that returns sets a mark in shared memory. A copy that has not returned when the launch
itself returns may be late on a busy machine, may hang (a lock that another thread of the worker
held is never released in a copy), or may be about to end in the kernel, as it should. A check
therefore waits for every copy that still exists, and rejects the kernel if one remains.

Inputs and float64 references of the operations that a worker verifies and times.

Builds the configuration under test for other operations, for checks that need shapes with
tails.

What a worker does with dispatches: open (build, verify, prepare), sample, close.
"""

from __future__ import annotations

import math
import mmap
import os
import signal
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from gemmetry.domain.contracts import Buffer, Executable, HostArray, Provider, Workspace
from gemmetry.domain.dispatch import (
    DEFAULT_CONFIGURATION,
    Configuration,
    Dispatch,
    Target,
    TargetKind,
)
from gemmetry.domain.errors import (
    DeviceLostError,
    GemmetryError,
    LaunchError,
    OutOfMemoryError,
    Stage,
    UnsupportedError,
    Verification,
)
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import BuildFacts, TraceFacts, Verdict
from gemmetry.domain.settings import RunSettings
from gemmetry.domain.units import format_bytes
from gemmetry.engine import protocol
from gemmetry.engine.candidates import PROBE_DOUBT, LaunchBudget, job_of
from gemmetry.engine.guardian import (
    Process,
    Strays,
    collect,
    descendants,
    has_children,
    kill,
    own_image,
)
from gemmetry.engine.journal import FAILURES, EvidenceFolders
from gemmetry.engine.sanitizing import sanitize
from gemmetry.hardware.host import pin_process
from gemmetry.hardware.monitors import make_energy_counter, make_observers
from gemmetry.measurement.launches import Uploads
from gemmetry.measurement.sampler import Sampler
from gemmetry.numerics.inputs import changed_inputs, changed_reference, make_inputs
from gemmetry.numerics.references import Reference, compute_reference
from gemmetry.providers.launch_model import least_seconds
from gemmetry.verification.after_timing import NAME as AFTER_TIMING
from gemmetry.verification.after_timing import ReferenceOnDevice, recheck
from gemmetry.verification.checks import CheckResult, failed
from gemmetry.verification.companions import Companions, most_shapes
from gemmetry.verification.comparison import Evidence
from gemmetry.verification.context import HOST_PRODUCT_FLOPS, ReferenceCache, checked
from gemmetry.verification.protocol import verify, with_accumulator_hint, with_check

LEAST_HUNG_S = 5.0
LEAST_HUNG_SHARE = 1 / 12
"""A launch may always take this long, and this share of the stage's deadline (10 of 120 s):
processes may share the device, and a first launch loads a library."""

SLOW_GPU_FLOPS = 1e11
"""Rate that every kernel compiled for a GPU exceeds that predicts no time of its own: a thousandth
of what the vector units of current GPUs reach."""


class HangWatch:
    """Ends this process if the launches of one executable hang.

    Args:
        expected_s: of the first launch; None: it may compile, and take any time.
        flops: of a launch.
        deadline_s: of the stage.
    """

    def __init__(self, expected_s: float | None, flops: float, deadline_s: float) -> None:
        self._expected_s, self._flops, self._deadline_s = expected_s, flops, deadline_s
        self._compiles = expected_s is None
        share = protocol.COMPILING_HUNG_SHARE if self._compiles else LEAST_HUNG_SHARE
        self._least_s = max(LEAST_HUNG_S, deadline_s * share)

    def of_companion(self, flops: float) -> HangWatch:
        """The watch over another executable of the same configuration."""
        expected_s = None
        if self._expected_s is not None and not self._compiles:
            expected_s = self._expected_s * max(1.0, flops / max(self._flops, 1.0))
        return HangWatch(expected_s, flops, self._deadline_s)

    def limit_s(self, launches: int) -> float:
        """The time after which so many launches in a row have hung."""
        if self._expected_s is None:
            return math.inf
        return max(self._least_s, protocol.HUNG * self._expected_s * launches)

    @contextmanager
    def watching(self, launches: int = 1) -> Iterator[None]:
        """Within the context so many launches run, and nothing else."""
        limit_s, began = self.limit_s(launches), time.monotonic()
        # The stage's own deadline, which the parent enforces, has the better reason.
        if limit_s < self._deadline_s:
            signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._expected_s = max(self._expected_s or 0.0, (time.monotonic() - began) / launches)


def hang_watch(provider: Provider, dispatch: Dispatch, deadline_s: float) -> HangWatch:
    """The watch over the launches of `dispatch`."""
    flops, target = dispatch.operation.flops, dispatch.target
    expected_s = provider.seconds_per_launch(dispatch)
    if expected_s is not None:
        expected_s *= PROBE_DOUBT
    elif target.is_gpu and provider.compiles_ahead(target):
        expected_s = flops / SLOW_GPU_FLOPS
    return HangWatch(expected_s, flops, deadline_s)


CHECK_S = 0.01
"""The time between two checks of a copy, in seconds."""

MOST_IDLE_CHECKS = 50
"""A copy that is found asleep this often (half a second) will not end soon. Checks that find it
waiting for a processor do not count, so that a busy machine decides nothing."""

MOST_CPU_S = 2.0
"""A copy that has used this much processor time will not end soon."""

_IDLE_STATES = "STt"
"""Asleep, stopped, traced (``proc_pid_stat(5)``); a process that waits for a disk (D) continues
soon."""


class Copies:
    """Whether a kernel has made a copy of this process that does not end in the kernel.

    Copies that return are found by their mark on every system. Copies that remain are found in
    /proc, so only on Linux, even in another process group or session, because a worker is the
    subreaper of what it starts. Processes of :mod:`multiprocessing` never return from a launch, and
    may remain.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._seen = mmap.mmap(-1, 1)  # shared with copies
        self._below: set[int] = set()
        """The processes below this one at the last check, if all had ended."""
        self._others: set[int] = set()
        self._others = {process.pid for process in self._running()}

    def forget(self) -> None:
        """Prepare for another kernel; the copies of the last one are ended."""
        self._end_all()
        self._seen[0] = 0

    def end_copy(self) -> None:
        """End this process if it is a copy."""
        if os.getpid() != self._owner:
            self._seen[0] = 1
            os._exit(0)

    def check(self) -> None:
        """End this process if it is a copy; reject a kernel of which a copy has already returned.

        Raises:
            LaunchError: a copy has returned.
        """
        self.end_copy()
        if self._seen[0]:
            raise self._refusal("forks and returns twice, once from the copy of the process")

    def wait_and_check(self) -> None:
        """Like :meth:`check`, after waiting for existing copies. It takes microseconds if this
        process has no children.

        Raises:
            LaunchError: a copy has returned, or remains.
        """
        self.end_copy()
        idle: Counter[int] = Counter()
        while running := self._running():
            self.check()
            idle.update(process.pid for process in running if process.state in _IDLE_STATES)
            if any(
                idle[process.pid] >= MOST_IDLE_CHECKS or process.cpu_s >= MOST_CPU_S
                for process in running
            ):
                raise self._refusal(
                    "forks and leaves a copy of the process that neither ends nor executes "
                    "another program"
                )
            time.sleep(CHECK_S)
        self.check()

    def _running(self) -> list[Process]:
        """The copies that are alive, except for processes that existed before any kernel."""
        while has_children():
            # If nothing of it was imported, it has no processes.
            module = sys.modules.get("multiprocessing")
            known = {child.pid for child in module.active_children()} if module else set()
            found = descendants(self._owner, without=self._others | known, dead=True)
            image = own_image() if found else ""
            running = [process for process in found if process.is_alive and process.image == image]
            ended = set() if running else {process.pid for process in found}
            before, self._below = self._below, ended
            # A copy that ended during the check may have created another one too late to be seen:
            # none is left if a check finds the same as the one before, which had all ended.
            if running or ended == before:
                return running
        return []

    def _end_all(self) -> None:
        while running := self._running():
            for process in running:
                kill(process.pid)
            for process in running:
                collect(process.pid)

    def _refusal(self, what: str) -> LaunchError:
        """End all copies. Returns the exception to raise for a kernel that does `what`."""
        self._end_all()
        return LaunchError(
            f"the kernel {what}", hint="End the copy in the kernel, with os._exit or exec."
        )


@dataclass(eq=False)
class ReturnsOnce:
    """An executable whose untimed launches are checked for copies.

    After the first launch it waits for copies. A kernel that always creates one is rejected
    before it has created many. `shared_by` is the number of processes that use the device at the
    same time.
    """

    _executable: Executable
    _copies: Copies
    _watch: HangWatch | None = None
    shared_by: int = 1
    _is_new: bool = True

    def __post_init__(self) -> None:
        self.device, self.facts = self._executable.device, self._executable.facts
        self.writes_output = self._executable.writes_output

    def watching(self, launches: int) -> AbstractContextManager[None]:
        """A context within which so many launches run and end."""
        return nullcontext() if self._watch is None else self._watch.watching(launches)

    def close(self) -> None:
        """Close the executable."""
        self._executable.close()

    def run(self, inputs: Sequence[Buffer], output: Buffer) -> Buffer:
        """Like the executable's own method.

        Raises:
            LaunchError: the kernel has forked and returned twice.
        """
        try:
            result = self._executable.run(inputs, output)
        finally:
            self._copies.end_copy()
        check = self._copies.wait_and_check if self._is_new else self._copies.check
        self._is_new = False
        check()
        return result


HOST_REFERENCE_FLOPS = HOST_PRODUCT_FLOPS
"""Products up to this size get their float64 reference from the host, larger ones from the device
if it can compute it, which the host checks."""

REFERENCE_SECONDS = 30.0
"""A float64 reference that would take the host longer is not computed; Freivalds' test replaces it.
Two cores of a small machine (40 GFLOP/s) reach 1.2e12 FLOPs, a product of 8192³."""

_PROBE_SIZE = 768
"""The edge of the float64 product whose time shows how fast the host is: about 20 ms on two
cores."""

KEPT_BYTES = 2 << 30
"""The host memory for inputs of recent operations; the latest are always kept."""


class InputsAndReferences:
    """Inputs and float64 references of operations; the most recent ones are kept in memory."""

    def __init__(self, references: Path, settings: RunSettings) -> None:
        self._cache = ReferenceCache(references)
        self._settings = settings
        self._inputs: OrderedDict[Operation, tuple[HostArray, ...]] = OrderedDict()
        self._held_bytes = 0

    def inputs(self, operation: Operation) -> tuple[HostArray, ...]:
        """Host arrays of the operation's inputs."""
        if operation in self._inputs:
            self._inputs.move_to_end(operation)
            return self._inputs[operation]
        settings = self._settings
        found = make_inputs(operation, distribution=settings.distribution, seed=settings.seed)
        self._inputs[operation] = found
        self._held_bytes += sum(array.nbytes for array in found)
        while self._held_bytes > KEPT_BYTES and len(self._inputs) > 1:
            _, dropped = self._inputs.popitem(last=False)
            self._held_bytes -= sum(array.nbytes for array in dropped)
        return found

    def reference(self, operation: Operation, executable: Executable) -> Reference | None:
        """The operation's reference: from memory, from the experiment, or computed now; None if
        only the host could compute it, and would take too long."""
        settings, matmul = self._settings, None
        is_large = operation.flops > HOST_REFERENCE_FLOPS
        if is_large or settings.verification_providers[:1] == ("device",):
            matmul = executable.device.float64_matmul()
        seconds = operation.flops / host_flops_per_second() if is_large and not matmul else 0.0
        if seconds > REFERENCE_SECONDS:
            return None

        def compute() -> Reference:
            product = None if matmul is None else checked(matmul)
            return compute_reference(operation, self.inputs(operation), matmul=product)

        return self._cache.get(operation, settings.distribution, settings.seed, compute)


@cache
def host_flops_per_second() -> float:
    """The rate of numpy's float64 product on this host, measured with some products of
    :data:`_PROBE_SIZE`³."""
    matrix = np.ones((_PROBE_SIZE, _PROBE_SIZE))
    return 2 * _PROBE_SIZE**3 / least_seconds(lambda: np.matmul(matrix, matrix))


class CompanionBuilder:
    """Companions of one provider's dispatches. Their results are kept for the worker's lifetime, so
    that a sweep over shapes verifies the tails of a configuration only once."""

    def __init__(
        self,
        provider: Provider,
        workspace: Workspace,
        guard: Callable[[Executable, Dispatch], Executable] = lambda executable, _: executable,
    ) -> None:
        """`guard` wraps each executable that is built for a dispatch."""
        self._guard = guard
        self._provider = provider
        # Forced recompilation is for the dispatches of the plan; their tails may come from the
        # cache.
        self._workspace = replace(workspace, force=False)
        self._known: dict[tuple[object, ...], dict[str, CheckResult]] = {}

    def companions(self, dispatch: Dispatch, level: str, chosen: str = "") -> Companions | None:
        """The companions of `dispatch`; None if building them costs more than `level` allows.

        Args:
            chosen: the configuration that a trial chose. It computes the other shapes that it
                supports, and the provider's default the rest: a trial for each shape would take
                longer than its checks, and prove other algorithms. "": there was no trial.
        """
        if level == "quick" or not (self._provider.rebuilds_quickly or level == "paranoid"):
            return None
        configuration = dispatch.configuration
        names = [chosen, DEFAULT_CONFIGURATION] if chosen else [configuration.name]
        key = (*names, dispatch.operation.signature, configuration.tile)
        return Companions(
            partial(self._build, dispatch, names),
            configuration.tile,
            stages_of(configuration),
            most_shapes=shapes_of(self._provider, dispatch.operation, dispatch.target, level),
            known=self._known.setdefault(key, {}),
        )

    def _build(
        self, dispatch: Dispatch, names: Sequence[str], operation: Operation
    ) -> Executable | None:
        """The first of the configurations called `names` that supports `operation`."""
        provider, target = self._provider, dispatch.target
        if provider.supports(operation, target) is not None:
            return None
        for name in names:
            if (configuration := provider.parse_configuration(name, operation, target)) is None:
                continue
            built = Dispatch(operation, configuration, dispatch.provider, target)
            try:
                return self._guard(provider.build(built, self._workspace), built)
            except UnsupportedError:
                if name == names[-1]:
                    raise
        return None


def shapes_of(provider: Provider, operation: Operation, target: Target, level: str) -> int | None:
    """How many shapes of the covering set a configuration of `provider` is tried on; None: all."""
    return most_shapes(target, level, len(list(provider.configurations(operation, target))))


def stages_of(configuration: Configuration) -> int | None:
    """Depth of the configuration's pipeline, if it names one."""
    stages = configuration.parameters.get("stages", configuration.parameters.get("num_stages"))
    return stages if isinstance(stages, int) and stages > 0 else None


@dataclass(slots=True)
class OpenDispatch:
    """An executable with its sampler, between Open and Close."""

    dispatch: Dispatch
    executable: Executable
    sampler: Sampler | None
    is_verified: bool
    right_output: str
    """Digest of an output that was verified; "" if none is known."""
    is_repeatable: bool
    """Whether all launches that were verified in this process gave the same bits."""


@dataclass(eq=False)
class Bench:
    """Serves Open, Sample and Close for one provider on one device. With `may_end` this process is
    ended if a launch hangs."""

    _channel: protocol.Channel
    _provider: Provider
    _hello: protocol.Hello
    _workspace: Workspace
    may_end: bool = False

    def __post_init__(self) -> None:
        hello, provider = self._hello, self._provider
        self._job = job_of(hello.settings)
        folder = Path(hello.folder)
        self.known = InputsAndReferences(folder / "references", hello.settings)
        self._on_device = ReferenceOnDevice()
        self._evidence = EvidenceFolders(folder / FAILURES, hello.settings)
        if hello.target.kind is TargetKind.CPU:
            pin_process(int(hello.options.get("threads", 0)))
        self._observers = make_observers(hello.target)
        if hello.target.is_gpu:
            with suppress(Exception):
                provider.prepare(hello.target)
        # On the host a copy costs as much as an upload.
        self._uploads = Uploads() if hello.target.is_gpu else None
        self._open: dict[int, OpenDispatch] = {}
        self._shared_by = 1
        self._ahead: dict[int, Executable] = {}
        """Executables that were built ahead, of which some are verified."""
        self._repeatable: set[int] = set()
        """Dispatches with the same bits in every launch when this process verified them."""
        self._strays = Strays()
        self._copies = Copies()
        self._watch: HangWatch | None = None
        """Over the launches of the dispatch that is verified."""
        self._companions = CompanionBuilder(provider, self._workspace, self._companion)

    def handle(self, request: protocol.Open | protocol.Sample | protocol.Close) -> None:
        """Answer each part of the request with one reply."""
        try:
            match request:
                case protocol.Open():
                    self._shared_by = max(1, request.ahead)
                    for wire in request.dispatches:
                        self._answer(wire.id, self._open_one(wire, request))
                    if request.only_verifies:
                        self._on_device.clear()
                case protocol.Sample():
                    self._on_device.clear()  # memory of the device is for what is measured
                    for executable in self._ahead.values():  # wrong in another process
                        with suppress(Exception):
                            executable.close()
                    self._ahead.clear()
                    for dispatch_id, count in request.requests:
                        sampled = self._sample_one(dispatch_id, count, request.is_loaded)
                        self._answer(dispatch_id, sampled)
                case protocol.Close():
                    for dispatch_id in request.ids:
                        self._answer(dispatch_id, self._close_one(dispatch_id))
        finally:
            self._copies.end_copy()

    def _answer(
        self, dispatch_id: int, answer: protocol.Opened | protocol.Sampled | protocol.Closed
    ) -> None:
        """Answer, and end the processes that a completed dispatch left running."""
        if not isinstance(answer, protocol.Sampled) and (
            left := self._strays.find_new(dispatch_id)
        ):
            self._channel.send(protocol.LeftBehind(dispatch_id, left))
        if dispatch_id not in self._open:
            self._strays.end(dispatch_id)
        self._channel.send(answer)

    def _companion(self, executable: Executable, dispatch: Dispatch) -> ReturnsOnce:
        watch = self._watch and self._watch.of_companion(dispatch.operation.flops)
        return ReturnsOnce(executable, self._copies, watch, self._shared_by)

    def _open_one(self, wire: protocol.WireDispatch, request: protocol.Open) -> protocol.Opened:
        self.enter(wire, Stage.BUILD)
        ahead = request.ahead > 0
        dispatch = self._hello.dispatch(wire)
        executable = self._ahead.pop(wire.id, None)
        self._copies.forget()
        try:
            if executable is None:
                executable = self._provider.build(dispatch, self._workspace)
                if slow := self._try(wire, dispatch, executable):
                    executable.close()
                    return protocol.Opened(wire.id, executable.facts, None, None, slow, 0)
            verdict, right_output = self._verify(wire, dispatch, executable)
            if verdict is not None:
                if verdict.checks.get("repeat") == "passed":
                    self._repeatable.add(wire.id)
                if verdict.status is Verification.FAILED:
                    executable.close()
                    return protocol.Opened(wire.id, executable.facts, verdict, None, "", 0)
            if self._hello.target.is_gpu:
                # Memory that verification leaves cached is not available to other processes.
                executable.device.release()
            prepared = None if ahead else self._job.prepare(self, wire, dispatch, executable)
            sampler = prepared if isinstance(prepared, Sampler) else None
            trace = prepared if isinstance(prepared, TraceFacts) else None
            self._copies.wait_and_check()
            free = executable.device.free_memory_bytes()
            if request.only_verifies:
                executable.close()
            elif ahead:
                self._ahead[wire.id] = executable
                self.known.inputs(dispatch.operation)  # for the sampler, which has the device alone
            else:
                is_verified = verdict is not None or not wire.verify
                right = right_output or wire.right_output
                self._open[wire.id] = OpenDispatch(
                    dispatch, executable, sampler, is_verified, right, wire.id in self._repeatable
                )
            sample_s = 0.0 if sampler is None else sampler.sample_s
            return protocol.Opened(
                wire.id, executable.facts, verdict, None, "", free, trace, right_output, sample_s
            )
        except protocol.ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001  # the isolation boundary
            facts = BuildFacts() if executable is None else executable.facts
            return protocol.Opened(wire.id, facts, None, self._failure(error, executable), "", 0)

    def _try(self, wire: protocol.WireDispatch, dispatch: Dispatch, executable: Executable) -> str:
        """Why the dispatch is skipped; "" if it continues.

        A prediction decides only whether one launch is timed first, under a deadline that the
        parent enforces.
        """
        budget = LaunchBudget(self._job, verifies=wire.verify)
        if not wire.is_new or not budget.is_doubtful(self._provider.seconds_per_launch(dispatch)):
            return ""
        self.enter(wire, Stage.VERIFY)
        device, operation = executable.device, dispatch.operation
        if operation.bytes > (free_bytes := device.free_memory_bytes()):
            raise OutOfMemoryError(
                f"inputs and result of {operation} take {format_bytes(operation.bytes)}, "
                f"of which {format_bytes(free_bytes)} are free",
                hint="Choose a smaller shape.",
            )
        arrays = self.known.inputs(operation)
        buffers = [device.upload(a, s) for a, s in zip(arrays, operation.inputs, strict=True)]
        output = device.allocate(operation.output)
        device.synchronize()
        self._channel.send(protocol.Trying(wire.id))
        began = time.monotonic()
        ReturnsOnce(executable, self._copies).run(buffers, output)
        device.synchronize()
        return budget.objection(time.monotonic() - began)

    def _verify(
        self, wire: protocol.WireDispatch, dispatch: Dispatch, executable: Executable
    ) -> tuple[Verdict | None, str]:
        """The verdict, and the digest of the output that was found correct, for comparison with
        timed launches."""
        settings = self._hello.settings
        if not (settings.verify and wire.verify):
            return None, ""
        self.enter(wire, Stage.VERIFY)
        operation, level = dispatch.operation, settings.verification_level
        inputs = self.known.inputs(operation)
        reference = self.known.reference(operation, executable)
        deadline_s = settings.deadlines_s[Stage.VERIFY]
        if self.may_end:
            self._watch = hang_watch(self._provider, dispatch, deadline_s)
        facts = executable.facts
        chosen = facts.default_configuration if facts.algorithms_tried else None
        companions = self._companions.companions(dispatch, level, chosen or "")
        right: list[str] = []
        verdict = verify(
            ReturnsOnce(executable, self._copies, self._watch, self._shared_by),
            operation,
            inputs,
            reference,
            level=level,
            seed=settings.seed,
            companions=companions,
            on_device=self._on_device,
            judge_rivals=settings.judge_rivals,
            row_invariance=settings.row_invariance,
            on_failure=self._evidence.keeper(dispatch),
            on_right=right.append if self._job.samples else None,
        )
        self._copies.wait_and_check()
        verdict = with_accumulator_hint(
            verdict, operation, inputs, reference, companions, level=level, seed=settings.seed
        )
        for tool in settings.sanitizers:
            self.enter(wire, Stage.VERIFY)
            verdict = with_check(verdict, sanitize(dispatch, self._hello, tool))
        return verdict, right[-1] if right else ""

    def enter(self, wire: protocol.WireDispatch, stage: Stage) -> None:
        """Announce that the dispatch enters `stage`, which starts the deadline of that stage."""
        self._channel.send(protocol.Entered(wire.id, stage))

    def make_sampler(self, dispatch: Dispatch, executable: Executable) -> Sampler:
        """A sampler of `executable`, warmed up."""
        operation = dispatch.operation
        sampler = Sampler(
            executable, operation, self.known.inputs(operation), self._hello.settings,
            self._observers, self._uploads, self._copies.end_copy,
        )  # fmt: skip
        sampler.prepare()
        return sampler

    def _sample_one(self, dispatch_id: int, count: int, is_loaded: bool) -> protocol.Sampled:
        item = self._open[dispatch_id]
        try:
            assert item.sampler is not None
            taken = item.sampler.sample_round(count, is_loaded=is_loaded)
            self._copies.wait_and_check()
            return protocol.Sampled(dispatch_id, taken, None)
        except Exception as error:  # noqa: BLE001  # the isolation boundary
            failure = self._failure(error, item.executable)
            del self._open[dispatch_id]
            return protocol.Sampled(dispatch_id, None, failure)

    def _close_one(self, dispatch_id: int) -> protocol.Closed:
        item = self._open.pop(dispatch_id)
        try:
            check, evidence_path = self._recheck(item)
            energy = None
            if item.sampler is not None:
                if self._hello.settings.energy and not (check and check.is_failure):
                    target = self._hello.target
                    # Six windows in all, with which a median has an interval: a GPU is shared by
                    # the usual three processes.
                    windows = 2 if target.is_gpu else 6
                    energy = item.sampler.measure_energy(make_energy_counter(target), windows)
                item.sampler.close()
            item.executable.close()
            self._copies.wait_and_check()
            return protocol.Closed(dispatch_id, check, None, evidence_path, energy)
        except Exception as error:  # noqa: BLE001  # the isolation boundary
            return protocol.Closed(dispatch_id, None, self._failure(error, item.executable))

    def _recheck(self, item: OpenDispatch) -> tuple[CheckResult | None, str | None]:
        """Check the outputs of the timed launches, and keep the first wrong one; None if nothing is
        verified."""
        if item.sampler is None or not (self._hello.settings.verify and item.is_verified):
            return None, None
        operation = item.dispatch.operation
        inputs = self.known.inputs(operation)
        find_reference = partial(self.known.reference, operation, item.executable)
        right = item.right_output
        left = [*item.sampler.recheck(right), *item.sampler.kept_results(right)]
        unseen = iter(left)
        damage = item.sampler.damaged()
        check = recheck(
            operation,
            unseen,
            find_reference,
            inputs=inputs,
            right=right,
            right_result=item.sampler.right_result(right),
            is_repeatable=item.is_repeatable,
            declared=item.executable.facts.declared,
            seed=self._hello.settings.seed,
        )
        if not check.is_failure:
            return failed(f"a timed launch {damage}", name=AFTER_TIMING) if damage else check, None
        _, output, change = left[-1 - len(list(unseen))]  # the latest that was checked
        reference = find_reference()
        if change is not None:
            if reference is not None:
                reference = changed_reference(operation, inputs, reference, change)
            inputs = changed_inputs(operation, inputs, change)
        expected = None if reference is None else reference.value
        evidence = Evidence(check.name, operation, inputs, output, expected, None)
        return check, self._evidence.keeper(item.dispatch)(evidence)

    def _failure(self, error: Exception, executable: Executable | None) -> protocol.Failure:
        """Describe `error`, end the processes that the kernel forked, and find out whether the
        device still responds."""
        self._copies.forget()
        spoiled = False
        if executable is not None and not isinstance(error, DeviceLostError):
            try:
                executable.device.synchronize()
            except GemmetryError:
                spoiled = True
        return protocol.describe(error, worker_is_unusable=spoiled)
