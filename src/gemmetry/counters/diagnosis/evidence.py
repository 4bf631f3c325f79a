"""Numbers that findings rest on, and how they are combined."""

from __future__ import annotations

from gemmetry.counters.catalogue import Reading
from gemmetry.counters.diagnosis.model import CounterEvidence

COUNTER = "counter"
"""Source of evidence that the report contains as it is."""


def evidence_of(reading: Reading) -> CounterEvidence:
    """A value of the catalogue as evidence."""
    is_plain = " " not in reading.metric
    name = reading.metric if is_plain else reading.concept.name
    return CounterEvidence(
        name, reading.value, reading.unit, COUNTER if is_plain else reading.metric
    )


def share_of(
    name: str, part: CounterEvidence | None, whole: CounterEvidence | None
) -> CounterEvidence | None:
    """`part` of `whole` in percent; None where one is missing or `whole` is zero."""
    if part is None or whole is None or whole.value <= 0:
        return None
    return CounterEvidence(
        name, 100 * part.value / whole.value, "%", f"{term(part)} ÷ {term(whole)}"
    )


def percent(share: float) -> str:
    """A share from 0 to 1 in whole percent."""
    return f"{100 * share:.0f} %"


def term(value: CounterEvidence) -> str:
    """`value` as a part of a formula."""
    return value.metric if value.source == COUNTER else f"({value.source})"


def without(share: CounterEvidence) -> str:
    """How much less is left without a share in percent; of the last percent, counts of different
    passes show no more than that it is less."""
    rest = 100 - share.value
    return "more than 100×" if rest < 1 else f"at most {100 / rest:.3g}×"
