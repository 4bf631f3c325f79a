"""Judge a submission: is it right, is it honest, and how fast is it?

The submission runs in a confined process (:mod:`.sandbox`, :mod:`.child`). This process keeps the
reference, the seeds, the inputs, the clock and the verdict. Every launch has inputs that did not
exist before; while they are written, the submission's processes are stopped. Time is the slope over
batches of two lengths, by this process's clock; costs of a batch as a whole do not count.
The submission and torch's own function, which runs in a process of the same kind, take turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from gemmetry.domain.errors import LaunchError, RequestError, WrongResultError
from gemmetry.domain.operation import Operation
from gemmetry.domain.rows import Row, Rows, fact
from gemmetry.domain.units import format_ns
from gemmetry.judge.remote import Arena, Died, Remote, RemoteExecutable
from gemmetry.judge.submissions import Submission
from gemmetry.judge.tasks import Task, variations
from gemmetry.judge.yardstick import Checked, check_results
from gemmetry.results.emit import Result
from gemmetry.results.texts import cut
from gemmetry.statistics.comparison import compare_rounds

ROUNDS = 12
"""Rounds of timing: pairs for the sign test."""

SHORT, LONG = 2, 10
"""Launches in the two batches whose difference is timed."""

REPEATS = 3
"""Batches of each length in a round, of which the shortest counts: what delays a batch as a whole,
such as another program, only lengthens it."""

LATE_S = 0.01
"""A result is read once more after this time: nothing may write to it after the reply."""

MIN_BATCH_NS = 2e6
"""Batches are made longer than this."""

MOST_BATCH = 512


_CHECKED = 8
"""Launches of a timed batch whose results are compared."""

_BRIEF_FINDINGS = 5
"""Findings of a brief document: with texts cut to 300 characters it has less than 4 KB."""


class Ruling(StrEnum):
    """How a submission is judged."""

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


@dataclass(frozen=True)
class Judgement:
    """The verdict on one submission."""

    submission: str
    task: str
    form: str
    ruling: Ruling
    findings: tuple[Finding, ...]
    checks: tuple[str, ...]
    """What was checked."""
    basis: str
    """What the allowed errors follow from."""
    accuracy: str
    speed: Speed | None
    confinement: tuple[str, ...]
    """What the kernel did not grant; empty where the submission was fully confined."""
    seconds: float
    command: str

    def result(self, *, is_brief: bool = False) -> Result:
        """The rows of findings, with everything else as notes of their document; `is_brief`: at
        most 4 KB of JSON, by fewer findings and shorter texts."""
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
            "not_confined": list(self.confinement),
            "seconds": self.seconds,
            "command": shorter(self.command),
        }
        most = _BRIEF_FINDINGS if is_brief else None
        findings = tuple(replace(one, what=shorter(one.what)) for one in self.findings[:most])
        return Result(kind="judge", rows={"findings": Rows(Finding, findings)}, notes=notes)

    def __str__(self) -> str:
        lines = [f"{self.submission} on {self.task}: {self.ruling}"]
        lines += [f"  {one.ruling}: {one.what} ({one.check})" for one in self.findings]
        if self.accuracy:
            lines.append(f"  accuracy: {self.accuracy}")
        lines.append(f"  {len(self.checks)} checks; allowed error: {self.basis}")
        if self.speed is not None:
            speed = self.speed
            interval = ""
            if speed.speedup_low is not None and speed.speedup_high is not None:
                interval = f" ({speed.speedup_low:.3f} to {speed.speedup_high:.3f})"
            lines.append(
                f"  {format_ns(speed.median_ns)} a launch, {speed.speedup:.3f}{interval} times the "
                f"speed of {speed.baseline}: {speed.verdict}"
            )
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
    command: str = "",
) -> Judgement:
    """Judge `submission` by `task`.

    Args:
        level: how many checks an operation gets (:mod:`gemmetry.verification`).
        seed: of everything that is drawn; None: one that nobody knows before.
        limit_s: seconds for a batch of launches.
        memory_bytes: limit of the submission's address space.
        threads: of torch in the submission's process and in the baseline's.

    Raises:
        RequestError: the task's own reference fails or is inconsistent.
    """
    return _Judging(
        task, submission, level=level, seed=seed, limit_s=limit_s, memory_bytes=memory_bytes,
        threads=threads,
    ).run(time_it=time_it, command=command)  # fmt: skip


class _Judging:
    def __init__(
        self,
        task: Task,
        submission: Submission,
        *,
        level: str,
        seed: int | None,
        limit_s: float,
        memory_bytes: int | None,
        threads: int,
    ) -> None:
        self._task, self._submission, self._level = task, submission, level
        self._rng = np.random.default_rng(seed)
        self._arena = Arena()
        self._options: dict[str, Any] = {
            "initial": task.initial, "packs": task.packs, "seed": task.seed, "limit_s": limit_s,
            "memory_bytes": memory_bytes, "threads": threads,
        }  # fmt: skip
        self._findings: list[Finding] = []
        self._checks: list[str] = []
        self._basis = self._accuracy = ""
        self._missing: tuple[str, ...] = ()

    def run(self, *, time_it: bool, command: str) -> Judgement:
        """All checks, and the time if nothing was found."""
        began = time.perf_counter()
        speed = None
        try:
            with closing(self._remote(poisons=True)) as remote:
                self._missing = tuple(remote.missing)
                if self._task.operation is None:
                    self._check_by_reference(remote)
                else:
                    self._check_operation(remote, self._task.operation)
                if not self._findings:
                    self._check_same_objects(remote)
                self._checks.append("no processes of its own")
                if (count := len(remote.members())) > 1:
                    what = f"{count - 1} processes that it started are running"
                    self._find(Ruling.CHEATED, what, "no processes of its own")
            if time_it and not self._findings and self._task.source:
                speed = self._time()
        except WrongResultError as error:
            self._find(Ruling.WRONG, str(error), "form of the results")
        except (Died, LaunchError) as error:
            self._find(Ruling.REFUSED, str(error), "running it")
        return Judgement(
            submission=self._submission.name,
            task=self._task.name,
            form=self._task.form,
            ruling=self._ruling(),
            findings=tuple(self._findings),
            checks=tuple(dict.fromkeys(self._checks)),
            basis=self._basis,
            accuracy=self._accuracy,
            speed=speed if not self._findings else None,
            confinement=self._missing,
            seconds=time.perf_counter() - began,
            command=command,
        )

    def _remote(self, *, poisons: bool = False, submission: Submission | None = None) -> Remote:
        return Remote(submission or self._submission, self._arena, poisons=poisons, **self._options)

    def _find(self, ruling: Ruling, what: str, check: str) -> None:
        self._findings.append(Finding(ruling=str(ruling), what=what, check=check))

    def _ruling(self) -> Ruling:
        found = {one.ruling for one in self._findings}
        for ruling in (Ruling.CHEATED, Ruling.WRONG, Ruling.REFUSED):
            if ruling in found:
                return ruling
        return Ruling.OK

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
        self._accuracy = verdict.accuracy_class or ""
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
            name = "inputs as the task makes them" if place in (0, len(sets)) else "variations"
            self._compare(remote, arguments, name, must=name != "variations")
            if self._findings:
                return
        self._check_order(remote, first)

    def _compare(
        self, remote: Remote, arguments: tuple[Any, ...], name: str, *, must: bool
    ) -> None:
        """One launch, compared with the reference; inputs and late writes are looked at too."""
        task = self._task
        assert task.reference is not None
        try:
            wanted = _results(task.reference(*arguments))
        except RequestError:
            if must:
                raise
            return
        if not must and not all(
            bool(one.isfinite().all()) for one in wanted if one.is_floating_point()
        ):
            return  # the variation leaves the function's domain
        placed, outputs = self._placed(arguments), [self._output(one) for one in wanted]
        self._launch(remote, [(placed, outputs)])
        got = tuple(_tensor(output, one) for output, one in zip(outputs, wanted, strict=True))
        try:
            (checked,) = check_results(task.reference, arguments, {task.name: got})
        except RequestError:
            if must:
                raise
            return
        self._checks.append(name)
        self._note(checked, name)

    def _note(self, checked: Checked, name: str) -> None:
        self._basis = checked.basis
        if not checked.is_right:
            self._find(Ruling.WRONG, checked.detail, name)

    def _check_order(self, remote: Remote, first: tuple[Any, ...]) -> None:
        """Many launches in a batch, of which random ones are compared; addresses repeat."""
        task = self._task
        assert task.reference is not None
        wanted = _results(task.reference(*first))
        calls, kept = [], []
        for _ in range(6):
            arguments = task.make(self._seed())
            kept.append(arguments)
            calls.append((self._placed(arguments), [self._output(one) for one in wanted]))
        for turn in range(2):
            if turn:  # other content at the same addresses
                for place, (placed, _) in enumerate(calls):
                    kept[place] = task.make(self._seed())
                    _write(placed, kept[place])
            self._launch(remote, calls)
            for place in self._rng.choice(len(calls), 3, replace=False):
                outputs = calls[place][1]
                got = tuple(_tensor(o, one) for o, one in zip(outputs, wanted, strict=True))
                (checked,) = check_results(task.reference, kept[place], {task.name: got})
                self._checks.append("launches of a batch")
                self._note(checked, "launches of a batch")

    def _check_same_objects(self, remote: Remote) -> None:
        """The same objects with other content, which a result that is kept by identity misses."""
        arguments = self._task.make(self._seed())
        outputs = [self._arena._allocate(*one) for one in self._shapes(arguments)]
        calls = [(self._placed(arguments), outputs)]
        remote.prepare(calls)
        for _ in range(3):
            arguments = self._task.make(self._seed())
            self._refill(remote, calls, [arguments])
            remote.go()
            self._check_launch(arguments, outputs, "the same objects", Ruling.WRONG)

    def _refill(self, remote: Remote, calls: Sequence[Any], kept: Sequence[Any]) -> None:
        """New inputs and empty outputs for prepared calls, while the submission is stopped."""
        stopped = remote.stop()
        for place, (placed, outputs) in enumerate(calls):
            _write(placed, kept[place % len(kept)])
            for output in outputs:
                output.reshape(-1).view(np.uint8).fill(0xFF)
        remote.go_on(stopped)

    def _launch(self, remote: Remote, calls: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> None:
        """Run calls; find changed inputs, and results that change after the reply."""
        before = [[np.array(x) for x in inputs if isinstance(x, np.ndarray)] for inputs, _ in calls]
        for _, outputs in calls:
            for output in outputs:
                output.reshape(-1).view(np.uint8).fill(0xFF)
        remote.prepare(calls)
        remote.go()
        first = [[np.array(output) for output in outputs] for _, outputs in calls]
        self._checks += ["inputs unchanged", "no late writes"]
        for (inputs, _), copies in zip(calls, before, strict=True):
            arrays = [x for x in inputs if isinstance(x, np.ndarray)]
            if any(a.tobytes() != b.tobytes() for a, b in zip(arrays, copies, strict=True)):
                self._find(Ruling.CHEATED, "it changes its inputs", "inputs unchanged")
        time.sleep(LATE_S)
        for (_, outputs), copies in zip(calls, first, strict=True):
            if any(a.tobytes() != b.tobytes() for a, b in zip(outputs, copies, strict=True)):
                self._find(
                    Ruling.CHEATED, "a result changed after it had been returned", "no late writes"
                )

    def _placed(self, arguments: Sequence[Any]) -> list[Any]:
        """Arguments with their arrays in the arena."""
        found = []
        for one in arguments:
            array = _host(one)
            if isinstance(array, np.ndarray):
                buffer = self._arena._allocate(array.shape, array.dtype)
                buffer[...] = array
                found.append(buffer)
            else:
                found.append(one)
        return found

    def _output(self, like: Any) -> Any:
        array = _host(like)
        return self._arena._allocate(array.shape, array.dtype)

    def _time(self) -> Speed:
        """Rounds of the submission and of the baseline in turn."""
        task = self._task
        name = f"torch ({task.source_entry} of the task)" if task.reference else "torch.matmul"
        baseline = Submission(
            name=name, files={"baseline.py": task.source}, main="baseline.py",
            entry=task.source_entry,
        )  # fmt: skip
        sides = {"submission": self._remote(), "baseline": self._remote(submission=baseline)}
        times: dict[str, dict[int, list[float]]] = {side: {} for side in sides}
        try:
            lengths = {side: self._lengths(remote) for side, remote in sides.items()}
            for turn in range(ROUNDS):
                order = list(sides)
                self._rng.shuffle(order)
                for side in order:
                    other = sides["baseline" if side == "submission" else "submission"]
                    waiting = other.stop()  # so that it cannot take the processor meanwhile
                    ns = self._slope(sides[side], lengths[side], checks=side == "submission")
                    other.go_on(waiting)
                    times[side][turn] = [ns]
        finally:
            for remote in sides.values():
                remote.close()
        compared = compare_rounds(times["baseline"], times["submission"], relevant=0.01)
        low, high = compared.ratio_low, compared.ratio_high
        middle = {side: float(np.median([ns for (ns,) in times[side].values()])) for side in sides}
        return Speed(
            median_ns=middle["submission"],
            baseline=name,
            baseline_ns=middle["baseline"],
            speedup=1 / compared.ratio,
            speedup_low=high and 1 / high,
            speedup_high=low and 1 / low,
            verdict=str(compared.verdict),
        )

    def _lengths(self, remote: Remote) -> tuple[int, int]:
        """Launches in the two batches, so that the longer takes long enough for the clock."""
        once_ns = max(self._batch(remote, 1, checks=False)[0], 1.0)
        once_ns = min(once_ns, max(self._batch(remote, 4, checks=False)[0] / 4, 1.0))
        size = sum(x.nbytes for x in map(_host, self._task.make(0)) if isinstance(x, np.ndarray))
        room = max(SHORT + 2, int(2**30 / max(size, 1)))
        long = min(MOST_BATCH, room, max(LONG, int(MIN_BATCH_NS / once_ns)))
        return max(1, long // 5), long

    def _slope(self, remote: Remote, lengths: tuple[int, int], *, checks: bool) -> float:
        """Time of one launch in ns: the difference between batches of two lengths."""
        short, long = lengths
        few = min(self._batch(remote, short, checks=False)[0] for _ in range(REPEATS))
        many = min(self._batch(remote, long, checks=checks)[0] for _ in range(REPEATS))
        return max((many - few) / (long - short), 1.0)

    def _batch(self, remote: Remote, count: int, *, checks: bool) -> tuple[float, int]:
        """Time of `count` launches with new inputs, in ns; some are checked afterwards."""
        task = self._task
        kept = [task.make(self._seed()) for _ in range(min(count, 8))]
        shapes = self._shapes(kept[0])
        calls = []
        for place in range(count):
            arguments = kept[place % len(kept)]
            placed = [
                self._arena._allocate(array.shape, array.dtype)
                if isinstance(array := _host(one), np.ndarray) else one
                for one in arguments
            ]  # fmt: skip
            calls.append((placed, [self._arena._allocate(*one) for one in shapes]))
        remote.prepare(calls)
        self._refill(remote, calls, kept)
        took = remote.go()
        if checks:
            for place in self._rng.choice(count, min(count, _CHECKED), replace=False).tolist():
                outputs = calls[place][1]
                self._check_launch(
                    kept[place % len(kept)], outputs, "timed launches", Ruling.CHEATED
                )
        return took, count

    def _shapes(self, arguments: tuple[Any, ...]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        if not hasattr(self, "_known_shapes"):
            operation = self._task.operation
            if operation is not None:
                from gemmetry.numerics.storage import numpy_dtype

                spec = operation.output
                found = [(spec.storage_shape, numpy_dtype(spec.dtype))]
            else:
                assert self._task.reference is not None
                results = map(_host, _results(self._task.reference(*arguments)))
                found = [(one.shape, one.dtype) for one in results]
            self._known_shapes = found
        return self._known_shapes

    def _check_launch(
        self, arguments: tuple[Any, ...], outputs: Sequence[Any], name: str, ruling: Ruling
    ) -> None:
        """Compare a launch whose kind was right when it was checked before."""
        task = self._task
        self._checks.append(name)
        if task.operation is not None:
            got: Any = np.array(outputs[0])
            (checked,) = check_results(task.name, arguments, {task.name: got})
        else:
            assert task.reference is not None
            wanted = _results(task.reference(*arguments))
            got = tuple(_tensor(o, one) for o, one in zip(outputs, wanted, strict=True))
            (checked,) = check_results(task.reference, arguments, {task.name: got})
        if not checked.is_right:
            self._find(ruling, f"right before, and wrong for {name}: {checked.detail}", name)


_OF_CHEATS = frozenset({"inputs_unchanged", "unordered_work"})
"""Checks of verification whose failure is not an error of arithmetic."""


def _results(found: Any) -> list[Any]:
    parts = found if isinstance(found, (tuple, list)) else (found,)
    return [one for one in parts if one is not None]


def _host(value: Any) -> Any:
    """The numpy array of a tensor or array; other values as they are."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        from gemmetry.judge.yardstick import _array

        return np.ascontiguousarray(_array(value))
    return value


def _tensor(buffer: Any, like: Any) -> Any:
    """A copy of a buffer as a tensor of the form of `like`."""
    import torch

    return torch.frombuffer(bytearray(buffer.tobytes()), dtype=like.dtype).view(like.shape).clone()


def _write(placed: Sequence[Any], arguments: Sequence[Any]) -> None:
    for buffer, one in zip(placed, arguments, strict=True):
        if isinstance(buffer, np.ndarray):
            buffer[...] = _host(one)
