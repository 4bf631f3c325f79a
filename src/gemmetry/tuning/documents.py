"""Tables and JSON of what a search found, and of how strategies do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gemmetry.dispatches.analysis import geometric_mean
from gemmetry.domain.tables import Column, ColumnType, Direction, Table
from gemmetry.domain.units import counted, format_ns, format_percent
from gemmetry.statistics.comparison import Difference
from gemmetry.tuning.results import AgainstBaseline, ShapeTuning, TuningResult
from gemmetry.tuning.simulation import SimulatedShare


def _number(name: str, what: str, **more: Any) -> Column:
    return Column(name, ColumnType.NUMBER, description=what, absent="–", **more)


def _speed(value: float) -> str:
    return f"{value:.3f}x"


_COLUMNS = (
    Column("operation", description="what is computed", required=True),
    Column("configuration", description="the fastest correct configuration", absent="–"),
    _number("median_ns", "its median", unit="ns", format=format_ns,
            direction=Direction.LOWER_IS_BETTER),
    _number("low_ns", "lower end of the 95 % interval of the median", unit="ns", format=format_ns),
    _number("high_ns", "upper end of it", unit="ns", format=format_ns),
    Column("space", ColumnType.INTEGER, description="configurations that there are"),
    Column("tried", ColumnType.INTEGER, description="configurations that were measured"),
    Column("failed", ColumnType.INTEGER, description="those of them that failed or were wrong"),
    _number("evaluations", "what the search cost, short trials in proportion",
            format=lambda value: f"{value:.4g}"),
    Column("ties", ColumnType.TEXTS,
           description="other finalists that are not shown to be slower"),
    Column("baseline", description="what it is compared with", absent="–"),
    _number("baseline_ns", "its median", unit="ns", format=format_ns),
    _number("speed", "speed relative to the baseline", format=_speed, heading="speed",
            direction=Direction.HIGHER_IS_BETTER),
    _number("speed_low", "lower end of its interval; all shapes hold together", format=_speed,
            heading="from"),
    _number("speed_high", "upper end of it", format=_speed, heading="to"),
    Column("verdict", description="what the interval shows", absent="–"),
    Column("reason", description="why there is no winner"),
)  # fmt: skip

_SHOWN = ("operation", "configuration", "median_ns", "tried", "baseline", "speed", "speed_low",
          "speed_high", "verdict", "reason")  # fmt: skip
"""Columns on a terminal."""


def winner_table(found: TuningResult, *, shown: bool = False) -> Table:
    """A row for each shape and baseline; a single one without a baseline or a winner.

    `shown`: with the columns for a terminal.
    """
    rows = [row for shape in found.shapes for row in _rows(shape)]
    table = Table("winners", _COLUMNS, [list(row.values()) for row in rows])
    if not shown:
        return table
    # A single baseline is named below the table; the width goes to the configurations.
    left_out = {"baseline"} if len(found.baselines) == 1 else set()
    columns = tuple(one for one in _COLUMNS if one.name in _SHOWN and one.name not in left_out)
    return Table("winners", columns, [[row[one.name] for one in columns] for row in rows])


def _rows(shape: ShapeTuning) -> Iterator[dict[str, Any]]:
    measured = shape.winner.measurement if shape.winner else None
    head: dict[str, Any] = {
        "operation": shape.operation,
        "configuration": shape.winner.configuration if shape.winner else None,
        "median_ns": measured.median_ns if measured else None,
        "low_ns": measured.ci_low_ns if measured else None,
        "high_ns": measured.ci_high_ns if measured else None,
        "space": shape.space,
        "tried": shape.tried,
        "failed": shape.failed,
        "evaluations": shape.evaluations,
        "ties": [record.configuration for record in shape.ties],
    }
    for against in shape.against or (None,):
        yield {**head, **_against(against), "reason": shape.reason or None}


def _against(one: AgainstBaseline | None) -> dict[str, Any]:
    record = one.record if one else None
    comparison = one.comparison if one else None
    median = record.measurement.median_ns if record and record.measurement else None
    low, high = (comparison.ratio_low, comparison.ratio_high) if comparison else (None, None)
    return {
        "baseline": one.baseline if one else None,
        "baseline_ns": median,
        "speed": 1 / comparison.ratio if comparison else None,
        "speed_low": 1 / high if high else None,
        "speed_high": 1 / low if low else None,
        "verdict": one.verdict if one else None,
    }


def tuning_document(found: TuningResult) -> dict[str, Any]:
    """A search as JSON."""
    return {
        "provider": found.provider,
        "strategy": found.strategy,
        "evaluations": found.limit,
        "seed": found.seed,
        "complete": found.is_complete,
        "baselines": list(found.baselines),
        "gains": [
            {"baseline": name, "shapes": shapes, "speed": mean, **counts}
            for name, shapes, mean, counts in _gains(found)
        ],
        "winners": winner_table(found).records(),
    }


def _gains(found: TuningResult) -> Iterator[tuple[str, int, float | None, dict[str, int]]]:
    """Of each baseline: on how many shapes it was measured, the geometric mean of the speeds, and
    how many shapes have each verdict."""
    for place, name in enumerate(found.baselines):
        against = [one.against[place] for one in found.shapes if one.against]
        speeds = [1 / one.comparison.ratio for one in against if one.comparison]
        counts = {
            str(verdict).replace(" ", "_"): sum(one.verdict == verdict for one in against)
            for verdict in Difference
        }
        yield name, len(speeds), geometric_mean(speeds), counts


def gain_lines(found: TuningResult) -> Iterator[str]:
    """Sentences about what was gained over each baseline, and about ties."""
    for place, (name, shapes, mean, counts) in enumerate(_gains(found)):
        own = sum(shape.against[place].is_winner for shape in found.shapes if shape.against)
        if own:
            yield f"On {counted(own, 'shape')} {name} itself is the fastest that was tried."
        if mean is None:
            if not own:
                yield f"{name}: no shape has both a winner and this baseline"
            continue
        shown = ", ".join(
            f"{count} {word.replace('_', ' ')}" for word, count in counts.items() if count
        )
        yield (
            f"Compared with {name}, the winners' speed is {mean:.3f}x in the geometric mean of "
            f"{counted(shapes, 'shape')}: {shown}."
        )
    tied = sum(bool(one.ties) for one in found.shapes)
    if tied:
        yield (
            f"On {counted(tied, 'shape')} other finalists are not shown to be slower than the "
            "winner: which of them is the fastest is undecided."
        )
    if not found.is_complete:
        yield "The search did not come to its end; the same command continues it."


def simulation_table(shares: Sequence[SimulatedShare]) -> Table:
    """A row for each strategy and budget."""

    def share(name: str, heading: str, what: str) -> Column:
        return Column(name, ColumnType.NUMBER, description=what, heading=heading,
                      format=lambda value: f"{100 * value:.2f} %",
                      direction=Direction.HIGHER_IS_BETTER)  # fmt: skip

    columns = (
        Column("strategy", required=True),
        Column("budget", ColumnType.NUMBER, format=format_percent,
               description="share of the evaluations of an exhaustive search"),
        Column("evaluations", ColumnType.NUMBER, format=lambda value: f"{value:.1f}",
               description="of a shape, on average"),
        share("mean", "best", "time of the exhaustive best over that of what was found: geometric "
              "mean over the shapes, mean over the seeds"),
        share("lowest", "lowest", "of the seeds"),
        share("highest", "highest", "of the seeds"),
        share("worst_shape", "worst shape", "geometric mean over the seeds of the shape on which "
              "it is the lowest"),
    )  # fmt: skip
    rows = [
        [one.strategy, one.budget, one.evaluations, one.mean, one.lowest, one.highest,
         min(one.by_shape)]
        for one in shares
    ]  # fmt: skip
    return Table("strategies", columns, rows)
