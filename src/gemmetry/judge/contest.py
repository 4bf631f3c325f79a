"""Time functions against each other in this process: ``gemmetry.compare``.

Rounds are interleaved: within a round, every function runs several times in random order. None
runs directly after itself. The ratio of two functions is judged by the ratios of their medians
within rounds (:func:`gemmetry.statistics.comparison.compare_rounds`). Whatever changes a device's
speed from round to round cancels.

Alternate runs of two versions, compared by run: what the GitHub action does after them.

::

    python -m gemmetry.judge.contest --before base-*.json --after head-*.json --summary table.md

Files are those of ``pytest --kernel-benchmark-json`` (or of pytest-benchmark), or what
``gemmetry profile -o run.json`` writes. Run number i of both sides is a pair, as one followed the
other. Exit status 1 if something is slower, 2 if the files cannot be compared.
"""

from __future__ import annotations

import argparse
import html
import json
import math
import random
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np

from gemmetry.domain.errors import GemmetryError, LaunchError, RequestError
from gemmetry.domain.rows import SCHEMA_VERSION, Row, columns, fact, table
from gemmetry.domain.units import (
    format_change,
    format_half_width,
    format_interval,
    format_ns,
    format_percent,
)
from gemmetry.hardware.monitors import OTHERS_SHARE as OTHERS
from gemmetry.hardware.monitors import RUN_DELAY_SHARE as RUN_DELAY
from gemmetry.judge.clocks import Call, Function, HostClock, is_settled, open_clock
from gemmetry.judge.yardstick import Checked, Reference, check_results
from gemmetry.measurement.launches import RUN_DELAY_SHARE
from gemmetry.measurement.marks import OTHERS_SHARE
from gemmetry.statistics.comparison import (
    Comparison,
    Difference,
    compare_rounds,
    verdict_of,
    widened_by_fastest,
)
from gemmetry.statistics.intervals import half_width, rounds_interval

BUDGET_S = 10.0
"""Default time for everything: warm-up, settling and rounds."""

UNTIL = 0.005
"""Default half-width of the ratios' intervals at which sampling ends."""

MIN_ROUNDS = 12
"""Minimum rounds as for dispatches (:data:`gemmetry.measurement.stopping.MIN_ROUNDS`)."""

ROUND_S = 0.02
"""Approximate duration of a round."""

MOST_SAMPLES = 256
"""Maximum number of samples of a function in a round."""

BATCH_NS = 20_000.0
"""Shorter calls are timed several at a time, where no flush has to run between them: the host's
clock resolves some tens of nanoseconds."""

MOST_SETS = 32
"""More sets of inputs than this are not made to exceed the caches; a flush replaces them."""

CACHES = 3
"""Rotating sets of inputs exceed the last-level cache this many times."""

SETTLING_SHARE = 0.25
"""Rounds are discarded until their totals agree (:func:`gemmetry.judge.clocks.is_settled`), or this
share of the budget is spent."""

CLEAR, CLEARLY = 0.1, 5.0
"""Functions that differ by more than 10 % are not contenders: their ratio needs fewer digits."""

STEP = 6
"""Rounds between two looks at the intervals."""

DOUBTFUL_OVERHEAD = 0.1
"""A timer's share of a function's time from which on a mark says so."""


Rounds = Sequence[Mapping[str, Sequence[float]]]
"""Rounds -> function -> durations in ns."""


class UndecidedWarning(UserWarning):
    """An assertion on times held only because too little was measured to contradict it."""


class Timed(Row):
    """One function's time."""

    name: str = fact("function")
    median_ns: float = fact("median time of a call", "ns", column="time", format=format_ns)
    ci_low_ns: float | None = fact("lower end of its 95 % interval", "ns", column="")
    ci_high_ns: float | None = fact("upper end of its 95 % interval", "ns", column="")
    half_width: float | None = fact(
        "half the interval over the median", column="±",
        format=lambda value: f"{100 * value:.2f} %",
    )  # fmt: skip
    samples: int = fact("number of samples")


