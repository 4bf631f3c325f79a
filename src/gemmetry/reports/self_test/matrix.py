"""The self-test's kill matrix: on a terminal of 80 columns, as JSON, and as files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from gemmetry.analysis.dispatches.kill_matrix import (
    FAILED,
    INCOMPLETE,
    NOT_APPLICABLE,
    PASSED,
    PROPERTY,
    WARNED,
    KillMatrix,
    MutantResult,
    NotRun,
)
from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import counted
from gemmetry.reports.labels import reason_line
from gemmetry.reports.self_test.labels import (
    CELLS,
    cells_of,
    is_bad,
    letters_of,
    score_lines,
    short_name,
    verdict_word,
)
from gemmetry.reports.self_test.page import kill_matrix_page
from gemmetry.reports.tables.files import write_atomically
from gemmetry.reports.tables.json import json_file
from gemmetry.reports.tables.writing import check_suffix, write_tables
from gemmetry.reports.texts import first_line, printable

_STYLES = {
    FAILED: "bold green", WARNED: "yellow", PASSED: "dim", INCOMPLETE: "yellow", PROPERTY: "dim",
    NOT_APPLICABLE: "",
}  # fmt: skip
_NAME_WIDTH = 30
_WORD_WIDTH = len("FALSE ALARM")

Facts = Mapping[str, Any]
"""About the run: ``level``, ``experiment`` and ``machine`` (a mapping)."""


def print_kill_matrix(matrix: KillMatrix, console: Console) -> None:
    """Print the matrix, the score, the false alarms, what did not run, and the results of other
    harnesses' checks."""
    letters = letters_of(matrix.checks)
    _print_legend(matrix, letters, console)
    joint = " " if _NAME_WIDTH + 3 + 2 * len(letters) + _WORD_WIDTH <= console.width else ""
    sections = [("Mutants", matrix.mutants), ("Correct but tricky", matrix.correct)]
    if matrix.unseen:
        sections.append(("Unseen bugs", matrix.unseen.mutants))
        sections.append(("Unseen correct kernels", matrix.unseen.correct))
    for title, results in sections:
        if results:
            console.print()
            console.print(_head(title, letters, joint))
        for result in results:
            console.print(_line(result, letters, joint), no_wrap=True, overflow="ellipsis")
    _print_score(matrix, console)
    _print_rivals(matrix, console)
    _print_not_run(matrix, console)


def kill_matrix_document(matrix: KillMatrix, facts: Facts) -> dict[str, Any]:
    """The document of ``verify self-test --json``: the score, the lists and the whole matrix."""
    return {
        "schema_version": SCHEMA_VERSION,
        **facts,
        "mutants_total": matrix.mutants_total,
        "mutants_killed": matrix.mutants_killed,
        "survivors": sorted({result.name for result in matrix.survivors}),
        "correct_total": matrix.correct_total,
        "false_alarms": sorted({result.name for result in matrix.false_alarms}),
        "bugs_covered": list(matrix.bugs_covered),
        "not_run": [_not_run_document(item) for item in matrix.not_run],
        "checks": {
            check: {"kills": matrix.kills[check], "sole_kills": matrix.sole_kills[check]}
            for check in matrix.checks
        },
        "rivals": {
            name: {
                "asked": score.judged,
                "let_through": list(score.let_through),
                "wrong_asked": score.wrong_judged,
                "wrong_let_through": list(score.wrong_let_through),
                "correct_asked": score.correct_judged,
                "false_alarms": list(score.false_alarms),
            }
            for name, score in matrix.rivals.items()
        },
        "matrix": [_result_document(result) for result in matrix.results],
        "unseen": _unseen_document(matrix.unseen) if matrix.unseen else None,
    }


def _unseen_document(matrix: KillMatrix) -> dict[str, Any]:
    return {
        "mutants_total": matrix.mutants_total,
        "mutants_killed": matrix.mutants_killed,
        "survivors": sorted({result.name for result in matrix.survivors}),
        "correct_total": matrix.correct_total,
        "false_alarms": sorted({result.name for result in matrix.false_alarms}),
        "matrix": [_result_document(result) for result in matrix.results],
    }


def write_kill_matrix(matrix: KillMatrix, path: Path, facts: Facts) -> None:
    """Write the matrix in the format of the suffix: md is a page, json the document, and all others
    a table with one row for each kernel.

    Raises:
        RequestError: unknown suffix, or a library is missing. StorageError: not writable.
    """
    match check_suffix(path):
        case ".md":
            write_atomically(path, kill_matrix_page(matrix, facts).encode())
        case ".json":
            write_atomically(path, json_file(kill_matrix_document(matrix, facts)))
        case _:
            write_tables([_table(matrix)], path)


