"""Judge a submission: is it right, is it honest, and how fast is it?

The submission runs in a confined process (:mod:`.sandbox`, :mod:`.child`). This process keeps the
reference, the seeds, the inputs, the clock and the verdict. Every launch has inputs that did not
exist before; while they are written, the submission's processes are stopped. Time is the slope over
batches of two lengths, by this process's clock; costs of a batch as a whole do not count.
The submission and torch's own function, which runs in a process of the same kind, take turns; on
CUDA the best of cuBLASLt does too. No work is missed because it runs on another stream or thread:
the clock stops when results that are chosen after the reply have been copied.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from gemmetry.domain.dispatch import Target, TargetKind
from gemmetry.domain.errors import LaunchError, RequestError, Verification, WrongResultError
from gemmetry.domain.operation import Operation
from gemmetry.domain.rows import Row, Rows, fact
from gemmetry.domain.units import format_ns
from gemmetry.hardware.host_device import HostBuffer
from gemmetry.hardware.roofline import SpeedLimit, device_of, roofline, speed_limit
from gemmetry.judge.census import Ran, compiled, libraries, of_libraries, reported
from gemmetry.judge.memory import LATE_S, Arena, index_of, open_arena
from gemmetry.judge.remote import Died, NotShared, Remote, RemoteExecutable, Took
from gemmetry.judge.sandbox import RELAXED
from gemmetry.judge.tasks import CUBLASLT, Submission, Task, variations
from gemmetry.judge.yardstick import Checked, _array, check_results
from gemmetry.results.emit import Result
from gemmetry.results.texts import cut
from gemmetry.statistics.comparison import compare_rounds
from gemmetry.statistics.intervals import Interval, median_interval
from gemmetry.verification.freivalds import freivalds

ROUNDS = 12
"""Rounds of timing: pairs for the sign test."""

SHORT, LONG = 2, 10
"""Launches in the two batches whose difference is timed."""

REPEATS = 3
"""Batches of each length in a round; the shortest counts, since delays by other programs only
lengthen a batch."""

MIN_BATCH_NS = 2e6
"""Batches are made longer than this."""

MOST_BATCH = 512

LARGE_BYTES = 2**22
"""Inputs of a launch from which on fewer of them are drawn and fewer results compared."""

CLOCKS_DIFFER, CLOCK_SLACK_NS = 3.0, 1e6
"""Limits of the time of a batch that the submission's own clock may miss: this multiple of a
rival's, at least this much, and at least a third of the batch."""

_CHECKED = 8
"""Launches of a timed batch whose results are compared."""

_MOST_SHOWN = 12
"""Kernels and libraries that are listed on a terminal."""

_BRIEF_FINDINGS = 5
"""Findings of a brief document: with texts cut to 300 characters it has less than 4 KB."""


class Ruling(StrEnum):
    """Judgement of a submission."""

    OK = "ok"
    WRONG = "wrong"
    CHEATED = "cheated"
    REFUSED = "refused"


class Finding(Row):
    """One piece of evidence."""

    ruling: str = fact("wrong, cheated or refused")
    what: str = fact("what was found")
    check: str = fact("the check that found it")


class Speed(Row):
    """The time of one launch, and its ratio to the baseline's."""

    median_ns: float = fact("median time of a launch, by the judge's clock", "ns")
    baseline: str = fact("what it is compared with")
    baseline_ns: float = fact("the baseline's median time", "ns")
    speedup: float = fact("baseline's time over the submission's")
    speedup_low: float | None = fact("lower end of its 95 % interval")
    speedup_high: float | None = fact("upper end of its 95 % interval")
    verdict: str = fact("faster, slower, no difference shown or undecided, than the baseline")
    low_ns: float | None = fact("lower end of its 95 % interval", "ns", default=None)
    high_ns: float | None = fact("upper end of its 95 % interval", "ns", default=None)
    own_ns: float | None = fact("the same by the submission's own clock", "ns", default=None)
    roofline: float | None = fact("share of the roofline's speed", default=None)
    roofline_low: float | None = fact("lower end of its 95 % interval", default=None)
    roofline_high: float | None = fact("upper end of its 95 % interval", default=None)