class Pair(Row):
    """One function's time over another's."""

    name: str = fact("function")
    than: str = fact("the function that it is compared with")
    ratio: float = fact("time over the other's", format=lambda value: f"{value:.4f}")
    ratio_low: float | None = fact("lower end of the ratio's interval", column="")
    ratio_high: float | None = fact("upper end of the ratio's interval", column="")
    verdict: str = fact("faster, slower, no difference shown or undecided")

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the ratio; None where too little was measured."""
        if self.ratio_low is None or self.ratio_high is None:
            return None
        return self.ratio_low, self.ratio_high

    def sentence(self) -> str:
        """``mine is slower than theirs: +2.1 % (+1.8 % to +2.4 %)``."""
        change = _change(self)
        if self.verdict in (Difference.FASTER, Difference.SLOWER):
            return f"{self.name} is {self.verdict} than {self.than}: {change}"
        return f"{self.name} and {self.than}: {self.verdict}: {change}"


@dataclass(frozen=True)
class Contest:
    """Result of :func:`compare`. ``print`` it, or let a notebook show it."""

    device: str
    method: str
    is_cold: bool
    times: tuple[Timed, ...]
    pairs: tuple[Pair, ...]
    """Every pair; the first function of the mapping is the baseline."""
    checked: tuple[Checked, ...]
    marks: tuple[str, ...]
    """Reasons to trust the result less."""
    seconds: float
    rounds: Mapping[str, Sequence[Sequence[float]]] = field(repr=False)
    """Function -> rounds -> durations in ns; rounds of the same place were interleaved."""

    def pair(self, name: str, than: str) -> Pair:
        """The comparison of `name` with `than`.

        Raises:
            RequestError: there is no function with that name.
        """
        names = [one.name for one in self.times]
        for wanted in (name, than):
            if wanted not in names:
                raise RequestError(
                    f"no function is called {wanted!r}", hint=f"There are {', '.join(names)}."
                )
        for one in (*self.pairs, *map(_reversed, self.pairs)):
            if (one.name, one.than) == (name, than):
                return one
        raise RequestError(f"{name} cannot be compared with itself")

    def assert_not_slower(self, name: str, *, than: str, by: float = 0.02) -> None:
        """Fail where `name` is shown to be slower than `than` by more than the share `by`.

        Warns with :class:`UndecidedWarning` where the interval reaches beyond that.

        Raises:
            AssertionError: `name` is slower, or its result was found wrong.
            RequestError: there is no function with that name.
        """
        found = self.pair(name, than)
        for one in self.checked:
            if one.name == name and not one.is_right:
                raise AssertionError(f"{name} is wrong: {one.detail}")
        if verdict_of(found.interval, by) is Difference.SLOWER:
            raise AssertionError(f"{found.sentence()}; allowed is +{100 * by:g} %")
        if found.interval is None or found.interval[1] > 1 + by:
            warnings.warn(
                f"undecided whether {name} is slower than {than} by more than {100 * by:g} %: "
                f"{found.sentence()}",
                UndecidedWarning,
                stacklevel=2,
            )

    def to_dict(self) -> dict[str, Any]:
        """The content as a JSON document, without the single samples."""
        return {
            "schema_version": SCHEMA_VERSION,
            "device": self.device,
            "method": self.method,
            "cold_caches": self.is_cold,
            "seconds": self.seconds,
            "functions": [one.record() for one in self.times],
            "pairs": [one.record() for one in self.pairs],
            "checked": [one.record() for one in self.checked],
            "marks": list(self.marks),
        }

    def markdown(self) -> str:
        """A table for a pull request."""
        from gemmetry.results.tables import escape_markdown, markdown_lines

        heads, rows = self._cells()
        numbers = [False, True, True, True, False][: len(heads)]
        lines = markdown_lines(heads, rows, numbers=numbers)
        notes = [escape_markdown(line) for line in self._notes()]
        return "\n".join([*lines, "", *(f"{line}  " for line in notes)]).rstrip() + "\n"

    def __str__(self) -> str:
        heads, rows = self._cells()
        notes = (textwrap.fill(line, 80, subsequent_indent="  ") for line in self._notes())
        return "\n".join([*_aligned([heads, *rows]), "", *notes])

    def _repr_html_(self) -> str:
        heads, rows = self._cells()
        head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows
        )
        notes = "<br>".join(html.escape(line) for line in self._notes())
        return f"<table><tr>{head}</tr>{body}</table><p>{notes}</p>"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows of the table that people see."""
        baseline = self.times[0].name
        heads = ["function", "time", "±", f"time / {baseline}", "verdict"]
        if len(self.times) == 1:
            heads = heads[:3]
        shown = {column.name: column for column in columns(Timed)}
        wrong = {one.name for one in self.checked if not one.is_right}
        rows = []
        for one in self.times:
            ratio, verdict = "1", "baseline"
            if one.name != baseline:
                pair = self.pair(one.name, baseline)
                ratio, verdict = f"{pair.ratio:.4f}", pair.verdict
                if pair.interval is not None:
                    ratio += " ({:.4f} to {:.4f})".format(*pair.interval)
            texts = [shown["time"].text(one.median_ns), shown["±"].text(one.half_width)]
            verdict = "wrong" if one.name in wrong else verdict
            rows.append([one.name, *texts, ratio, verdict][: len(heads)])
        return heads, rows

    def _notes(self) -> list[str]:
        caches = "cold" if self.is_cold else "warm"
        found = [
            f"{self.device}, {self.method.replace('_', ' ')}, {caches} caches, "
            f"{len(next(iter(self.rounds.values())))} interleaved rounds in {self.seconds:.1f} s"
        ]
        for one in self.checked:
            accuracy = f", {one.accuracy}" if one.accuracy and one.is_right else ""
            worst = "" if one.worst is None else f", {one.worst:.2g} of what is allowed"
            detail = f": {one.detail}" if one.detail else ""
            found.append(f"{one.name} is {one.verdict}{detail} ({one.basis}{worst}{accuracy})")
        return found + [f"mark: {mark}" for mark in self.marks]


