"""``--dry-run``: the contents of a plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from gemmetry.cli.console import print_json, say
from gemmetry.domain.columns import SCHEMA_VERSION
from gemmetry.domain.settings import LOCAL

if TYPE_CHECKING:
    from gemmetry.api.profile import Prepared

_SHOWN = 20


def print_plan(prepared: Prepared, *, as_json: bool) -> None:
    """Print the counts of a plan and its first dispatches; nothing is run or written."""
    from gemmetry.api.listing import list_dispatches
    from gemmetry.cli.requests import warn_of_idle_patterns

    counts: Counter[tuple[str, str]] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    operations: Counter[str] = Counter()
    first: list[str] = []
    for dispatch in list_dispatches(prepared.plan):
        lane = (dispatch.provider, dispatch.target.name)
        counts[lane] += 1
        operations[dispatch.operation] += 1
        refused[lane] += bool(dispatch.refusal)
        if len(first) < _SHOWN:
            text = f"  unsupported: {dispatch.refusal}" if dispatch.refusal else ""
            first.append(f"{dispatch.provider}:{dispatch.name}{text}")
    warn_of_idle_patterns(prepared)
    total = sum(counts.values())
    if as_json:
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "plan_hash": prepared.plan.hash,
            "experiment": str(prepared.experiment),
            "dispatches": total,
            "operations": len(operations),
            "providers": [
                {"provider": provider, "target": target, "dispatches": count,
                 "unsupported": refused[provider, target]}
                for (provider, target), count in counts.items()
            ],
            "plan": prepared.plan.document,
        }  # fmt: skip
        print_json(document)
        return
    dispatches = "dispatch" if total == 1 else "dispatches"
    kinds = "operation" if len(operations) == 1 else "operations"
    say(f"{total} {dispatches} of {len(operations)} {kinds} would run:")
    for (provider, target), count in counts.items():
        missing = refused[provider, target]
        text = f" ({missing} unsupported)" if missing else ""
        say(f"  {provider} on {target}: {count}{text}")
    executor = prepared.plan.settings.executor
    if executor != LOCAL:
        say(
            f"  The agents of the executor {executor} decide whether they have the devices and "
            "libraries for this."
        )
    for line in first:
        say(f"    {line}")
    if total > len(first):
        say(f"    ... and {total - len(first)} more")
    say(f"experiment: {prepared.experiment}")
