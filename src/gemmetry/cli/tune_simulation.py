"""``gemmetry tune --simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gemmetry.cli.console import say

_SPACE = "space"


def simulate_strategies(
    source: Path,
    strategies: str,
    budgets: str,
    runs: int,
    outputs: Sequence[Path],
    format_name: str | None,
    *,
    as_json: bool,
) -> None:
    """Compare strategies on a stored exhaustive search, or write that as a compact file.

    Raises:
        RequestError: the search or an option cannot be read.
    """
    from gemmetry.cli.console import note
    from gemmetry.cli.tables import check_outputs, emit
    from gemmetry.domain.errors import UnknownNameError
    from gemmetry.domain.units import counted
    from gemmetry.reports.tables.files import write_atomically
    from gemmetry.tuning.documents import simulation_table
    from gemmetry.tuning.simulation import BUDGETS, simulate
    from gemmetry.tuning.stored import compact, open_space
    from gemmetry.tuning.strategy import STRATEGIES, parse_shares

    if format_name not in (None, "table", _SPACE):
        raise UnknownNameError("format of a simulation", str(format_name), ("table", _SPACE))
    check_outputs(outputs, (".json",) if format_name == _SPACE else ())
    space = open_space(source)
    if format_name == _SPACE:
        for path in outputs:
            write_atomically(path, compact(space))
            note(f"wrote {path}")
        return
    measured = space.measured()
    if space.partial_strategy:
        note(
            f"note: {source} is a search by the strategy {space.partial_strategy}, which does not "
            "try all configurations: its best may not be the best there is"
        )
    names = strategies.replace(",", " ").split() or list(STRATEGIES)
    shares = simulate(measured, names, parse_shares(budgets) if budgets else BUDGETS, runs)
    if not as_json:
        count = sum(len(one.space) for one in measured)
        say(
            f"{space.provider} on {space.device or space.target}: "
            f"{counted(len(measured), 'shape')}, {count} configurations "
            f"{'that it tried' if space.partial_strategy else 'in all'}, "
            f"{counted(runs, 'run')} of each strategy"
        )
    emit(simulation_table(shares), as_json=as_json, outputs=outputs)