def compare(
    functions: Mapping[str, Function],
    *,
    inputs: Callable[[], Any] | Sequence[Any] | None = None,
    cold: bool = True,
    budget: float = BUDGET_S,
    until: float = UNTIL,
    relevant: float | None = None,
    verify: Reference | None = None,
    device: object = None,
    confidence: float = 0.95,
    seed: int | None = None,
    graph: bool = True,
) -> Contest:
    """Time functions against each other, interleaved, in this process.

    Args:
        functions: name -> function; the first is what the others are compared with.
        inputs: returns new arguments at each call (a tuple, or a single argument), or the arguments
            themselves; None: the functions take none.
        cold: the caches hold none of a call's inputs: sets of arguments from `inputs` rotate, or a
            flush runs before each call, outside of the timed region; on a GPU else a small kernel.
        budget: seconds for everything.
        until: sampling ends when the intervals of all ratios have this half-width.
        relevant: relative differences up to this count as none; None: a quarter of `until`.
        verify: a reference: a function of the same arguments, or an operation's name; see
            :mod:`gemmetry.judge.yardstick`.
        device: ``cpu``, ``cuda``, ``cuda:1``; None: see :func:`gemmetry.judge.clocks.open_clock`.
        confidence: of all intervals together.
        seed: of the order of the functions; None: another one each time.
        graph: on a GPU, time replays of CUDA graphs where all functions can be captured.

    Raises:
        RequestError: no functions, an invalid option, or a reference that does not work.
        LaunchError: a function raises; the message names it.
    """
    began = time.perf_counter()
    names = _checked_names(functions, budget, until)
    make = _maker(inputs)
    first = make()
    results = {name: _tried(name, functions[name], first) for name in names}
    clock = open_clock(device, functions.values(), (first, results))
    checked = check_results(verify, first, results) if verify is not None else []
    del results
    plan = _Plan(clock, functions, make, first, cold=cold, graph=graph, seed=seed)
    marks = list(plan.marks)
    observer = clock.observer()
    observer.start()
    deadline = began + budget
    settled = plan.settle(began + SETTLING_SHARE * budget)
    if not settled:
        marks.append("the device's speed had not settled before the rounds that count")
    margin = until / 4 if relevant is None else relevant
    pairs: list[Pair] = []
    while True:
        for _ in range(STEP if plan.rounds else MIN_ROUNDS):
            plan.run_round(observer.sample)
            if time.perf_counter() >= deadline:
                break
        pairs = _judge(plan.rounds, confidence, margin)
        width, goal = _reached(pairs, plan.rounds, until)
        if width <= goal or time.perf_counter() >= deadline:
            break
    telemetry = observer.stop()
    busy = _busy(telemetry)
    if busy:
        pairs = _judge(plan.rounds, confidence, margin, is_busy=True)
        if width > goal:
            width, goal = _reached(pairs, plan.rounds, until)
    marks += [*_late_marks(plan, telemetry, width, goal), *busy]
    return Contest(
        device=clock.device,
        method=plan.method,
        is_cold=cold,
        times=tuple(_timed(name, plan.rounds, confidence) for name in names),
        pairs=tuple(pairs),
        checked=tuple(checked),
        marks=tuple(marks),
        seconds=time.perf_counter() - began,
        rounds={name: [turn[name] for turn in plan.rounds] for name in names},
    )


