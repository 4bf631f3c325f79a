"""Names of mutants and lines of their score, for terminals and pages."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gemmetry.analysis.dispatches.kill_matrix import (
    FAILED,
    INCOMPLETE,
    NOT_APPLICABLE,
    PASSED,
    PROPERTY,
    WARNED,
    KillMatrix,
    MutantResult,
)
from gemmetry.reports.labels import reason_line
from gemmetry.reports.texts import first_line

CELLS = {
    FAILED: "●", WARNED: "w", PASSED: "·", INCOMPLETE: "i", PROPERTY: "p", NOT_APPLICABLE: " "
}  # fmt: skip
"""The result of a check -> its character."""


def letters_of(checks: Sequence[str]) -> dict[str, str]:
    """Check -> the letter that heads its column."""
    return dict(zip(checks, string.ascii_letters, strict=False))


def cells_of(result: MutantResult, letters: Mapping[str, str]) -> list[str]:
    cells = result.cells
    return [cells.get(check, NOT_APPLICABLE) for check in letters]


def is_bad(result: MutantResult) -> bool:
    return not result.is_killed if result.mutant.is_bug else result.is_flagged


def verdict_word(result: MutantResult) -> str:
    if result.mutant.is_bug:
        return "killed" if result.is_killed else "SURVIVES"
    return "FALSE ALARM" if result.is_flagged else "passes"


def short_name(result: MutantResult) -> str:
    """``m05 k tail dropped``, followed by the carrier unless it is the host."""
    stem, _, carrier = result.name.rpartition("_")
    name = stem.replace("_", " ")
    return name if carrier == "host" else f"{name} [{carrier}]"


def score_lines(matrix: KillMatrix) -> Iterator[str]:
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
    for result in matrix.false_alarms:
        why = reason_line(result.record) or first_line(result.record.verdict.reason)
        yield f"false alarm: {result.name}: {why}"
    unplanned = [r for r in matrix.mutants if r.is_killed and not r.is_killed_as_planned]
    for result in unplanned:
        how = ", ".join(result.killed_by) or str(result.record.outcome)
        yield (
            f"killed by {how}, not by {' or '.join(result.mutant.killed_by)} as planned: "
            f"{result.name}"
        )
    for item in matrix.broken:
        yield f"did not run: {item.name}: {first_line(item.reason)}"
    if matrix.unseen:
        yield from _unseen_lines(matrix.unseen)


def _unseen_lines(matrix: KillMatrix) -> Iterator[str]:
    yield (
        f"unseen: killed {matrix.mutants_killed} of {matrix.mutants_total}; "
        f"correct kernels flagged: {len(matrix.false_alarms)} of {matrix.correct_total}"
    )
    for result in matrix.survivors:
        yield f"unseen survivor: {result.name}: {result.mutant.bug}"
    for result in matrix.false_alarms:
        why = reason_line(result.record) or first_line(result.record.verdict.reason)
        yield f"unseen false alarm: {result.name}: {why}"
