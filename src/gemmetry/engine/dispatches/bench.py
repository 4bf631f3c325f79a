"""What a worker does with dispatches: open (build, verify, prepare), sample, close."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gemmetry.domain.contracts import Executable, HostArray, Provider, Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.errors import DeviceLostError, GemmetryError, OutOfMemoryError
from gemmetry.domain.operation import Operation
from gemmetry.domain.outcome import Stage, Verification
from gemmetry.domain.record import BuildFacts, Verdict
from gemmetry.domain.target import Target, TargetKind
from gemmetry.domain.units import format_bytes
from gemmetry.engine.dispatches.companion_builder import CompanionBuilder
from gemmetry.engine.dispatches.copies import Copies, ReturnsOnce
from gemmetry.engine.dispatches.evidence_folders import EvidenceFolders
from gemmetry.engine.dispatches.inputs_and_references import InputsAndReferences
from gemmetry.engine.dispatches.launch_budget import HangWatch, LaunchBudget, hang_watch
from gemmetry.engine.dispatches.sanitizing import sanitize
from gemmetry.engine.failures import describe
from gemmetry.engine.jobs import job_of
from gemmetry.engine.workers.protocol import (
    Channel,
    ChannelClosed,
    Close,
    Closed,
    Entered,
    Failure,
    Hello,
    LeftBehind,
    Open,
    Opened,
    Sample,
    Sampled,
    Trying,
    WireDispatch,
)
from gemmetry.engine.workers.strays import Strays
from gemmetry.hardware.pinning import pin_process
from gemmetry.measurement.buffers import Uploads
from gemmetry.measurement.renewal import LeftOutput
from gemmetry.measurement.sampler import Sampler
from gemmetry.numerics.changes import changed_inputs, changed_reference
from gemmetry.observers import make_observers
from gemmetry.observers.energy import make_energy_counter
from gemmetry.verification.after_timing import NAME as AFTER_TIMING
from gemmetry.verification.after_timing import recheck
from gemmetry.verification.checks import CheckResult, failed
from gemmetry.verification.diagnosis.accumulator_hint import with_accumulator_hint
from gemmetry.verification.evidence import Evidence
from gemmetry.verification.on_device import ReferenceOnDevice
from gemmetry.verification.protocol import verify, with_check


@dataclass(slots=True)
class OpenDispatch:
    """An executable with its sampler, between Open and Close."""

    dispatch: Dispatch
    executable: Executable
    sampler: Sampler | None
    is_verified: bool
    right_output: str
    """Digest of an output that was verified; "" if none is known."""
    is_repeatable: bool = False
    """Whether all launches that were verified in this process gave the same bits."""


class Bench:
    """Serves Open, Sample and Close for one provider on one device."""

    def __init__(
        self,
        channel: Channel,
        provider: Provider,
        hello: Hello,
        workspace: Workspace,
        *,
        may_end: bool = False,
    ) -> None:
        """`may_end`: end this process if a launch hangs."""
        self._may_end = may_end
        self._channel = channel
        self._provider = provider
        self._hello = hello
        self._job = job_of(hello.settings)
        self._workspace = workspace
        self._known = InputsAndReferences(Path(hello.references), hello.settings)
        self._on_device = ReferenceOnDevice()
        self._evidence = EvidenceFolders(Path(hello.failures), hello.settings)
        if hello.target.kind is TargetKind.CPU:
            pin_process(int(hello.options.get("threads", 0)))
        self._observers = make_observers(hello.target)
        if hello.target.is_gpu:
            with suppress(Exception):
                provider.prepare(hello.target)
        # On the host a copy costs as much as an upload.
        self._uploads = Uploads() if hello.target.is_gpu else None
        self._open: dict[int, OpenDispatch] = {}
        self._strays = Strays()
        self._copies = Copies()
        self._watch: HangWatch | None = None
        """Over the launches of the dispatch that is verified."""
        self._companions = CompanionBuilder(provider, workspace, self._companion)

    def handle(self, request: Open | Sample | Close) -> None:
        """Answer each part of the request with one reply."""
        try:
            match request:
                case Open():
                    for wire in request.dispatches:
                        self._answer(wire.id, self._open_one(wire))
                case Sample():
                    self._on_device.clear()  # memory of the device is for what is measured
                    for dispatch_id, count in request.requests:
                        self._answer(dispatch_id, self._sample_one(dispatch_id, count))
                case Close():
                    for dispatch_id in request.ids:
                        self._answer(dispatch_id, self._close_one(dispatch_id))
        finally:
            self._copies.end_copy()

    def _answer(self, dispatch_id: int, answer: Opened | Sampled | Closed) -> None:
        """Answer, and end the processes that a completed dispatch left running."""
        if not isinstance(answer, Sampled):
            left = self._strays.find_new(dispatch_id)
            if left:
                self._channel.send(LeftBehind(dispatch_id, left))
        if dispatch_id not in self._open:
            self._strays.end(dispatch_id)
        self._channel.send(answer)

    def _companion(self, executable: Executable, dispatch: Dispatch) -> ReturnsOnce:
        watch = self._watch and self._watch.of_companion(dispatch.operation.flops)
        return ReturnsOnce(executable, self._copies, watch)

    def _open_one(self, wire: WireDispatch) -> Opened:
        self.enter(wire, Stage.BUILD)
        dispatch = self._hello.dispatch(wire)
        executable: Executable | None = None
        self._copies.forget()
        try:
            executable = self._provider.build(dispatch, self._workspace)
            slow = self._try(wire, dispatch, executable)
            if slow:
                executable.close()
                return Opened(wire.id, executable.facts, None, None, slow, 0)
            verdict, right_output = self._verify(wire, dispatch, executable)
            verdict = self._sanitize(wire, dispatch, verdict)
            if verdict is not None and verdict.status is Verification.FAILED:
                executable.close()
                return Opened(wire.id, executable.facts, verdict, None, "", 0)
            if self._hello.target.is_gpu:
                # Memory that verification leaves cached is not available to other processes.
                executable.device.release()
            prepared = self._job.prepare(self, wire, dispatch, executable)
            sampler = prepared.sampler
            is_verified = verdict is not None or not wire.verify
            self._copies.wait_and_check()
            self._open[wire.id] = OpenDispatch(
                dispatch,
                executable,
                sampler,
                is_verified,
                right_output or wire.right_output,
                verdict is not None and verdict.checks.get("repeat") == "passed",
            )
            free = executable.device.free_memory_bytes()
            sample_s = 0.0 if sampler is None else sampler.sample_s
            return Opened(
                wire.id, executable.facts, verdict, None, "", free, prepared.trace, right_output,
                sample_s,
            )  # fmt: skip
        except ChannelClosed:
            raise
        except Exception as error:  # noqa: BLE001  # the isolation boundary
            facts = BuildFacts() if executable is None else executable.facts
            return Opened(wire.id, facts, None, self._failure(error, executable), "", 0)

    def _try(self, wire: WireDispatch, dispatch: Dispatch, executable: Executable) -> str:
        """Why the dispatch is skipped; "" if it continues.

        A prediction decides only whether one launch is timed first, under a deadline that the
        parent enforces.
        """
        budget = LaunchBudget(self._job, verifies=wire.verify)
        if not wire.is_new or not budget.is_doubtful(self._provider.seconds_per_launch(dispatch)):
            return ""
        self.enter(wire, Stage.VERIFY)
        device, operation = executable.device, dispatch.operation
        _require_memory(operation, device.free_memory_bytes())
        arrays = self._known.inputs(operation)
        buffers = [device.upload(a, s) for a, s in zip(arrays, operation.inputs, strict=True)]
        output = device.allocate(operation.output)
        device.synchronize()
        self._channel.send(Trying(wire.id))
        began = time.monotonic()
        ReturnsOnce(executable, self._copies).run(buffers, output)
        device.synchronize()
        return budget.objection(time.monotonic() - began)

    def _verify(
        self, wire: WireDispatch, dispatch: Dispatch, executable: Executable
    ) -> tuple[Verdict | None, str]:
        """The verdict, and the digest of the output that was found correct, for comparison with
        timed launches."""
        settings = self._hello.settings
        if not (settings.verify and wire.verify):
            return None, ""
        self.enter(wire, Stage.VERIFY)
        operation, level = dispatch.operation, settings.verification_level
        inputs = self._known.inputs(operation)
        reference = self._known.reference(operation, executable)
        deadline_s = settings.deadlines_s[Stage.VERIFY]
        if self._may_end:
            self._watch = hang_watch(self._provider, dispatch, deadline_s)
        companions = self._companions.companions(dispatch, level)
        right = ""

        def note_right(digest: str) -> None:
            nonlocal right
            right = digest

        verdict = verify(
            ReturnsOnce(executable, self._copies, self._watch),
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
            on_right=note_right if self._job.samples else None,
        )
        self._copies.wait_and_check()
        verdict = with_accumulator_hint(
            verdict, operation, inputs, reference, companions, level=level, seed=settings.seed
        )
        return verdict, right

    def _sanitize(
        self, wire: WireDispatch, dispatch: Dispatch, verdict: Verdict | None
    ) -> Verdict | None:
        """`verdict` with the checks of the sanitizers that the settings name."""
        if verdict is None:
            return None
        for tool in self._hello.settings.sanitizers:
            self.enter(wire, Stage.VERIFY)
            verdict = with_check(verdict, sanitize(dispatch, self._hello, tool))
        return verdict

    def enter(self, wire: WireDispatch, stage: Stage) -> None:
        """See :class:`gemmetry.engine.jobs.Workbench`."""
        self._channel.send(Entered(wire.id, stage))

    def inputs(self, operation: Operation) -> tuple[HostArray, ...]:
        """See :class:`gemmetry.engine.jobs.Workbench`."""
        return self._known.inputs(operation)

    def make_sampler(self, dispatch: Dispatch, executable: Executable) -> Sampler:
        """See :class:`gemmetry.engine.jobs.Workbench`."""
        operation = dispatch.operation
        sampler = Sampler(
            executable, operation, self.inputs(operation), self._hello.settings, self._observers,
            self._uploads, self._copies.end_copy,
        )  # fmt: skip
        sampler.prepare()
        return sampler

    def _sample_one(self, dispatch_id: int, count: int) -> Sampled:
        item = self._open[dispatch_id]
        try:
            assert item.sampler is not None
            taken = item.sampler.sample_round(count)
            self._copies.wait_and_check()
            return Sampled(dispatch_id, taken, None)
        except Exception as error:  # noqa: BLE001  # the isolation boundary
            failure = self._failure(error, item.executable)
            del self._open[dispatch_id]
            return Sampled(dispatch_id, None, failure)

    def _close_one(self, dispatch_id: int) -> Closed:
        item = self._open.pop(dispatch_id)
        try:
            check, evidence_path = self._recheck(item)
            energy = None
            if item.sampler is not None:
                if self._hello.settings.energy and not (check and check.is_failure):
                    energy = item.sampler.measure_energy(
                        make_energy_counter(self._hello.target), _windows(self._hello.target)
                    )
                item.sampler.close()
            item.executable.close()
            self._copies.wait_and_check()
            return Closed(dispatch_id, check, None, evidence_path, energy)
        except Exception as error:  # noqa: BLE001  # the isolation boundary
            return Closed(dispatch_id, None, self._failure(error, item.executable))

    def _recheck(self, item: OpenDispatch) -> tuple[CheckResult | None, str | None]:
        """Check the outputs of the timed launches, and keep the first wrong one; None if nothing is
        verified."""
        if item.sampler is None or not (self._hello.settings.verify and item.is_verified):
            return None, None
        operation = item.dispatch.operation
        inputs = self._known.inputs(operation)
        find_reference = partial(self._known.reference, operation, item.executable)
        last: list[LeftOutput] = []
        right = item.right_output
        left = [*item.sampler.recheck(right), *item.sampler.kept_results(right)]
        damage = item.sampler.damaged()
        check = recheck(
            operation,
            _watched(left, last),
            find_reference,
            inputs=inputs,
            right=right,
            is_repeatable=item.is_repeatable,
            declared=item.executable.facts.declared,
            seed=self._hello.settings.seed,
        )
        if damage and not check.is_failure:
            return failed(AFTER_TIMING, f"a timed launch {damage}"), None
        if not check.is_failure:
            return check, None
        output, change = last[0].array, last[0].change
        reference = find_reference()
        if change is not None:
            if reference is not None:
                reference = changed_reference(operation, inputs, reference, change)
            inputs = changed_inputs(operation, inputs, change)
        expected = None if reference is None else reference.value
        evidence = Evidence(check.name, operation, inputs, output, expected, None)
        return check, self._evidence.keeper(item.dispatch)(evidence)

    def _failure(self, error: Exception, executable: Executable | None) -> Failure:
        """Describe `error`, end the processes that the kernel forked, and find out whether the
        device still responds."""
        self._copies.forget()
        spoiled = False
        if executable is not None and not isinstance(error, DeviceLostError):
            try:
                executable.device.synchronize()
            except GemmetryError:
                spoiled = True
        return describe(error, worker_is_spoiled=spoiled)


def _windows(target: Target) -> int:
    """Windows of energy for each process: six in all, with which a median has an interval, where a
    GPU is shared by the usual three processes."""
    return 2 if target.is_gpu else 6


def _require_memory(operation: Operation, free_bytes: int) -> None:
    """Raise OutOfMemoryError for an operation that cannot fit, before it exhausts the machine's
    memory."""
    if operation.bytes > free_bytes:
        raise OutOfMemoryError(
            f"inputs and result of {operation} take {format_bytes(operation.bytes)}, "
            f"of which {format_bytes(free_bytes)} are free",
            hint="Choose a smaller shape.",
        )


def _watched(outputs: Iterable[LeftOutput], last: list[LeftOutput]) -> Iterator[LeftOutput]:
    """Yield `outputs`; `last` holds the latest one."""
    for output in outputs:
        last[:] = [output]
        yield output
