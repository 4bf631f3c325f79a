"""Prints ``docs/diagnosis-rules.md``, the verdicts and rules of a diagnosis of hardware counters,
from the declarations of the rules.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gemmetry.counters.catalogue import concept_of
from gemmetry.counters.facts import UNITS
from gemmetry.counters.model import Gate, Rule, all_rules
from gemmetry.counters.rules.limits import LIKELY
from gemmetry.results.tables import escape_markdown as escape

_HEAD = """\
# Rules of the diagnosis

This page is generated: `python docs/generate/diagnosis_rules.py > docs/diagnosis-rules.md`.

[Diagnose counters](diagnosis.md) explains how the rules work together. The gates come in the order
of this page; the verdict is from the first one that finds something, and costs explain it.

## Verdicts

`verdict.id` is one of these:

| id | meaning |
|---|---|
"""
_TITLES = {
    Gate.VALIDITY: "Can the counters mean anything?",
    Gate.WORK: "Did the kernel do the work that was described?",
    Gate.ROOF: "Is a unit at its limit?",
    Gate.GRID: "Do multiprocessors have work?",
    Gate.NEAR_ROOF: "Is a unit near its limit?",
    Gate.LATENCY: "What do warps wait for?",
    Gate.COST: "Which costs explain the limit?",
}


def rules_page() -> str:
    """The whole page as Markdown."""
    rules = all_rules()
    limits = [rule for rule in rules if rule.gate is not Gate.COST]
    costs = [rule for rule in rules if rule.gate is Gate.COST]
    parts = [
        _HEAD,
        _meanings(limits),
        "\nFindings that are no verdicts, but can be the cause of one:\n\n"
        "| id | meaning |\n|---|---|\n",
        _meanings(costs),
        "\n## Units\n\nA unit is as busy as the busiest of its metrics, each as "
        "`….avg.pct_of_peak_sustained_elapsed`. Near its limit,\nstalls at its queue support it, "
        f"and from {LIKELY:.0f} % waits for its results, too.\n\n"
        "| unit | verdict | metrics | stalls at its queue | waits for its results |\n"
        "|---|---|---|---|---|\n",
        *(
            f"| {escape(unit.name)} | `{unit.verdict}` | "
            f"{' | '.join(map(_names, (unit.metrics, unit.queues, unit.waits)))} |\n"
            for unit in UNITS.values()
        ),
    ]
    for gate, title in _TITLES.items():
        parts.append(f"\n## {title}\n")
        parts += [_rule(rule) for rule in rules if rule.gate is gate]
    return "".join(parts)


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _meanings(rules: list[Rule]) -> str:
    rows = {name: text for rule in rules for name, text in rule.verdicts.items()}
    return "".join(f"| `{name}` | {escape(text)} |\n" for name, text in rows.items())


def _rule(rule: Rule) -> str:
    summary = (rule.judge.__doc__ or "").strip()
    needs = "".join(f"  - `{name}`: {escape(concept_of(name).meaning)}\n" for name in rule.needs)
    return (
        f"\n### `{rule.judge.__name__}`\n\n{escape(summary)}\n\n"
        f"- threshold: {escape(rule.threshold)}\n"
        f"- source of the threshold: {escape(rule.threshold_source)}\n"
        + (f"- it looks at:\n{needs}" if needs else "")
    )


if __name__ == "__main__":
    sys.stdout.write(rules_page())