@dataclass(frozen=True)
class Judgement:
    """The verdict on one submission."""

    submission: str
    task: str
    form: str
    ruling: Ruling
    findings: tuple[Finding, ...]
    checks: tuple[str, ...]
    """Checks that ran."""
    basis: str
    """Basis of the allowed errors."""
    accuracy: str
    speeds: tuple[Speed, ...]
    """Against torch's own function, and on CUDA against the best of cuBLASLt."""
    ran: tuple[Ran, ...]
    """Kernels, libraries and machine code, each with whose account it is."""
    memory: str
    """Transport of inputs and results: host, device or upload."""
    confinement: tuple[str, ...]
    """Confinement that the kernel did not grant; empty where the submission was fully confined."""
    seconds: float
    command: str

    @property
    def speed(self) -> Speed | None:
        """The speed against torch's own function."""
        return next(iter(self.speeds), None)

    def result(self, *, is_brief: bool = False) -> Result:
        """Findings as rows, everything else as notes of the document. With `is_brief`, at most 4 KB
        of JSON: fewer findings, shorter texts."""
        shorter = cut if is_brief else str
        notes: dict[str, Any] = {
            "submission": shorter(self.submission),
            "task": shorter(self.task),
            "form": self.form,
            "verdict": str(self.ruling),
            "checks": len(self.checks) if is_brief else list(self.checks),
            "basis": self.basis,
            "accuracy_class": self.accuracy or None,
            "speed": None if self.speed is None else self.speed.record(),
            "other_speeds": [one.record() for one in self.speeds[1:]],
            "memory": self.memory,
            "not_confined": list(self.confinement),
            "seconds": self.seconds,
            "command": shorter(self.command),
        }
        most = _BRIEF_FINDINGS if is_brief else None
        findings = tuple(replace(one, what=shorter(one.what)) for one in self.findings[:most])
        rows: dict[str, Rows] = {"findings": Rows(Finding, findings)}
        if not is_brief:
            rows["ran"] = Rows(Ran, self.ran)
        return Result(kind="judge", rows=rows, notes=notes, main="findings")

    def __str__(self) -> str:
        lines = [f"{self.submission} on {self.task}: {self.ruling}"]
        lines += [f"  {one.ruling}: {one.what} ({one.check})" for one in self.findings]
        if self.accuracy:
            lines.append(f"  accuracy: {self.accuracy}")
        lines.append(f"  {len(self.checks)} checks; allowed error: {self.basis}")
        for speed in self.speeds:
            interval, roof = "", ""
            if speed.speedup_low is not None and speed.speedup_high is not None:
                interval = f" ({speed.speedup_low:.3f} to {speed.speedup_high:.3f})"
            if speed.roofline_low is not None and speed.roofline_high is not None:
                roof = f"; {speed.roofline_low:.1%} to {speed.roofline_high:.1%} of the roofline"
            lines.append(
                f"  {format_ns(speed.median_ns)} a launch, {speed.speedup:.3f}{interval} times the "
                f"speed of {speed.baseline}: {speed.verdict}{roof}"
            )
        lines += [
            f"  ran: {one.name[:100]} ({', '.join(filter(None, (one.kind, one.library)))}; "
            f"{one.account} account)" + (f" {one.instructions[:100]}" if one.instructions else "")
            for one in self.ran[:_MOST_SHOWN]
        ]
        lines += [f"  memory: {self.memory}"] if self.memory != "host" else []
        lines += [f"  not confined: {one}" for one in self.confinement]
        lines += [f"  repeat: {self.command}"] if self.command else []
        return "\n".join(lines)


