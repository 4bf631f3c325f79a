"""Scores verification by mutants: which check killed which mutant, and which mutants
survived.

A *mutant* is a kernel with a deliberate bug; it is killed when its dispatch does not end as ``ok``
(wrong, crashed, hung, rejected), because then no time of it is reported. A kernel that is right but
unusual must pass; otherwise it is a *false alarm*. The share of mutants killed is the mutation
score (Jia & Harman, "An Analysis and Survey of the Development of Mutation Testing", IEEE TSE
37(5), 2011).
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Console
from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from gemmetry.dispatches.labels import reason_line
from gemmetry.domain.errors import Outcome, Verification
from gemmetry.domain.record import Record
from gemmetry.domain.rows import SCHEMA_VERSION, Row, fact
from gemmetry.domain.tables import Column, ColumnType, Table, grouped
from gemmetry.domain.units import plural
from gemmetry.results import emit
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.results.tables import markdown_lines
from gemmetry.results.texts import first_line, printable
from gemmetry.selftest.provider import Mutant

NOT_RUN = (Outcome.UNSUPPORTED, Outcome.SKIPPED, Outcome.COMPILE_ERROR)
"""Outcomes after which the results of the checks are not known."""

ENDINGS = (Outcome.CRASH, Outcome.TIMEOUT, Outcome.LAUNCH_ERROR, Outcome.OUT_OF_MEMORY)
"""Outcomes that kill a mutant without any check: the engine's isolation or watchdog caught it."""

PASSED, WARNED, FAILED, NOT_APPLICABLE = "passed", "warned", "failed", "not applicable"
INCOMPLETE, PROPERTY = "incomplete", "property"


_OF_THE_FIRST_RESULT = frozenset({"written", "values", "freivalds"})
"""Checks that examine the elements of the first launch's result."""


@dataclass(frozen=True, slots=True)
class MutantResult:
    """One kernel of the catalogue on one device."""

    mutant: Mutant
    record: Record

    @property
    def name(self) -> str:
        """Name of the configuration."""
        return self.mutant.configuration

    @property
    def cells(self) -> dict[str, str]:
        """Check -> ``passed``, ``warned``, ``failed`` or ``not applicable``; an outcome that ended
        it without a check counts as ``failed`` under its own name."""
        texts = self.record.verdict.checks.items()
        checks = {check: text.partition(":")[0] for check, text in texts}
        if self.record.outcome in ENDINGS:
            checks[str(self.record.outcome)] = FAILED
        return checks

    @property
    def killed_by(self) -> tuple[str, ...]:
        """The checks that failed, and the outcome that ended it without a check."""
        return tuple(check for check, cell in self.cells.items() if cell == FAILED)

    @property
    def is_killed(self) -> bool:
        failed = self.record.verdict.status is Verification.FAILED
        return failed or self.record.outcome in (Outcome.WRONG, *ENDINGS)

    @property
    def is_flagged(self) -> bool:
        """Whether a right kernel was rejected. A warning is an alarm as well, unless the kernel
        declares the property that caused it."""
        warned = self.record.verdict.status is Verification.WARNED and not self.mutant.declared
        return self.record.outcome is not Outcome.OK or warned

    @property
    def is_killed_as_planned(self) -> bool:
        """Whether one of the checks that the catalogue expects killed it: a mutant killed by
        another check may be broken in a different way than intended."""
        expected = self.mutant.killed_by
        return not expected or bool(set(expected) & set(self.killed_by))

    def row(self, checks: Iterable[str]) -> list[str]:
        """The cells of these checks."""
        cells = self.cells
        return [cells.get(check, NOT_APPLICABLE) for check in checks]

    @property
    def is_bad(self) -> bool:
        """Whether the checks are wrong about the kernel."""
        return not self.is_killed if self.mutant.is_bug else self.is_flagged

    @property
    def verdict(self) -> str:
        if self.mutant.is_bug:
            return "killed" if self.is_killed else "SURVIVES"
        return "FALSE ALARM" if self.is_flagged else "passes"

    @property
    def short_name(self) -> str:
        """``m05 k tail dropped``, followed by the carrier unless it is the host."""
        stem, _, carrier = self.name.rpartition("_")
        name = stem.replace("_", " ")
        return name if carrier == "host" else f"{name} [{carrier}]"