def _checked_names(functions: Mapping[str, object], budget: float, until: float) -> list[str]:
    if not isinstance(functions, Mapping) or not functions:
        raise RequestError(
            "compare() needs a mapping from names to functions",
            hint='For example compare({"mine": f, "theirs": g}).',
        )
    for name, function in functions.items():
        if not callable(function):
            raise RequestError(f"{name!r} is {type(function).__name__}, which cannot be called")
    are_numbers = isinstance(budget, int | float) and isinstance(until, int | float)
    if not (are_numbers and math.isfinite(budget) and budget > 0 and 0 < until < 1):
        raise RequestError(
            f"budget is {budget!r} and until is {until!r}",
            hint="budget is a number of seconds, until a share such as 0.01.",
        )
    return [str(name) for name in functions]


def _maker(inputs: Callable[[], Any] | Sequence[Any] | None) -> Callable[[], tuple[Any, ...]]:
    if inputs is None:
        return tuple
    if not callable(inputs):
        fixed = tuple(inputs)
        return lambda: fixed

    def make() -> tuple[Any, ...]:
        found = inputs()
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    return make


def _tried(name: str, function: Function, arguments: Sequence[Any]) -> object:
    """The function's result, from its first call.

    Raises:
        LaunchError: the function raises.
    """
    try:
        return function(*arguments)
    except GemmetryError:
        raise
    except Exception as error:  # the function is foreign code
        raise LaunchError(
            f"{name} fails: {type(error).__name__}: {error}",
            hint="compare() calls each function with what inputs() returns; the items of a tuple "
            "or list are the arguments: return ([1, 2],) where one list is the only one.",
        ) from error


