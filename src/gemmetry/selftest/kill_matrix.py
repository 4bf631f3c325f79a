"""Scores verification by mutants: which check killed which mutant, and which mutants
survived.

A *mutant* is a kernel with a deliberate bug; it is killed when its dispatch does not end as ``ok``
(wrong, crashed, hung, rejected), because then no time of it is reported. A kernel that is right but
unusual must pass; otherwise it is a *false alarm*. The share of mutants killed is the mutation
score (Jia & Harman, "An Analysis and Survey of the Development of Mutation Testing", IEEE TSE
37(5), 2011).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gemmetry.domain.errors import Outcome, Verification
from gemmetry.domain.record import Record
from gemmetry.providers.mutant_provider.mutant import Mutant

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
        """Its configuration."""
        return self.mutant.configuration

    @property
    def cells(self) -> dict[str, str]:
        """Check -> ``passed``, ``warned``, ``failed`` or ``not applicable``; an outcome that ended
        it without a check counts as ``failed`` under its own name."""
        checks = {
            check: text.partition(":")[0] for check, text in self.record.verdict.checks.items()
        }
        if self.record.outcome in ENDINGS:
            checks[str(self.record.outcome)] = FAILED
        return checks

    @property
    def killed_by(self) -> tuple[str, ...]:
        """The checks that failed, and the outcome that ended it without a check."""
        return tuple(check for check, cell in self.cells.items() if cell == FAILED)

    @property
    def is_wrong_at_once(self) -> bool:
        """Whether the first result has a wrong element."""
        return bool(_OF_THE_FIRST_RESULT & set(self.killed_by))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """A kernel of the catalogue that did not run here, or a bug of the list without a kernel."""

    number: int
    name: str
    """Name of the configuration; "" if the bug has no kernel."""
    carrier: str
    is_bug: bool
    reason: str
    is_broken: bool = False
    """True if it was in the plan but left no verdict."""


@dataclass(frozen=True, slots=True)
class RivalScore:
    """How another harness's check judges the same results."""

    judged: int
    """Number of mutants that left a result to judge."""
    let_through: tuple[str, ...]
    wrong_judged: int
    """Number of those whose very first result is wrong; the others need another shape, input or
    launch to show their bug, which these harnesses do not try."""
    wrong_let_through: tuple[str, ...]
    correct_judged: int
    false_alarms: tuple[str, ...]


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
        results = [*self.results, *(self.unseen.results if self.unseen else ())]
        for result in results:
            position = 0
            for check in result.record.verdict.checks:
                if check in ordered:
                    position = ordered.index(check) + 1
                else:
                    ordered.insert(position, check)
                    position += 1
        endings = {str(r.record.outcome) for r in results if r.record.outcome in ENDINGS}
        return (*ordered, *(str(ending) for ending in ENDINGS if ending in endings))

    @cached_property
    def kills(self) -> dict[str, int]:
        """Check -> mutants that it killed, alone or together with others."""
        return {
            check: sum(check in result.killed_by for result in self.mutants)
            for check in self.checks
        }

    @cached_property
    def sole_kills(self) -> dict[str, int]:
        """Check -> mutants that no other check killed."""
        return {
            check: sum(result.killed_by == (check,) for result in self.mutants)
            for check in self.checks
        }

    @cached_property
    def rivals(self) -> dict[str, RivalScore]:
        """How the check of each other harness judges the results, by its name."""
        names = dict.fromkeys(name for r in self.results for name in r.record.verdict.rivals)
        return {name: _rival_score(name, self.mutants, self.correct) for name in names}


def kill_matrix(
    catalogue: Iterable[Mutant],
    records: Iterable[Record],
    *,
    absent: Mapping[str, str] | None = None,
    without_mutant: Mapping[int, str] | None = None,
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
    by_configuration: dict[str, list[Record]] = {}
    for record in records:
        by_configuration.setdefault(record.configuration, []).append(record)
    results: list[MutantResult] = []
    not_run: list[NotRun] = []
    for item in catalogue:
        found = by_configuration.get(item.configuration, [])
        ran = [record for record in found if record.outcome not in NOT_RUN]
        results += [MutantResult(item, record) for record in ran]
        if not ran:
            not_run.append(_without_result(item, found, (absent or {}).get(item.configuration)))
    unusable = _unusable(results)
    not_run += [
        _not_run(result.mutant, _why_unusable(result))
        for result in results
        if _place(result) in unusable
    ]
    results = [result for result in results if _place(result) not in unusable]
    not_run += [
        NotRun(number=number, name="", carrier="", is_bug=True, reason=reason)
        for number, reason in (without_mutant or {}).items()
    ]
    unseen = [result for result in results if result.mutant.is_unseen]
    seen = [result for result in results if not result.mutant.is_unseen]
    return KillMatrix(seen, not_run, KillMatrix(unseen) if unseen else None)


def _place(result: MutantResult) -> tuple[str, str]:
    return str(result.mutant.carrier), result.record.device


def _unusable(results: Iterable[MutantResult]) -> set[tuple[str, str]]:
    """(carrier, device) pairs for which mutants and right kernels alike ended without a check."""
    kinds: dict[tuple[str, str], set[bool]] = {}
    reached: set[tuple[str, str]] = set()
    for result in results:
        kinds.setdefault(_place(result), set()).add(result.mutant.is_bug)
        if result.record.verdict.checks or result.record.outcome not in ENDINGS:
            reached.add(_place(result))
    return {place for place, of in kinds.items() if len(of) == 2 and place not in reached}


def _why_unusable(result: MutantResult) -> str:
    carrier, device = _place(result)
    reason = result.record.reason
    return f"{carrier} does not work on {device}, correct kernels fail as well: {reason}"


def _without_result(item: Mutant, found: Sequence[Record], absent: str | None) -> NotRun:
    if found:
        return _not_run(item, f"{found[0].outcome}: {found[0].reason}")
    if absent is not None:
        return _not_run(item, absent, is_broken=False)
    return _not_run(item, "the run ended before this mutant; the same command continues")


def _not_run(item: Mutant, reason: str, *, is_broken: bool = True) -> NotRun:
    return NotRun(
        number=item.number,
        name=item.configuration,
        carrier=str(item.carrier),
        is_bug=item.is_bug,
        reason=reason,
        is_broken=is_broken,
    )


def _rival_score(
    name: str, mutants: Sequence[MutantResult], correct: Sequence[MutantResult]
) -> RivalScore:
    judged = [r for r in mutants if name in r.record.verdict.rivals]
    wrong = [r for r in judged if r.is_wrong_at_once]
    judged_correct = [r for r in correct if name in r.record.verdict.rivals]
    return RivalScore(
        judged=len(_names(judged)),
        let_through=_names(r for r in judged if r.record.verdict.rivals[name]),
        wrong_judged=len(_names(wrong)),
        wrong_let_through=_names(r for r in wrong if r.record.verdict.rivals[name]),
        correct_judged=len(_names(judged_correct)),
        false_alarms=_names(r for r in judged_correct if not r.record.verdict.rivals[name]),
    )


def _names(results: Iterable[MutantResult]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(result.name for result in results))