class NotRun(Row):
    """A kernel of the catalogue that did not run here, or a bug of the list without a kernel."""

    number: int = fact()
    name: str | None = fact(default="")
    """Name of the configuration; "" if the bug has no kernel."""
    carrier: str | None = fact(key="vehicle", default="")
    is_bug: bool = fact(default=True)
    reason: str = fact()
    is_broken: bool = fact(default=False)
    """True if the mutant was in the plan but left no verdict."""


class RivalScore(Row):
    """Another harness's judgement of the same results."""

    judged: int = fact(key="asked")
    """Number of mutants that left a result to judge."""
    let_through: tuple[str, ...] = fact()
    wrong_judged: int = fact(key="wrong_asked")
    """Number of those whose very first result is wrong; the others need another shape, input or
    launch to show their bug, which these harnesses do not try."""
    wrong_let_through: tuple[str, ...] = fact()
    correct_judged: int = fact(key="correct_asked")
    false_alarms: tuple[str, ...] = fact()

    @property
    def shares(self) -> tuple[str, str, str]:
        """What it let through, of that what is wrong at once, and its false alarms."""
        return (
            f"{len(self.let_through)} of {self.judged}",
            f"{len(self.wrong_let_through)} of {self.wrong_judged}",
            f"{len(self.false_alarms)} of {self.correct_judged}",
        )