class _Plan:
    """Calls of all functions on rotating sets of arguments, and the rounds that were taken."""

    def __init__(
        self,
        clock: HostClock,
        functions: Mapping[str, Function],
        make: Callable[[], tuple[Any, ...]],
        first: tuple[Any, ...],
        *,
        cold: bool,
        graph: bool,
        seed: int | None,
    ) -> None:
        self._clock, self._random = clock, random.Random(seed)
        self.marks: list[str] = []
        self.rounds: list[dict[str, list[float]]] = []
        sets = _sets(make, first, clock.cache_bytes) if cold else [first]
        self._before = clock.flush if cold and len(sets) == 1 else clock.neighbour()
        self.method = clock.method
        self._calls: dict[str, list[Call]] = {
            name: [partial(function, *arguments) for arguments in sets]
            for name, function in functions.items()
        }
        self._next = 0
        for calls in self._calls.values():
            clock.times(calls, self._before)  # first calls compile and allocate
        if graph and clock.method == "events":
            self._capture()
        once_ns = {name: self._estimate(calls) for name, calls in self._calls.items()}
        self._batch = {
            name: 1 if self._before is not None or clock.method == "events"
            else max(1, math.ceil(BATCH_NS / ns))
            for name, ns in once_ns.items()
        }  # fmt: skip
        self._mark_overhead(once_ns)
        began = time.perf_counter()
        self._take(1)
        turn_s = max(time.perf_counter() - began, 1e-7)
        self._count = max(1, min(MOST_SAMPLES, int(ROUND_S / turn_s)))

    def _capture(self) -> None:
        """Replace all calls by replays, or none of them."""
        try:
            captured = {
                name: [self._clock.captured(call) for call in calls]
                for name, calls in self._calls.items()
            }
        except LaunchError as error:
            self.marks.append(f"timed without CUDA graphs: {error}")
            return
        self._calls, self.method = captured, "graph"

    def _estimate(self, calls: Sequence[Call]) -> float:
        return max(float(np.median(self._clock.times([calls[0]] * 3, self._before))), 1.0)

    def _mark_overhead(self, once_ns: Mapping[str, float]) -> None:
        overhead_ns = self._clock.overhead_ns()
        for name, ns in once_ns.items():
            if overhead_ns > DOUBTFUL_OVERHEAD * ns * self._batch[name]:
                self.marks.append(
                    f"the clock adds up to {format_ns(overhead_ns)} to each call of {name}: "
                    "ratios are nearer to 1 than they would be without"
                )

    def settle(self, deadline: float) -> bool:
        """Run uncounted rounds until their totals agree; return whether they did by `deadline`. On
        a host, whose other programs never settle, two rounds warm up."""
        totals: list[float] = []
        if self._clock.method == "wall_clock":
            self._take(self._count)
            self._take(self._count)
            return True
        while len(totals) < 2 or time.perf_counter() < deadline:
            totals.append(math.fsum(map(math.fsum, self._take(self._count).values())))
            if is_settled(totals):
                return True
        return False

    def run_round(self, observe: Callable[[], None]) -> None:
        """Take a round that counts."""
        self.rounds.append(self._take(self._count))
        observe()

    def _take(self, count: int) -> dict[str, list[float]]:
        """`count` samples of each function, in turn, in ns per call."""
        order = list(self._calls)
        sequence: list[str] = []
        for _ in range(count):
            self._random.shuffle(order)
            if len(order) > 1 and sequence and sequence[-1] == order[0]:
                order.append(order.pop(0))
            sequence += order
        durations = self._clock.times([self._sample(name) for name in sequence], self._before)
        found: dict[str, list[float]] = {name: [] for name in self._calls}
        for name, ns in zip(sequence, durations, strict=True):
            found[name].append(max(ns, 1.0) / self._batch[name])
        return found

    def _sample(self, name: str) -> Call:
        calls, batch = self._calls[name], self._batch[name]
        start = self._next
        self._next += batch
        if batch == 1:
            return calls[start % len(calls)]
        chosen = [calls[place % len(calls)] for place in range(start, start + batch)]

        def several() -> None:
            for call in chosen:
                call()

        return several


def _sets(
    make: Callable[[], tuple[Any, ...]], first: tuple[Any, ...], cache_bytes: int
) -> list[tuple[Any, ...]]:
    """Sets of arguments that together exceed the cache; only the first where that needs too many,
    or where they are always the same arrays."""
    size = sum(map(_size, first))
    if size == 0 or CACHES * cache_bytes > MOST_SETS * size:
        return [first]
    count = max(2, math.ceil(CACHES * cache_bytes / size))
    second = make()
    if any(one is other for one, other in zip(first, second, strict=False) if _size(one)):
        return [first]
    return [first, second, *(make() for _ in range(count - 2))]


def _size(value: Any) -> int:
    """Bytes of a tensor or array."""
    return int(getattr(value, "nbytes", 0) or 0)