def judge(
    task: Task,
    submission: Submission,
    *,
    level: str = "standard",
    seed: int | None = None,
    time_it: bool = True,
    limit_s: float = 60.0,
    memory_bytes: int | None = None,
    threads: int = 1,
    device: str = "cpu",
    transport: str = "",
    command: str = "",
) -> Judgement:
    """Judge `submission` by `task`.

    Args:
        level: how many checks an operation gets (:mod:`gemmetry.verification`).
        seed: seed of all random draws; None: an unpredictable one.
        limit_s: seconds for a batch of launches.
        memory_bytes: limit of the submission's address space.
        threads: of torch in the submission's process and in the baseline's.
        device: where submissions run: ``cpu`` or ``cuda:0``.
        transport: how inputs travel (:mod:`gemmetry.judge.memory`); "": the best that works.

    Raises:
        RequestError: the task's own reference fails or is inconsistent; there is no such device.
    """
    limits = {"limit_s": limit_s, "memory_bytes": memory_bytes, "threads": threads}
    arena = open_arena(device, transport)
    with closing(_Judging(task, submission, level, seed, arena, limits)) as judging:
        return judging.run(time_it=time_it, command=command)


class _Over(Exception):
    """Nothing more can be found: the process was ended on purpose."""


class _Judging:
    def __init__(
        self,
        task: Task,
        submission: Submission,
        level: str,
        seed: int | None,
        arena: Arena,
        limits: Mapping[str, Any],
    ) -> None:
        self._task, self._submission, self._level = task, submission, level
        self._rng = np.random.default_rng(seed)
        self._arena = arena
        own = {"initial": task.initial, "packs": task.packs, "seed": task.seed}
        self._options: dict[str, Any] = {**own, **limits}
        self._findings: list[Finding] = []
        self._checks: list[str] = []
        self._basis = self._accuracy = ""
        self._missing: tuple[str, ...] = ()
        self._relaxed = 0
        self._ran: tuple[Ran, ...] = ()

    def close(self) -> None:
        """Release the shared memory."""
        self._arena.close()

    def run(self, *, time_it: bool, command: str) -> Judgement:
        """All checks, and the time if nothing was found."""
        began = time.perf_counter()
        speeds: tuple[Speed, ...] = ()
        try:
            with closing(self._remote(poisons=True)) as remote:
                self._missing = tuple(remote.missing)
                if self._arena.transport == "device" and not self._arena.was_idle:
                    what = "other programs use the GPU, so what it leaves running there is not seen"
                    self._missing += (what,)
                if self._task.operation is None:
                    self._check_by_reference(remote)
                else:
                    self._check_operation(remote, self._task.operation)
                if not self._findings:
                    self._check_same_objects(remote)
                self._check_ended(remote)
                if not self._findings:
                    self._count(remote)
            if time_it and not self._findings and self._task.source:
                speeds = self._time()
        except WrongResultError as error:
            self._find(Ruling.WRONG, str(error), "form of the results")
        except (Died, LaunchError) as error:
            self._find(Ruling.REFUSED, str(error), "running it")
        except _Over:
            pass
        why = self._arena.why_not_shared
        return Judgement(
            submission=self._submission.name,
            task=self._task.name,
            form=self._task.form,
            ruling=self._ruling(),
            findings=tuple(self._findings),
            checks=tuple(dict.fromkeys(self._checks)),
            basis=self._basis,
            accuracy=self._accuracy,
            speeds=speeds if not self._findings else (),
            ran=self._ran,
            memory=self._arena.transport + (f" ({why})" if why else ""),
            confinement=self._missing,
            seconds=time.perf_counter() - began,
            command=command,
        )

    def _remote(self, *, poisons: bool = False, submission: Submission | None = None) -> Remote:
        submission = submission or self._submission
        while True:
            try:
                return Remote(
                    submission, self._arena, poisons=poisons, without=RELAXED[self._relaxed],
                    **self._options,
                )  # fmt: skip
            except NotShared as error:
                self._relax(error)

    def _relax(self, error: NotShared) -> None:
        """Leave out another layer of the sandbox, as a GPU's driver may not start with it; or let
        inputs be uploaded, where memory cannot be shared."""
        is_gpu = self._arena.transport != "host"
        if is_gpu and self._relaxed + 1 < len(RELAXED):
            self._relaxed += 1
        elif self._arena.transport == "device":
            self._arena.close()
            self._arena = open_arena(self._arena.device, "upload")
            self._arena.why_not_shared, self._relaxed = str(error), 0
        else:
            raise error

    def _check_ended(self, remote: Remote) -> None:
        """No process goes on after the reply, and nothing on the device."""
        self._checks.append("no processes of its own")
        if (count := len(remote.members())) > 1:
            what = f"{count - 1} processes that it started are running"
            self._find(Ruling.CHEATED, what, "no processes of its own")
        self._check_idle(remote)

    def _check_idle(self, remote: Remote) -> None:
        """The GPU is idle between batches; if not, whether it is once the process is ended."""
        if not self._arena.was_idle:
            return
        self._checks.append("idle between batches")
        if self._arena.is_idle():
            return
        remote.close()
        time.sleep(0.5)
        ruling, what = Ruling.REFUSED, "another program began to use the GPU: judge it again"
        if self._arena.is_idle():
            ruling = Ruling.CHEATED
            what = "it keeps the GPU busy after the reply: the GPU is idle once it has been ended"
        self._find(ruling, what, "idle between batches")
        raise _Over

    def _count(self, remote: Remote) -> None:
        """List what runs; a library that the task forbids is a finding."""
        arguments = self._task.make(self._seed())
        remote.run([(self._placed(arguments), self._outputs())], counts=True)
        self._ran = (
            *libraries(remote.code_before, remote.code()),
            *reported(remote.reply.get("ran")),
            *compiled(remote.folder),
        )
        if not self._task.allows_libraries:
            self._checks.append("no libraries")
            for what in of_libraries(self._ran):
                self._find(Ruling.CHEATED, f"the task forbids libraries: {what}", "no libraries")

    def _find(self, ruling: Ruling, what: str, check: str) -> None:
        self._findings.append(Finding(ruling=str(ruling), what=what, check=check))

    def _ruling(self) -> Ruling:
        found = {one.ruling for one in self._findings}
        worst_first = (Ruling.CHEATED, Ruling.WRONG, Ruling.REFUSED)
        return next((ruling for ruling in worst_first if ruling in found), Ruling.OK)

    def _seed(self) -> int:
        return int(self._rng.integers(2**31))

    def _check_operation(self, remote: Remote, operation: Operation) -> None:
        """The checks of verification, against the submission as an executable; the quick ones
        first, which find most."""
        for level in dict.fromkeys(("quick", self._level)):
            self._verify(remote, operation, level)
            if self._findings:
                return

    def _verify(self, remote: Remote, operation: Operation, level: str) -> None:
        from gemmetry.numerics.references import compute_reference
        from gemmetry.verification.companions import Companions
        from gemmetry.verification.protocol import verify

        self._basis = "bound derived for the operation"
        arrays = self._task.make(self._seed())
        verdict = verify(
            RemoteExecutable(remote),
            operation,
            arrays,
            compute_reference(operation, arrays),
            level=level,
            seed=self._seed(),
            companions=Companions(build=lambda _: RemoteExecutable(remote)),
        )
        is_wrong = verdict.status is Verification.FAILED
        self._accuracy = "" if is_wrong else verdict.accuracy_class or ""
        for name, text in verdict.checks.items():
            self._checks.append(name)
            outcome, _, detail = text.partition(": ")
            if outcome == "failed":
                self._find(Ruling.CHEATED if name in _OF_CHEATS else Ruling.WRONG, detail, name)

    def _check_by_reference(self, remote: Remote) -> None:
        """Results for several inputs and variations of them, by the float64 yardstick."""
        first = self._task.make(self._seed())
        sets = [first, *variations(first, self._rng), self._task.make(self._seed())]
        # The first again, last: what was stored by content or by address is stale by now.
        for place, arguments in enumerate([*sets, self._task.make(self._seed())]):
            self._compare(remote, arguments, is_variation=place not in (0, len(sets)))
            if self._findings:
                return
        self._check_order(remote, first)

    def _compare(self, remote: Remote, arguments: tuple[Any, ...], *, is_variation: bool) -> None:
        """One launch, compared with the reference; inputs and late writes are looked at too."""
        assert self._task.reference is not None
        try:
            wanted = _results(self._task.reference(*arguments))
            floats = [one for one in wanted if one.is_floating_point()]
            if is_variation and not all(bool(one.isfinite().all()) for one in floats):
                return  # the variation leaves the function's domain
            placed, outputs = self._placed(arguments), self._room(wanted)
            self._launch(remote, [(placed, outputs)])
            name = "variations" if is_variation else "inputs as the task makes them"
            self._note(self._checked(arguments, outputs, wanted), name)
        except RequestError:
            if not is_variation:
                raise

    def _checked(
        self, arguments: tuple[Any, ...], outputs: Sequence[Any], wanted: Sequence[Any]
    ) -> Checked:
        """Results in the arena by the float64 yardstick; `wanted` has their forms."""
        task = self._task
        assert task.reference is not None
        got = tuple(_tensor(output, one) for output, one in zip(outputs, wanted, strict=True))
        (checked,) = check_results(task.reference, arguments, {task.name: got})
        return checked

    def _note(self, checked: Checked, name: str) -> None:
        self._checks.append(name)
        self._basis = checked.basis
        if not checked.is_right:
            self._find(Ruling.WRONG, checked.detail, name)

    def _check_order(self, remote: Remote, first: tuple[Any, ...]) -> None:
        """Check random launches of a large batch; addresses repeat."""
        task = self._task
        assert task.reference is not None
        wanted = _results(task.reference(*first))
        calls, kept = [], []
        for _ in range(6):
            arguments = task.make(self._seed())
            kept.append(arguments)
            calls.append((self._placed(arguments), self._room(wanted)))
        for turn in range(2):
            if turn:  # other content at the same addresses
                for place, (placed, _) in enumerate(calls):
                    kept[place] = task.make(self._seed())
                    _write(placed, kept[place])
            self._launch(remote, calls)
            for place in self._rng.choice(len(calls), 3, replace=False):
                checked = self._checked(kept[place], calls[place][1], wanted)
                self._note(checked, "launches of a batch")

    def _check_same_objects(self, remote: Remote) -> None:
        """Check the same objects with other content, which a cache keyed by identity misses."""
        arguments = self._task.make(self._seed())
        outputs = self._outputs()
        calls = [(self._placed(arguments), outputs)]
        remote.prepare(calls)
        for _ in range(3):
            arguments = self._task.make(self._seed())
            self._refill(remote, calls, [tuple(map(_host, arguments))])
            _, copies = remote.go(lambda: outputs)
            self._check_launch(arguments, copies, "the same objects", Ruling.WRONG)

    def _refill(
        self, remote: Remote, calls: Sequence[Any], kept: Sequence[Any], *, looks: bool = False
    ) -> None:
        """New inputs and empty outputs for prepared calls, while the submission is stopped.

        Args:
            kept: tuples of host arrays and plain values, which repeat.
            looks: whether the GPU is idle then.
        """
        stopped = remote.stop()
        self._arena.place(
            (buffer, array)
            for place, (placed, _) in enumerate(calls)
            for buffer, array in zip(placed, kept[place % len(kept)], strict=True)
            if isinstance(buffer, np.ndarray)
        )
        self._arena.spoil(output for _, outputs in calls for output in outputs)
        if looks:
            self._check_idle(remote)
        remote.go_on(stopped)

    def _launch(self, remote: Remote, calls: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> None:
        """Run calls; find changed inputs, and results that change after the reply."""
        before = [[np.array(x) for x in inputs if isinstance(x, np.ndarray)] for inputs, _ in calls]
        for _, outputs in calls:
            for output in outputs:
                output.reshape(-1).view(np.uint8).fill(0xFF)
        remote.run(calls)
        first = [[np.array(output) for output in outputs] for _, outputs in calls]
        self._checks += ["inputs unchanged", "no late writes"]
        for (inputs, _), copies in zip(calls, before, strict=True):
            arrays = [x for x in inputs if isinstance(x, np.ndarray)]
            if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, copies, strict=True)):
                self._find(Ruling.CHEATED, "it changes its inputs", "inputs unchanged")
        time.sleep(LATE_S)
        self._arena.pull(output for _, outputs in calls for output in outputs)
        for (_, outputs), copies in zip(calls, first, strict=True):
            if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, copies, strict=True)):
                self._find(
                    Ruling.CHEATED, "a result changed after it had been returned", "no late writes"
                )

    def _room(self, values: Iterable[Any]) -> list[Any]:
        """Buffers of the arena of the forms of arrays and tensors; other values as they are."""
        return [
            self._arena._allocate(one.shape, one.dtype) if isinstance(one, np.ndarray) else one
            for one in map(_host, values)
        ]

    def _placed(self, arguments: Sequence[Any]) -> list[Any]:
        """Arguments with their arrays in the arena."""
        placed = self._room(arguments)
        _write(placed, arguments)
        return placed

    def _outputs(self) -> list[HostBuffer]:
        """Buffers of a launch's results."""
        return [self._arena._allocate(*one) for one in self._shapes]

    def _time(self) -> tuple[Speed, ...]:
        """Rounds of the submission and of what it is compared with in turn."""
        sides = {_MINE: self._remote(), **self._rivals()}
        times: dict[str, dict[int, list[float]]] = {side: {} for side in sides}
        own: list[float] = []
        self._rival_inputs: list[tuple[Any, ...]] = []
        self._round_inputs: list[tuple[Any, ...]] = []
        self._batches: dict[str, list[Took]] = {side: [] for side in sides}
        try:
            lengths = {side: self._lengths(remote, side) for side, remote in sides.items()}
            for turn in range(ROUNDS):
                order = list(sides)
                self._rng.shuffle(order)
                for side in order:
                    # Stopped, so that they cannot take the processor meanwhile.
                    waiting = [(one, one.stop()) for name, one in sides.items() if name != side]
                    took = self._slope(sides[side], lengths[side], side)
                    for remote, members in waiting:
                        remote.go_on(members)
                    times[side][turn] = [took.ns]
                    own += [took.own_ns] if side == _MINE else []
        finally:
            for remote in sides.values():
                remote.close()
        mine = [ns for (ns,) in times[_MINE].values()]
        self._check_clocks(self._batches)
        interval = median_interval(mine)
        roof = self._roofs(mine, interval, lengths[_MINE][1])
        speeds = []
        for rival in list(sides)[1:]:
            compared = compare_rounds(times[rival], times[_MINE], relevant=0.01)
            low, high = compared.ratio_low, compared.ratio_high
            speeds.append(Speed(
                median_ns=float(np.median(mine)),
                baseline=rival,
                baseline_ns=float(np.median([ns for (ns,) in times[rival].values()])),
                speedup=1 / compared.ratio,
                speedup_low=high and 1 / high,
                speedup_high=low and 1 / low,
                verdict=str(compared.verdict),
                low_ns=interval and interval[0],
                high_ns=interval and interval[1],
                own_ns=float(np.median(own)),
                **roof,
            ))  # fmt: skip
        return tuple(speeds)

    def _rivals(self) -> dict[str, Remote]:
        """Competitors of the submission, each in a process of its own."""
        task = self._task
        name = f"torch ({task.source_entry} of the task)" if task.reference else "torch.matmul"
        sources = {name: (task.source, task.source_entry)}
        if task.operation is not None and self._arena.device != "cpu":
            sources["cublaslt:best"] = (CUBLASLT.format(name=task.name), "product")
        found: dict[str, Remote] = {}
        for name, (source, entry) in sources.items():
            files = {"baseline.py": source}
            rival = Submission(name=name, files=files, main="baseline.py", entry=entry)
            try:
                found[name] = self._remote(submission=rival)
            except LaunchError as error:
                if not found:
                    raise RequestError(f"{name} does not run on this device: {error}") from error
                self._checks.append(f"{name} left out: {cut(str(error))}")
        return found

    def _check_clocks(self, batches: Mapping[str, Sequence[Took]]) -> None:
        """Both clocks see the same launches. The judge's also sees the way to the process and back:
        so it does for a rival, whose clock is right."""
        self._checks.append("clocks agree")
        mine, *rivals = batches.values()
        took, own = min(mine, key=lambda one: one.ns - one.own_ns)
        usual = max(float(np.median([one.ns - one.own_ns for one in rival])) for rival in rivals)
        if took - own > max(CLOCKS_DIFFER * usual, CLOCK_SLACK_NS, took / 3):
            what = (
                f"its own clock shows at most {own / took:.0%} of the time that passed: "
                f"{format_ns(own)} of {format_ns(took)}"
            )
            self._find(Ruling.CHEATED, what, "clocks agree")

    def _roofs(
        self, times: Sequence[float], interval: Interval | None, launches: int
    ) -> dict[str, float]:
        """Shares of the roofline; a time below what the arithmetic needs is a finding."""
        operation = self._task.operation
        if operation is None or interval is None:
            return {}
        target = _target(self._arena.device)
        limit = speed_limit(target, operation)
        fastest, middle, slowest = (
            1e9 * operation.flops / ns for ns in (interval[0], float(np.median(times)), interval[1])
        )
        ceiling = limit.flops_per_s if isinstance(limit, SpeedLimit) else np.inf
        self._checks.append("no faster than possible")
        if isinstance(limit, SpeedLimit) and slowest > ceiling:
            what = (
                f"{slowest / 1e12:.4g} TFLOP/s and more, which nothing right reaches: the limit is "
                f"{limit.source}"
            )
            self._find(Ruling.CHEATED, what, "no faster than possible")
        roof = roofline(target, operation)
        if roof is None:
            return {}
        # What stays in the cache is not transferred from memory.
        spec = device_of(target)
        cache = 0 if spec is None else max(spec.l2_bytes, spec.last_level_cache_bytes)
        stays = launches * operation.bytes < 2 * cache
        most = roof.peak_flops_per_s if stays else roof.attainable_flops_per_s
        names = ("roofline", "roofline_low", "roofline_high")
        shares = (min(speed, ceiling) / most for speed in (middle, slowest, fastest))
        return dict(zip(names, shares, strict=True))

    def _lengths(self, remote: Remote, side: str) -> tuple[int, int]:
        """Launches in the two batches, so that the longer takes long enough for the clock and
        its buffers fit into the arena."""
        results = [math.prod(shape) * dtype.itemsize for shape, dtype in self._shapes]
        most = max(2, min(MOST_BATCH, self._arena.holds([*self._input_bytes, *results])))
        least = MIN_BATCH_NS * (1 if self._arena.device == "cpu" else 5)

        def took(count: int) -> float:
            return min(self._batch(remote, count, side, looks_at=1).ns for _ in range(2))

        once, count = took(1), min(LONG, most)
        while (more := took(count) - once) < least / 4 and count < most:
            count = min(most, 4 * count)
        long = min(most, max(LONG, int(count * least / max(more, 1.0))))
        return max(1, long // 5), long

    @cached_property
    def _input_bytes(self) -> list[int]:
        arrays = map(_host, self._task.make(0))
        return [x.nbytes for x in arrays if isinstance(x, np.ndarray)]

    def _slope(self, remote: Remote, lengths: tuple[int, int], side: str) -> Took:
        """Time of one launch in ns: the difference between batches of two lengths."""
        short, long = lengths
        self._round_inputs = []
        few, many = (
            min(self._batch(remote, count, side, looks_at=min(short, _CHECKED))
                for _ in range(REPEATS))
            for count in lengths
        )  # fmt: skip
        self._batches[side].append(many)
        pairs = zip(few, many, strict=True)
        return Took(*(max((after - before) / (long - short), 1.0) for before, after in pairs))

    def _batch(self, remote: Remote, count: int, side: str, *, looks_at: int) -> Took:
        """Time of `count` launches, in ns. The submission's have new inputs, and of `looks_at`
        results that are chosen after the reply some are compared."""
        task, is_mine = self._task, side == _MINE
        sets = min(count, 2 if self._is_large else 8)
        drawn = [] if is_mine else self._rival_inputs
        if is_mine and self._is_large and task.operation is not None:
            # Drawing takes longer than many launches: inputs that are rolled are new ones too.
            while len(self._round_inputs) < sets:
                self._round_inputs.append(task.make(self._seed()))
            drawn = [self._rolled(one) for one in self._round_inputs[:sets]]
        while len(drawn) < sets:
            drawn.append(task.make(self._seed()))
        kept = [tuple(map(_host, one)) for one in drawn[:sets]]
        calls = [(self._room(kept[place % sets]), self._outputs()) for place in range(count)]
        remote.prepare(calls)
        self._refill(remote, calls, kept, looks=is_mine)
        chosen: list[int] = []

        def choose() -> list[HostBuffer]:
            chosen.extend(self._rng.choice(count, min(count, looks_at), replace=False).tolist())
            return [output for place in chosen for output in calls[place][1]]

        took, copies = remote.go(choose)
        results = len(self._shapes)
        for turn, place in enumerate(chosen[: 1 if self._is_large else None] if is_mine else ()):
            mine = copies[turn * results : (turn + 1) * results]
            self._check_launch(drawn[place % sets], mine, "timed launches", Ruling.CHEATED)
        return took

    @property
    def _is_large(self) -> bool:
        return sum(self._input_bytes) >= LARGE_BYTES

    def _rolled(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arguments with the same values in other places: each array is rolled across its rows by a
        different number, so that the product is new."""
        return tuple(
            np.roll(one, int(self._rng.integers(one.size))) if isinstance(one, np.ndarray) else one
            for one in map(_host, arguments)
        )

    @cached_property
    def _shapes(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shapes and formats of the results."""
        if (operation := self._task.operation) is not None:
            from gemmetry.numerics.storage import numpy_dtype

            spec = operation.output
            return [(spec.storage_shape, numpy_dtype(spec.dtype))]
        assert self._task.reference is not None
        results = map(_host, _results(self._task.reference(*self._task.make(0))))
        return [(one.shape, one.dtype) for one in results]

    def _check_launch(
        self, arguments: tuple[Any, ...], outputs: Sequence[Any], name: str, ruling: Ruling
    ) -> None:
        """Compare a launch whose kind was right when it was checked before."""
        task = self._task
        self._checks.append(name)
        if task.operation is not None:
            got: Any = np.array(outputs[0])
            if self._is_large:  # the whole reference would take as long as hundreds of launches
                hosts = list(map(_host, arguments))
                found = freivalds(task.operation, hosts, got, seed=self._seed())
                if not found.is_right:
                    self._find(ruling, f"right before, and {found.detail} for {name}", name)
                return
            (checked,) = check_results(task.name, arguments, {task.name: got})
        else:
            assert task.reference is not None
            wanted = _results(task.reference(*arguments))
            checked = self._checked(arguments, outputs, wanted)
        if not checked.is_right:
            self._find(ruling, f"right before, and wrong for {name}: {checked.detail}", name)


_MINE = "submission"

_OF_CHEATS = frozenset({"inputs_unchanged", "unordered_work"})
"""Checks of verification whose failure is not an error of arithmetic."""


def _target(device: str) -> Target:
    if device == "cpu":
        return Target(TargetKind.CPU)
    from gemmetry.hardware.torch_device import gpu_targets

    return gpu_targets()[index_of(device)]


def _results(found: Any) -> list[Any]:
    parts = found if isinstance(found, (tuple, list)) else (found,)
    return [one for one in parts if one is not None]


def _host(value: Any) -> Any:
    """The numpy array of a tensor; other values as they are."""
    return np.ascontiguousarray(_array(value)) if hasattr(value, "detach") else value


def _tensor(buffer: Any, like: Any) -> Any:
    """A copy of a buffer as a tensor of the form of `like`."""
    import torch

    return torch.frombuffer(bytearray(buffer.tobytes()), dtype=like.dtype).view(like.shape).clone()


def _write(placed: Sequence[Any], arguments: Sequence[Any]) -> None:
    for buffer, one in zip(placed, arguments, strict=True):
        if isinstance(buffer, np.ndarray):
            buffer[...] = _host(one)