@dataclass(frozen=True)
class KillMatrix:
    """All kernels of the catalogue that ran, and those that did not."""

    results: Sequence[MutantResult]
    not_run: Sequence[NotRun] = ()
    unseen: KillMatrix | None = None
    """The kernels that were written without knowledge of the checks; the score and lists of the
    others do not include them. None where none of them ran."""

    @cached_property
    def mutants(self) -> list[MutantResult]:
        return [result for result in self.results if result.mutant.is_bug]

    @cached_property
    def correct(self) -> list[MutantResult]:
        return [result for result in self.results if not result.mutant.is_bug]

    @cached_property
    def survivors(self) -> list[MutantResult]:
        return [result for result in self.mutants if not result.is_killed]

    @cached_property
    def false_alarms(self) -> list[MutantResult]:
        return [result for result in self.correct if result.is_flagged]

    @cached_property
    def broken(self) -> list[NotRun]:
        return [item for item in self.not_run if item.is_broken]

    @property
    def everything(self) -> list[MutantResult]:
        """All results, those of unseen kernels last."""
        return [*self.results, *(self.unseen.results if self.unseen else ())]

    @property
    def sections(self) -> list[tuple[str, list[MutantResult]]]:
        """Title -> results, in the order in which they are shown."""
        found = [("Mutants", self.mutants), ("Correct but tricky", self.correct)]
        if self.unseen:
            found.append(("Unseen bugs", self.unseen.mutants))
            found.append(("Unseen correct kernels", self.unseen.correct))
        return found

    @property
    def mutants_total(self) -> int:
        """Mutants that ran; one that ran on two devices counts once."""
        return len(_names(self.mutants))

    @property
    def mutants_killed(self) -> int:
        """Mutants that were killed on every device on which they ran."""
        return self.mutants_total - len(_names(self.survivors))

    @property
    def correct_total(self) -> int:
        return len(_names(self.correct))

    @property
    def bugs_covered(self) -> tuple[int, ...]:
        """Numbers of the bugs in the list for which at least one mutant ran."""
        return tuple(sorted({result.mutant.number for result in self.mutants}))

    @property
    def is_perfect(self) -> bool:
        """Every mutant was killed, no right kernel was flagged, and none is broken; the score of
        unseen kernels is a measurement and does not count."""
        return not (self.survivors or self.false_alarms or self.broken)

    @cached_property
    def checks(self) -> tuple[str, ...]:
        """All checks, including those of unseen kernels, in the order in which they run, followed
        by the outcomes that killed mutants."""
        ordered: list[str] = []
        for result in self.everything:
            position = 0
            for check in result.record.verdict.checks:
                if check in ordered:
                    position = ordered.index(check) + 1
                else:
                    ordered.insert(position, check)
                    position += 1
        endings = {str(r.record.outcome) for r in self.everything if r.record.outcome in ENDINGS}
        return (*ordered, *(str(ending) for ending in ENDINGS if ending in endings))

    @cached_property
    def kills(self) -> Counter[str]:
        """Check -> mutants that it killed, alone or together with others."""
        return Counter(check for result in self.mutants for check in result.killed_by)

    @cached_property
    def sole_kills(self) -> Counter[str]:
        """Check -> mutants that no other check killed."""
        sole = (one.killed_by for one in self.mutants if len(one.killed_by) == 1)
        return Counter(check for (check,) in sole)

    @cached_property
    def rivals(self) -> dict[str, RivalScore]:
        """How the check of each other harness judges the results, by its name."""
        names = dict.fromkeys(name for r in self.results for name in r.record.verdict.rivals)
        return {name: self._rival_score(name) for name in names}

    def _rival_score(self, name: str) -> RivalScore:
        def judged(results: Iterable[MutantResult], *accepts: bool) -> tuple[str, ...]:
            return _names(r for r in results if r.record.verdict.rivals.get(name) in accepts)

        wrong = [one for one in self.mutants if _OF_THE_FIRST_RESULT & {*one.killed_by}]
        return RivalScore(
            judged=len(judged(self.mutants, True, False)),
            let_through=judged(self.mutants, True),
            wrong_judged=len(judged(wrong, True, False)),
            wrong_let_through=judged(wrong, True),
            correct_judged=len(judged(self.correct, True, False)),
            false_alarms=judged(self.correct, False),
        )


def kill_matrix(
    catalogue: Iterable[Mutant],
    records: Iterable[Record],
    *,
    absent: Mapping[str, str] = {},
    without_mutant: Mapping[int, str] = {},
) -> KillMatrix:
    """Match records of the provider ``mutant`` with the catalogue.

    Where no kernel of a carrier, not even a right one, reached a check on a device, the carrier
    does not work there, and none of its mutants counts as killed.

    Args:
        catalogue: all its kernels.
        records: of a self-test's experiment; a kernel may have one for each device.
        absent: configuration -> why it was left out on this machine.
        without_mutant: number of a bug -> why there is no mutant for it.
    """
    by_configuration = grouped(records, lambda record: record.configuration)
    results: list[MutantResult] = []
    not_run: list[NotRun] = []

    def leave_out(item: Mutant, reason: str, *, is_broken: bool = True) -> None:
        name, carrier = item.configuration, str(item.carrier)
        not_run.append(
            NotRun(number=item.number, name=name, carrier=carrier, is_bug=item.is_bug,
                   reason=reason, is_broken=is_broken)
        )  # fmt: skip

    for item in catalogue:
        found = by_configuration.get(item.configuration, [])
        ran = [MutantResult(item, record) for record in found if record.outcome not in NOT_RUN]
        results += ran
        if found and not ran:
            leave_out(item, f"{found[0].outcome}: {found[0].reason}")
        elif not ran and item.configuration in absent:
            leave_out(item, absent[item.configuration], is_broken=False)
        elif not ran:
            leave_out(item, "the run ended before this mutant; the same command continues")
    unusable = _unusable(results)
    ran_well = {result.name for result in results if _place(result) not in unusable}
    for result in results:
        if (place := _place(result)) in unusable:
            why = f"{place[0]} does not work on {place[1]}, correct kernels fail as well: "
            leave_out(
                result.mutant, why + result.record.reason, is_broken=result.name not in ran_well
            )
    results = [result for result in results if _place(result) not in unusable]
    not_run += [NotRun(number=one, reason=why) for one, why in without_mutant.items()]
    unseen = [result for result in results if result.mutant.is_unseen]
    seen = [result for result in results if not result.mutant.is_unseen]
    return KillMatrix(seen, not_run, KillMatrix(unseen) if unseen else None)


