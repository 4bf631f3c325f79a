"""The sentences that open a report: who is fastest, and what limits confidence in the run."""

from __future__ import annotations

from collections.abc import Sequence

from gemmetry.analysis.dispatches.leader import Leader
from gemmetry.analysis.dispatches.marks import DISTURBED, RunMarks
from gemmetry.domain.errors import alternatives
from gemmetry.domain.record import Record
from gemmetry.domain.units import counted, format_half_width
from gemmetry.reports.dispatches.failures import ran_and_failed
from gemmetry.reports.labels import format_ratio
from gemmetry.reports.texts import printable


def verdict_line(records: Sequence[Record], leader: Leader | None, marks: RunMarks) -> str:
    """One sentence: who is fastest on how many operations, on how many of them that is confirmed,
    the geometric mean, and how far to trust it; "" if nothing was measured."""
    measured = [record for record in records if record.measurement is not None]
    if not measured:
        return ""
    if leader is None:
        failed = sum(map(ran_and_failed, records))
        lost = f"; {counted(failed, 'dispatch', 'dispatches')} failed" if failed else ""
        return printable(f"Nothing to compare: {_alone(measured)}{lost}.")
    clauses = [_lead(leader), *_cautions(leader, marks)]
    return printable("; ".join(clauses)) + "."


def _alone(measured: Sequence[Record]) -> str:
    providers = sorted({record.provider for record in measured})
    if len(providers) > 1:
        return f"no operation was measured with two of {', '.join(providers)}"
    return f"only {providers[0]} was measured, with one configuration per operation"


def _lead(leader: Leader) -> str:
    all_of_them = f" that can be compared (of {leader.operations + leader.alone})"
    count_note = all_of_them if leader.alone else ""
    only = f"the only operation{count_note}"
    ratio = f"at {format_ratio(leader.ratio)} the speed of the best alternative"
    if leader.operations == 1:
        if leader.shown:
            return f"{leader.name} is fastest on {only}, {ratio}"
        unshown = _TOO_LITTLE if leader.undecided else _UNSHOWN
        return f"{leader.name} has the shortest time on {only}, {ratio}, {unshown}"
    mean = f"{ratio} by geometric mean"
    count = f"{leader.fastest} of {leader.operations} operations{count_note}"
    if leader.ratio < 1:
        return f"No single {'configuration' if leader.is_configuration else 'provider'} leads: " + (
            f"{leader.name} has the shortest time on {count}, no other on more, but {mean}"
        )
    if not leader.shown:
        unshown = (
            f"{_TOO_LITTLE} on {leader.undecided}" if leader.undecided else f"{_UNSHOWN} on any"
        )
        return f"{leader.name} has the shortest time on {count}, {mean}, {unshown}"
    every = leader.shown == leader.fastest
    shown = "all confirmed" if every else f"confirmed on {leader.shown}"
    if leader.undecided:
        shown += f", {leader.undecided} undecided"
    return f"{leader.name} is fastest on {count} ({shown}), {mean}"


_UNSHOWN = "but no difference is shown"
_TOO_LITTLE = "but too little was measured to decide"


def _cautions(leader: Leader, marks: RunMarks) -> list[str]:
    cautions = []
    if leader.unverified:
        none = leader.unverified == leader.operations
        cautions.append(f"{'none' if none else 'not all'} of its results were verified")
    if leader.imported:
        every = leader.imported == leader.operations
        cautions.append(f"{'' if every else 'some of '}the best alternatives were imported, and "
                        "not verified here")  # fmt: skip
    if leader.marked:
        one = leader.marked == 1
        of_them = "this" if leader.operations == 1 else f"{leader.marked} of them"
        cautions.append(f"{of_them} {'is' if one else 'are'} based on rows marked !")
    common = list(dict.fromkeys(kind for state in marks.states.values() for kind in state.common))
    if common:
        advice = _QUIET if DISTURBED.intersection(common) else "gemmetry show explains them"
        cautions.append(f"most rows are marked {alternatives(common)}: {advice}")
    elif (usual := _usual_width(marks)) is not None:
        cautions.append(f"the usual 95 % interval is {format_half_width(usual)}")
    return cautions


_QUIET = "repeat it on a quiet machine before relying on it"


def _usual_width(marks: RunMarks) -> float | None:
    """The usual relative half width on the device with the widest intervals."""
    widths = (state.usual_half_width for state in marks.states.values())
    return max((width for width in widths if width is not None), default=None)


def run_state_lines(marks: RunMarks, remarks: Sequence[str] = ()) -> list[str]:
    """The `remarks` on what is missing, and one line for each device whose rows share marks, with
    these marks and the usual interval."""
    lines = [printable(remark) for remark in remarks]
    for state in marks.states.values():
        if not state.common:
            continue
        (first, count), *others = state.common.items()
        kinds = "".join(f", {number} {kind}" for kind, number in others)
        place = f" on {state.device or state.target}" if len(marks.states) > 1 else ""
        width = state.usual_half_width
        usual = "" if width is None else f"; usual interval {format_half_width(width)}"
        lines.append(printable(
            f"The run as a whole{place}: {count} of {state.measured} rows {first}{kinds}{usual}; "
            "! marks rows that stand out from this"
        ))  # fmt: skip
    return lines