def _print_legend(matrix: KillMatrix, letters: Mapping[str, str], console: Console) -> None:
    texts = [f"{letter} {check} ({matrix.kills[check]})" for check, letter in letters.items()]
    width = max(map(len, texts), default=0) + 2
    per_line = max(1, (min(console.width, 100) - 2) // width)
    console.print(Text("Checks, and how many mutants each killed", style="bold cyan"))
    for start in range(0, len(texts), per_line):
        line = "".join(text.ljust(width) for text in texts[start : start + per_line])
        console.print(Text(f"  {line.rstrip()}"), no_wrap=True)
    legend = (
        "  ● failed it   w warned   · passed   i incomplete   p property   blank: not applicable"
    )
    console.print(Text(legend, style="dim"))


def _head(title: str, letters: Mapping[str, str], joint: str) -> Text:
    head = Text(title.ljust(_NAME_WIDTH + 3), style="bold cyan")
    head.append(joint.join(letters.values()), style="dim")
    return head


def _line(result: MutantResult, letters: Mapping[str, str], joint: str) -> Text:
    """A kernel's line; `joint` separates the cells."""
    name = short_name(result)
    name = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
    alarms = is_bad(result)
    line = Text("! " if alarms else "  ", style="bold red")
    line.append(f"{name:<{_NAME_WIDTH}} ", style="bold red" if alarms else "")
    for cell in cells_of(result, letters):
        line.append(CELLS[cell] + joint, style=_STYLES[cell])
    if alarms:
        line.append(f" {verdict_word(result)}".removeprefix(joint), style="bold red")
    return line


def _print_score(matrix: KillMatrix, console: Console) -> None:
    console.print()
    for line in score_lines(matrix):
        bad = ("survivor", "false alarm", "did not")
        style = "bold red" if line.removeprefix("unseen ").startswith(bad) else ""
        console.print(Text(printable(line), style=style))


def _print_rivals(matrix: KillMatrix, console: Console) -> None:
    if not matrix.rivals:
        return
    console.print()
    table = RichTable.grid(padding=(0, 2, 0, 0))
    table.add_column()
    for _ in range(3):
        table.add_column(justify="right")
    table.add_row(
        Text("What other checks let through", style="bold cyan"),
        *(Text(text, style="dim") for text in ("mutants", "wrong at once", "correct flagged")),
    )
    for name, score in matrix.rivals.items():
        table.add_row(
            f"  {name}",
            f"{len(score.let_through)} of {score.judged}",
            f"{len(score.wrong_let_through)} of {score.wrong_judged}",
            f"{len(score.false_alarms)} of {score.correct_judged}",
        )
    console.print(table)
    about = "  run on each mutant's first result; crashes and hangs left none"
    console.print(Text(about, style="dim"))


def _print_not_run(matrix: KillMatrix, console: Console) -> None:
    if not matrix.not_run:
        return
    console.print()
    console.print(Text(f"Not run: {len(matrix.not_run)}", style="bold cyan"))
    reasons: dict[str, list[NotRun]] = {}
    for item in matrix.not_run:
        reasons.setdefault(first_line(item.reason), []).append(item)
    for reason, items in reasons.items():
        bugs = Counter(item.carrier for item in items if item.is_bug)
        right = sum(not item.is_bug for item in items)
        what = [counted(n, f"{v} mutant") if v else f"{n} without a kernel"
                for v, n in bugs.items()]  # fmt: skip
        what += [f"{right} correct"] if right else []
        console.print(Text(f"  {', '.join(what)}: {reason}"))


def _not_run_document(item: NotRun) -> dict[str, Any]:
    return {
        "number": item.number,
        "name": item.name or None,
        "vehicle": item.carrier or None,
        "is_bug": item.is_bug,
        "reason": item.reason,
        "is_broken": item.is_broken,
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


def _table(matrix: KillMatrix) -> Table:
    columns = (
        Column("number", ColumnType.INTEGER),
        *map(Column, ("name", "vehicle", "device", "operation", "bug")),
        Column("is_bug", ColumnType.BOOLEAN),
        *map(Column, ("outcome", "verdict", "killed_by", *matrix.checks)),
        *(Column(f"let through by {name}", ColumnType.BOOLEAN) for name in matrix.rivals),
        Column("reason"),
    )
    results = (*matrix.results, *(matrix.unseen.results if matrix.unseen else ()))
    return Table.from_records(
        "kill matrix", columns, [_flat_row(result, matrix) for result in results]
    )


def _flat_row(result: MutantResult, matrix: KillMatrix) -> dict[str, Any]:
    document = _result_document(result)
    cells = result.cells
    keys = ("number", "name", "vehicle", "device", "operation", "bug", "is_bug", "outcome")
    return {
        **{key: document[key] for key in keys},
        "verdict": verdict_word(result).lower(),
        "killed_by": ", ".join(result.killed_by),
        **{check: cells.get(check, "") for check in matrix.checks},
        **{
            f"let through by {name}": result.record.verdict.rivals.get(name)
            for name in matrix.rivals
        },
        "reason": "" if result.record.outcome is Outcome.OK else reason_line(result.record),
    }