def _place(result: MutantResult) -> tuple[str, str]:
    return str(result.mutant.carrier), result.record.device


def _unusable(results: Iterable[MutantResult]) -> set[tuple[str, str]]:
    """(carrier, device) pairs for which mutants and right kernels alike ended without a check."""
    return {
        place
        for place, of in grouped(results, _place).items()
        if len({one.mutant.is_bug for one in of}) == 2
        and all(one.record.outcome in ENDINGS and not one.record.verdict.checks for one in of)
    }


def _names(results: Iterable[MutantResult]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(result.name for result in results))


CELLS = {
    FAILED: ("●", "bold green"), WARNED: ("w", "yellow"), PASSED: ("·", "dim"),
    INCOMPLETE: ("i", "yellow"), PROPERTY: ("p", "dim"), NOT_APPLICABLE: (" ", ""),
}  # fmt: skip
"""The result of a check -> its character and style."""

_NAME_WIDTH = 30
_WORD_WIDTH = len("FALSE ALARM")

Facts = Mapping[str, Any]
"""About the run: ``level``, ``experiment`` and ``machine`` (a mapping)."""


def letters_of(checks: Sequence[str]) -> dict[str, str]:
    """Check -> the letter that heads its column."""
    return dict(zip(checks, string.ascii_letters, strict=False))


def score_lines(matrix: KillMatrix) -> Iterator[str]:
    """The score, survivors, false alarms, and what was killed by another check or did not run."""
    carriers = Counter(str(r.mutant.carrier) for r in matrix.mutants)
    where = ", ".join(f"{count} {carrier}" for carrier, count in carriers.items())
    killed, total = matrix.mutants_killed, matrix.mutants_total
    share = f"{killed / total:.0%}" if total else "–"
    bugs = len(matrix.bugs_covered)
    yield f"{killed} of {total} mutants killed ({share}): {where or 'none ran'}; {bugs} bugs"
    for result in matrix.survivors:
        why = ", ".join(f"{c} warned" for c, cell in result.cells.items() if cell == WARNED)
        yield f"survivor: {result.name}: {result.mutant.bug}" + (f" ({why})" if why else "")
    yield f"{len(matrix.false_alarms)} of {matrix.correct_total} correct kernels flagged"
    yield from _alarm_lines(matrix)
    for result in matrix.mutants:
        if result.is_killed and not result.is_killed_as_planned:
            how = ", ".join(result.killed_by) or str(result.record.outcome)
            planned = " or ".join(result.mutant.killed_by)
            yield f"killed by {how}, not by {planned} as planned: {result.name}"
    for reason, items in _by_reason(matrix.broken):
        yield f"did not run: {', '.join(str(item.name) for item in items)}: {reason}"
    if unseen := matrix.unseen:
        yield (
            f"unseen: killed {unseen.mutants_killed} of {unseen.mutants_total}; "
            f"correct kernels flagged: {len(unseen.false_alarms)} of {unseen.correct_total}"
        )
        for result in unseen.survivors:
            yield f"unseen survivor: {result.name}: {result.mutant.bug}"
        yield from (f"unseen {line}" for line in _alarm_lines(unseen))


def _alarm_lines(matrix: KillMatrix) -> Iterator[str]:
    for result in matrix.false_alarms:
        why = reason_line(result.record) or first_line(result.record.verdict.reason)
        yield f"false alarm: {result.name}: {why}"