def _judge(
    rounds: Rounds, confidence: float, relevant: float, *, is_busy: bool = False
) -> list[Pair]:
    """Each function compared with those before it; the intervals hold together."""
    turns = {name: {turn: found[name] for turn, found in enumerate(rounds)} for name in rounds[0]}
    family = math.comb(len(turns), 2)
    found = []
    for than, name in combinations(turns, 2):
        one = compare_rounds(
            turns[than], turns[name], confidence=confidence, relevant=relevant, family=family
        )
        if is_busy:
            before, after = (list(chain(*turns[side].values())) for side in (than, name))
            one = widened_by_fastest(one, before, after)
        found.append(Pair(
            name=name, than=than, ratio=one.ratio, ratio_low=one.ratio_low,
            ratio_high=one.ratio_high, verdict=str(one.verdict),
        ))  # fmt: skip
    return found


def _reached(pairs: Sequence[Pair], rounds: Rounds, until: float) -> tuple[float, float]:
    """The interval that is furthest from where sampling ends: its half-width, and that one."""
    widths = [_width(pair, until) for pair in pairs]
    found = widths or [(_widest(next(iter(rounds[0])), rounds), until)]
    return max(found, key=lambda one: one[0] / one[1])


def _width(found: Pair, until: float) -> tuple[float, float]:
    """Half-width of the ratio's interval, relative to the ratio, and that at which sampling ends:
    `until`, or :data:`CLEARLY` times as much where the ratio is far from 1."""
    if found.interval is None:
        return math.inf, until
    low, high = found.interval
    is_clear = low > 1 + CLEAR or high < 1 / (1 + CLEAR)
    return (high - low) / 2 / found.ratio, until * CLEARLY if is_clear else until


def _widest(name: str, rounds: Rounds) -> float:
    """Half-width of the only function's interval."""
    width = _timed(name, rounds).half_width
    return math.inf if width is None else width


def _timed(name: str, rounds: Rounds, confidence: float = 0.95) -> Timed:
    samples = [turn[name] for turn in rounds]
    middle = float(np.median(np.concatenate(samples)))
    interval, _ = rounds_interval(samples, confidence)
    return Timed(
        name=name,
        median_ns=middle,
        ci_low_ns=interval and interval[0],
        ci_high_ns=interval and interval[1],
        half_width=half_width(interval, middle),
        samples=sum(map(len, samples)),
    )


def _change(found: Pair | Comparison) -> str:
    """The change of a time, with its interval."""
    interval = format_interval(found.ratio_low, found.ratio_high)
    return format_change(found.ratio) + (f" ({interval})" if interval else "")


def _reversed(pair: Pair) -> Pair:
    swapped = {"faster": "slower", "slower": "faster"}
    interval = pair.interval
    return Pair(
        name=pair.than, than=pair.name, ratio=1 / pair.ratio,
        ratio_low=interval and 1 / interval[1], ratio_high=interval and 1 / interval[0],
        verdict=swapped.get(pair.verdict, pair.verdict),
    )  # fmt: skip


def _busy(telemetry: Mapping[str, object]) -> list[str]:
    """The mark of a run that had to wait for processors; none for others."""
    delay, others = telemetry.get(RUN_DELAY), telemetry.get(OTHERS)
    if isinstance(delay, float) and delay > RUN_DELAY_SHARE:
        what = f"threads waited for processors for {format_percent(delay)} of the time"
    elif isinstance(others, float) and others > OTHERS_SHARE:
        what = f"other programs took {format_percent(others)} of the processors"
    else:
        return []
    cause = "other programs, or the functions' own threads, take them"
    return [f"busy: {what}; {cause}: end those programs, or use fewer threads"]