def kill_matrix_page(matrix: KillMatrix, facts: Facts) -> str:
    """The page: score, checks, a row for each kernel, the checks of other harnesses."""
    machine = facts.get("machine") or {}
    devices = Counter(map(str, machine.get("devices", ())))
    of_a_kind = (f"{count} × {name}" if count > 1 else name for name, count in devices.items())
    places = ", ".join((str(machine.get("cpu", "")), *of_a_kind))
    parts = [
        "# Kill matrix",
        f"This page is generated by `gemmetry verify self-test -o FILE.md`: level "
        f"{facts.get('level')}, gemmetry {machine.get('gemmetry', '')}, on {escape(places)}.",
        "\n".join(f"* {escape(line)}" for line in score_lines(matrix)),
        "## Checks",
        _page_table(
            ["", "check", "mutants killed", "by it alone"],
            [
                [letter, check, str(matrix.kills[check]), str(matrix.sole_kills[check])]
                for check, letter in letters_of(matrix.checks).items()
            ],
            numbers=(2, 3),
        ),
        "## Mutants",
        _kernels(matrix.mutants, "killed by"),
        "## Correct but tricky kernels",
        _kernels(matrix.correct, "flagged by"),
    ]
    if matrix.unseen:
        parts += [
            "## Unseen kernels",
            "These kernels were written without knowledge of the checks and are scored "
            "separately. They show how well the checks find bugs that they were not designed for.",
            _kernels(matrix.unseen.mutants, "killed by"),
            "Correct ones:",
            _kernels(matrix.unseen.correct, "flagged by"),
        ]
    parts += [
        "## The matrix",
        "● the check failed the kernel, w it warned, · it passed, blank: it does not apply or was "
        "not reached.",
        _dots(matrix),
    ]
    if matrix.rivals:
        parts += [
            "## What other checks find in the same results",
            "Each is run on the first result of every mutant that left one, as these harnesses "
            "do. *Wrong at once* are the mutants whose first result has a wrong element; the bugs "
            "of the others show only with another shape, input or launch.",
            _page_table(
                ["check", "mutants let through", "of those wrong at once",
                 "correct kernels flagged", "which mutants", "which correct kernels"],
                [
                    [name, *score.shares, _stems(score.let_through), _stems(score.false_alarms)]
                    for name, score in matrix.rivals.items()
                ],
                numbers=(1, 2, 3),
            ),
        ]  # fmt: skip
    if matrix.not_run:
        rows = []
        for reason, items in _by_reason(matrix.not_run, 400):
            names = [item.name or f"number {item.number} of the list" for item in items]
            rows.append([reason, str(len(items)), ", ".join(names)])
        parts += ["## Not run here", _page_table(["why", "kernels", "which"], rows, numbers=(1,))]
    return "\n\n".join(parts) + "\n"


def _by_reason(left_out: Iterable[NotRun], limit: int = 200) -> Iterable[tuple[str, list[NotRun]]]:
    """Mutants that did not run, grouped by the first line of the reason."""
    return grouped(left_out, lambda item: first_line(item.reason, limit)).items()


def _kernels(results: Sequence[MutantResult], verdict: str) -> str:
    if not results:
        return "None ran."
    rows = [(str(one.mutant.number), one.short_name, one.mutant.bug,
             ", ".join(one.killed_by) or (one.verdict if one.is_bad else "none"))
            for one in results]  # fmt: skip
    return _page_table(["#", "kernel", "what it does", verdict], rows)


def _dots(matrix: KillMatrix) -> str:
    letters = letters_of(matrix.checks)
    results = [result for _, part in matrix.sections for result in part]
    width = max((len(result.short_name) for result in results), default=0)
    lines = [f"{'':{width}}  {' '.join(letters.values())}"]
    for result in results:
        dots = " ".join(CELLS[cell][0] for cell in result.row(letters))
        word = f"  {result.verdict}" if result.is_bad else ""
        lines.append(f"{result.short_name:{width}}  {dots}".rstrip() + word)
    return "\n".join(("```text", *lines, "```"))


def _stems(names: Sequence[str]) -> str:
    """The numbers with which the names begin, each once, in order."""
    return ", ".join(sorted({name.partition("_")[0] for name in names})) or "none"


def _page_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = (0,)
) -> str:
    are_numbers = [index in numbers for index in range(len(headings))]
    return "\n".join(markdown_lines(headings, rows, numbers=are_numbers))


def print_kill_matrix(matrix: KillMatrix, console: Console) -> None:
    """Print the matrix, the score, the false alarms, what did not run, and the results of other
    harnesses' checks."""
    letters = letters_of(matrix.checks)
    _print_legend(matrix, letters, console)
    joint = " " if _NAME_WIDTH + 3 + 2 * len(letters) + _WORD_WIDTH <= console.width else ""
    for title, results in matrix.sections:
        if results:
            head = Text(title.ljust(_NAME_WIDTH + 3), style="bold cyan")
            console.print()
            console.print(head.append(joint.join(letters.values()), style="dim"))
        for result in results:
            console.print(_line(result, letters, joint), no_wrap=True, overflow="ellipsis")
    console.print()
    for line in score_lines(matrix):
        bad = line.removeprefix("unseen ").startswith(("survivor", "false alarm", "did not"))
        console.print(Text(printable(line), style="bold red" if bad else ""))
    _print_rivals(matrix, console)
    _print_not_run(matrix, console)