def _late_marks(
    plan: _Plan, telemetry: Mapping[str, object], width: float, until: float
) -> list[str]:
    marks = []
    reasons = telemetry.get("throttle_reasons")
    if isinstance(reasons, tuple) and reasons:
        marks.append(f"clocks were held down ({', '.join(map(str, reasons))}): compare ratios only")
    if width > until:
        reached = f"at {format_half_width(width)}, not the {format_half_width(until)} wanted"
        if math.isinf(width):
            reached = f"after {len(plan.rounds)} rounds, too few for an interval"
        marks.append(f"the budget ended {reached}")
    return marks


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines of columns; all but the first and last columns are right-aligned."""
    from gemmetry.results.texts import printable

    cleaned = [[printable(text) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cleaned, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            text.ljust(width) if place in (0, last) else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cleaned
    ]


THRESHOLD = 0.02
"""Default difference up to which a change counts as none."""

Times = Mapping[str, Sequence[Sequence[float]]]
"""Name of the timed function -> rounds -> durations in ns."""


class Change(Row):
    """Change of one test or dispatch over all runs."""

    name: str = fact("test or dispatch")
    change: str = fact("time after over time before, with its interval")
    runs: int = fact("pairs of runs")
    verdict: str = fact("faster, slower, no difference shown, undecided, or gone")


def read_times(path: Path) -> dict[str, list[list[float]]]:
    """The times in a file.

    Raises:
        RequestError: the file cannot be read, or is of another kind.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "benchmarks" in document:
            return {entry["fullname"]: _rounds(entry) for entry in document["benchmarks"]}
        return {
            f"{record['provider']} {record['dispatch']} {record['target']}": [
                [float(record["median_ns"])]
            ]
            for record in document["records"]
            if record["median_ns"] is not None
        }
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError(
            f"{path} holds no times ({type(error).__name__}: {error})",
            hint="Write it by `pytest --kernel-benchmark-json`, or `gemmetry profile -o run.json`.",
        ) from error


def _rounds(entry: Mapping[str, Any]) -> list[list[float]]:
    """Rounds in ns; pytest-benchmark's own files have single samples in seconds."""
    if "rounds_ns" in entry["extra_info"]:
        return [[float(ns) for ns in turn] for turn in entry["extra_info"]["rounds_ns"]]
    return [[1e9 * float(value)] for value in entry["stats"]["data"]]


def compare_runs(
    before: Sequence[Times], after: Sequence[Times], threshold: float = THRESHOLD
) -> list[Change]:
    """Compare what all runs timed, by run.

    Args:
        before, after: the runs of both sides; those of the same place were adjacent.
    """
    from gemmetry.statistics.comparison import compare_rounds, is_testable

    names = list(dict.fromkeys(name for run in (*before, *after) for name in run))
    sides = {name: (_by_run(name, before), _by_run(name, after)) for name in names}
    family = sum(is_testable(len(a), len(b), by_rounds=True) for a, b in sides.values())
    found = []
    for name, (a, b) in sides.items():
        change, verdict = "", "gone" if a else "new"
        if a and b:
            compared = compare_rounds(a, b, relevant=threshold, family=max(1, family))
            change, verdict = _change(compared), str(compared.verdict)
        runs = len(a.keys() & b.keys())
        found.append(Change(name=name, change=change, runs=runs, verdict=verdict))
    return found


def _by_run(name: str, runs: Sequence[Times]) -> dict[int, list[float]]:
    """Run -> all samples of `name`."""
    return {
        place: [ns for turn in run[name] for ns in turn]
        for place, run in enumerate(runs)
        if any(run.get(name, ()))
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="Compare alternate runs of two versions, by run.")
    parser.add_argument("--before", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--after", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument("--threshold", type=float, default=THRESHOLD, metavar="SHARE")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="append the table to it")
    options = parser.parse_args(arguments)
    try:
        before, after = (
            [read_times(path) for path in side] for side in (options.before, options.after)
        )
    except GemmetryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    changes = compare_runs(before, after, options.threshold)
    if not changes:
        sys.stderr.write("error: the runs timed nothing\n")
        return 2
    from gemmetry.results.tables import markdown_text

    text = markdown_text([table("changes", Change, changes)])
    sys.stdout.write(text)
    if options.summary is not None:
        with options.summary.open("a", encoding="utf-8") as file:
            file.write(f"## Times of kernels\n\n{text}\n")
    return int(any(one.verdict == "slower" for one in changes))


if __name__ == "__main__":
    sys.exit(main())