def _print_legend(matrix: KillMatrix, letters: Mapping[str, str], console: Console) -> None:
    texts = [f"{letter} {check} ({matrix.kills[check]})" for check, letter in letters.items()]
    width = max(map(len, texts), default=0) + 2
    per_line = max(1, (min(console.width, 100) - 2) // width)
    console.print(Text("Checks, and how many mutants each killed", style="bold cyan"))
    for start in range(0, len(texts), per_line):
        line = "".join(text.ljust(width) for text in texts[start : start + per_line])
        console.print(Text(f"  {line.rstrip()}"), no_wrap=True)
    legend = "● failed it   w warned   · passed   i incomplete   p property   blank: not applicable"
    console.print(Text(f"  {legend}", style="dim"))


def _line(result: MutantResult, letters: Mapping[str, str], joint: str) -> Text:
    """A kernel's line; `joint` separates the cells."""
    name = result.short_name
    name = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
    line = Text("! " if result.is_bad else "  ", style="bold red")
    line.append(f"{name:<{_NAME_WIDTH}} ", style="bold red" if result.is_bad else "")
    for cell in result.row(letters):
        character, style = CELLS[cell]
        line.append(character + joint, style=style)
    if result.is_bad:
        line.append(f" {result.verdict}".removeprefix(joint), style="bold red")
    return line


def _print_rivals(matrix: KillMatrix, console: Console) -> None:
    if not matrix.rivals:
        return
    console.print()
    heads = ("mutants", "wrong at once", "correct flagged")
    numbers = (RichColumn(justify="right") for _ in heads)
    table = RichTable.grid("", *numbers, padding=(0, 2, 0, 0))
    table.add_row(
        Text("What other checks let through", style="bold cyan"),
        *(Text(text, style="dim") for text in heads),
    )
    for name, score in matrix.rivals.items():
        table.add_row(f"  {name}", *score.shares)
    console.print(table)
    about = "  run on each mutant's first result; crashes and hangs left none"
    console.print(Text(about, style="dim"))


def _print_not_run(matrix: KillMatrix, console: Console) -> None:
    if not matrix.not_run:
        return
    console.print()
    console.print(Text(f"Not run: {len(matrix.not_run)}", style="bold cyan"))
    for reason, items in _by_reason(matrix.not_run):
        bugs = Counter(item.carrier for item in items if item.is_bug)
        right = sum(not item.is_bug for item in items)
        what = [plural(n, f"{v} mutant") if v else f"{n} without a kernel"
                for v, n in bugs.items()]  # fmt: skip
        what += [f"{right} correct"] if right else []
        console.print(Text(f"  {', '.join(what)}: {reason}"))


def kill_matrix_document(matrix: KillMatrix, facts: Facts) -> dict[str, Any]:
    """The document of ``verify self-test --json``: the score, the lists and the whole matrix."""
    return {
        "schema_version": SCHEMA_VERSION,
        **facts,
        **_score_document(matrix),
        "bugs_covered": list(matrix.bugs_covered),
        "not_run": [item.record() for item in matrix.not_run],
        "checks": {
            check: {"kills": matrix.kills[check], "sole_kills": matrix.sole_kills[check]}
            for check in matrix.checks
        },
        "rivals": {name: score.record() for name, score in matrix.rivals.items()},
        "matrix": list(map(_result_document, matrix.results)),
        "unseen": matrix.unseen
        and {
            **_score_document(matrix.unseen),
            "matrix": list(map(_result_document, matrix.unseen.results)),
        },
    }


def _score_document(matrix: KillMatrix) -> dict[str, Any]:
    return {
        "mutants_total": matrix.mutants_total,
        "mutants_killed": matrix.mutants_killed,
        "survivors": sorted({result.name for result in matrix.survivors}),
        "correct_total": matrix.correct_total,
        "false_alarms": sorted({result.name for result in matrix.false_alarms}),
    }


def _result_document(result: MutantResult) -> dict[str, Any]:
    record, mutant = result.record, result.mutant
    return {
        "name": result.name,
        "number": mutant.number,
        "bug": mutant.bug,
        "vehicle": str(mutant.carrier),
        "device": record.device,
        "operation": record.operation,
        "is_bug": mutant.is_bug,
        "is_killed": result.is_killed if mutant.is_bug else None,
        "is_false_alarm": None if mutant.is_bug else result.is_flagged,
        "outcome": str(record.outcome),
        "verification": str(record.verdict.status),
        "killed_by": list(result.killed_by),
        "planned": list(mutant.killed_by),
        "checks": result.cells,
        "rivals_let_it_through": dict(record.verdict.rivals),
        "reason": record.reason or record.verdict.reason or None,
        "reproduce": record.reproduce or None,
    }


def kill_matrix_files(matrix: KillMatrix, facts: Facts) -> emit.Result:
    """The matrix with its files: md is a page, json the document, and all others a table with one
    row for each kernel."""
    return emit.Result(
        rows={"kill_matrix": lambda: _table(matrix)},
        forms={emit.MARKDOWN: lambda: kill_matrix_page(matrix, facts)},
        whole=lambda: kill_matrix_document(matrix, facts),
    )


def _table(matrix: KillMatrix) -> Table:
    columns = (
        Column("number", ColumnType.INTEGER),
        *map(Column, ("name", "vehicle", "device", "operation", "bug")),
        Column("is_bug", ColumnType.BOOLEAN),
        *map(Column, ("outcome", "verdict", "killed_by", *matrix.checks)),
        *(Column(f"let through by {name}", ColumnType.BOOLEAN) for name in matrix.rivals),
        Column("reason"),
    )
    rows = [
        {
            **_result_document(result),
            "verdict": result.verdict.lower(),
            "killed_by": ", ".join(result.killed_by),
            **{check: result.cells.get(check, "") for check in matrix.checks},
            **{
                f"let through by {name}": result.record.verdict.rivals.get(name)
                for name in matrix.rivals
            },
            "reason": "" if result.record.outcome is Outcome.OK else reason_line(result.record),
        }
        for result in matrix.everything
    ]
    return Table.from_records("kill matrix", columns, rows)
