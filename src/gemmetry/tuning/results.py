"""Results of a search: the fastest configuration of each shape, next to the baselines; its tables,
JSON and sentences, and its files, whose suffix picks the format unless it is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from gemmetry.dispatches.analysis import fastest, geometric_mean, is_of_baseline, record_id
from gemmetry.dispatches.comparison import compare_with_baseline
from gemmetry.domain.contracts import TunedDispatch, TunedFormat
from gemmetry.domain.dispatch import Dispatch, parse_operation, parse_target
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.operation import Operation
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.rows import SCHEMA_VERSION
from gemmetry.domain.tables import Column, ColumnType, Direction, Table
from gemmetry.domain.units import format_ns, format_percent, plural
from gemmetry.providers.base import builtin_names, traits_of
from gemmetry.providers.registry import load_provider
from gemmetry.results.emit import FORMATS as TABLE_FORMATS
from gemmetry.results.emit import check_library, check_writable, write_atomically, write_tables
from gemmetry.statistics.comparison import Comparison, Difference
from gemmetry.tuning.search import SearchHistory, SearchSpace
from gemmetry.tuning.simulation import SimulatedShare, median_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstBaseline:
    """The winner of a shape compared with a baseline."""

    baseline: str
    """``provider:configuration``."""
    record: Record | None
    """Record; None where the baseline has no correct result."""
    comparison: Comparison | None
    """Comparison of the winner with the baseline, all shapes judged together; None where too little
    was measured for one."""
    is_winner: bool = False
    """Whether the winner is the baseline."""

    @property
    def verdict(self) -> str:
        """One of :class:`Difference`, or why there is none."""
        if self.record is None:
            return "no baseline"
        if self.is_winner:
            return "the baseline"
        return str(self.comparison.verdict if self.comparison else Difference.UNDECIDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeTuning:
    """Result of the search for one operation."""

    operation: str
    space: int = 0
    """Configurations that there are."""
    tried: int = 0
    failed: int = 0
    """Number of tried configurations that failed or were wrong."""
    evaluations: float = 0.0
    """Cost of the search, short trials in proportion."""
    winner: Record | None = None
    reason: str = ""
    """Reason why there is no winner."""
    ties: tuple[Record, ...] = ()
    """Other finalists that are not shown to be slower than the winner."""
    against: tuple[AgainstBaseline, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """All shapes, in the order of the request."""

    provider: str
    strategy: str
    limit: str
    seed: int
    baselines: tuple[str, ...]
    shapes: tuple[ShapeTuning, ...]
    is_complete: bool
    """Whether the search came to its end."""
    device: str = ""
    """Product of the finals' device."""
    experiment: Path | None = None
    """Folder of the finals; None where there were none."""
    proofs: Path | None = None
    """Folder of the verifications at level standard; None where the finals have them."""


def judge(
    results: ResultSet, *, provider: str, operations: Sequence[Operation], baselines: Sequence[str]
) -> dict[str, ShapeTuning]:
    """The winner of each operation that has one: the correct configuration with the shortest median
    in the finals, which were measured in turns with the baselines.

    Args:
        results: the finals.
        provider: whose configurations compete.
        baselines: ``provider:configuration`` of each.
    """
    right = [record for record in results.records if median_of(record) is not None]
    winners: dict[str, Record] = {}
    for name in map(str, operations):
        own = (r for r in right if r.operation == name and r.provider == provider)
        if best := fastest(own):
            winners[name] = best
    compared = [_against(results, right, winners, baseline) for baseline in baselines]
    return {
        name: ShapeTuning(
            operation=name,
            winner=winner,
            ties=_ties(results, right, winner),
            against=tuple(found[name] for found in compared),
        )
        for name, winner in winners.items()
    }


def _against(
    results: ResultSet, right: Sequence[Record], winners: Mapping[str, Record], baseline: str
) -> dict[str, AgainstBaseline]:
    """The winners compared with a baseline. All finalists are in the family of comparisons, as the
    winners were chosen by the same times."""
    base = {r.operation: r for r in right if is_of_baseline(r, baseline)}
    providers = {record.provider for record in winners.values()}
    rivals = [r for r in right if r.operation in base and r.provider in providers]
    verdicts: dict[object, Comparison] = {}
    if base and rivals:
        records = list({record_id(r): r for r in (*base.values(), *rivals)}.values())
        (found,) = compare_with_baseline(replace(results, records=records), baseline).candidates
        verdicts = {record_id(c.after): c.comparison for c in found.changes if c.comparison}
    return {
        name: AgainstBaseline(
            baseline=baseline,
            record=base.get(name),
            comparison=verdicts.get(record_id(winner)),
            is_winner=is_of_baseline(winner, baseline),
        )
        for name, winner in winners.items()
    }


def _ties(results: ResultSet, right: Sequence[Record], winner: Record) -> tuple[Record, ...]:
    key = winner.operation, winner.provider
    own = [record for record in right if (record.operation, record.provider) == key]
    if len(own) < 2:
        return ()
    name = f"{winner.provider}:{winner.configuration}"
    (found,) = compare_with_baseline(replace(results, records=own), name).candidates
    return tuple(one.after for one in found.changes if one.difference is not Difference.SLOWER)


def with_search(
    judged: Mapping[str, ShapeTuning],
    spaces: Sequence[SearchSpace],
    history: SearchHistory,
    refusals: Mapping[str, str],
    *,
    has_finals: bool,
) -> tuple[ShapeTuning, ...]:
    """The shapes with what the search of each cost, and why those without a winner have none.

    Args:
        refusals: operation -> why its space is empty.
        has_finals: whether finalists were measured.
    """
    found = []
    for index, space in enumerate(spaces):
        name = str(space.operation)
        tried, failed = history.count(index), history.failed(index)
        if name in refusals:
            reason = refusals[name]
        elif not tried:
            reason = "the time ended before one was tried"
        elif failed == tried:
            reason = f"none of the {tried} that were tried worked"
        elif not has_finals:
            reason = "there were no finals"
        else:
            reason = "no finalist passed the verification at level standard"
        known = judged.get(name) or ShapeTuning(operation=name, reason=reason)
        cost = history.cost(index)
        found.append(replace(known, space=len(space), tried=tried, failed=failed, evaluations=cost))
    return tuple(found)


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
    rows = (row for shape in found.shapes for row in _rows(shape))
    table = Table.from_records("winners", _COLUMNS, rows)
    if not shown:
        return table
    # A single baseline is named below the table; the width goes to the configurations.
    left_out = "baseline" if len(found.baselines) == 1 else ""
    return table.select([name for name in _SHOWN if name != left_out])


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
    for one in shape.against or (None,):
        record, found = (one.record, one.comparison) if one else (None, None)
        low, high = (found.ratio_low, found.ratio_high) if found else (None, None)
        yield {
            **head,
            "baseline": one.baseline if one else None,
            "baseline_ns": record.measurement.median_ns if record and record.measurement else None,
            "speed": 1 / found.ratio if found else None,
            "speed_low": 1 / high if high else None,
            "speed_high": 1 / low if low else None,
            "verdict": one.verdict if one else None,
            "reason": shape.reason or None,
        }


def tuning_document(found: TuningResult) -> dict[str, Any]:
    """A search as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
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
    """Name of each baseline, number of measured shapes, geometric mean of the speeds, and shapes by
    verdict."""
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
            yield f"On {plural(own, 'shape')} {name} itself is the fastest that was tried."
        if mean is None:
            if not own:
                yield f"{name}: no shape has both a winner and this baseline"
            continue
        words = (f"{count} {word}" for word, count in counts.items() if count)
        shown = ", ".join(words).replace("_", " ")
        yield (
            f"Compared with {name}, the winners' speed is {mean:.3f}x in the geometric mean of "
            f"{plural(shapes, 'shape')}: {shown}."
        )
    tied = sum(bool(one.ties) for one in found.shapes)
    if tied:
        yield (
            f"On {plural(tied, 'shape')} other finalists are not shown to be slower than the "
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
    return Table("strategies", columns, [[*astuple(one)[:-1], min(one.by_shape)] for one in shares])


TABLE = "table"


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format of files."""

    suffixes: tuple[str, ...]
    content: Callable[[TuningResult, str], str]
    """Function of the result and the file's suffix."""
    provider: str = ""
    """The only provider whose configurations the format can hold; "": any."""


def _dispatcher(found: TuningResult, _suffix: str) -> str:
    from gemmetry.engine.experiment import Experiment
    from gemmetry.tuning.dispatcher.building import build_table
    from gemmetry.tuning.dispatcher.table import table_text

    if found.experiment is None:
        raise RequestError(
            "there are no finals from which a table could be made",
            hint="Let the search run to its end.",
        )
    folders = filter(None, (found.experiment, found.proofs))
    with ExitStack() as stack:
        sets = [stack.enter_context(Experiment.open(one)).result_set() for one in folders]
        return table_text(build_table(sets, load_provider).table)


def _owned(provider: str, form: TunedFormat, found: TuningResult, suffix: str) -> str:
    """A provider's own format: of the winners, or of the baseline."""
    shapes = []
    for shape in found.shapes:
        records = [shape.winner, *shape.ties]
        if found.provider != provider:
            records = [one.record for one in shape.against]
        own = (one for one in records if one is not None and one.provider == provider)
        shapes.append([tuned for record in own for tuned in _tuned(record)])
    write: Callable[..., str] = import_module(form.module).tuned_text
    return write([one for one in shapes if one], found.device, suffix)


def _tuned(record: Record) -> Iterator[TunedDispatch]:
    operation, target = parse_operation(record.operation), parse_target(record.target)
    provider = load_provider(record.provider)
    configuration = provider.parse_configuration(record.configuration, operation, target)
    median = median_of(record)
    if configuration is not None and median is not None:
        dispatch = Dispatch(operation, configuration, record.provider, target)
        yield TunedDispatch(dispatch=dispatch, median_ns=median)


def export_formats() -> dict[str, ExportFormat]:
    """Name -> format. A suffix selects the first format that has it; other suffixes, and all with
    the format ``table``, are those of tables."""
    found = {
        "dispatcher": ExportFormat((".json",), _dispatcher),
        "results": ExportFormat(
            (".json",), lambda found, _: json.dumps(tuning_document(found), indent=1) + "\n"
        ),
    }
    for provider in builtin_names():
        for form in traits_of(provider).tuned_formats:
            owner = "" if traits_of(provider).baseline_rank is not None else provider
            found[form.name] = ExportFormat(form.suffixes, partial(_owned, provider, form), owner)
    return found


def check_exports(paths: Sequence[Path], name: str | None, provider: str) -> None:
    """Refuse, before anything runs, files that could not be written after it.

    Args:
        name: the format; None: by suffix.
        provider: whose configurations are tuned.

    Raises:
        UnknownNameError: there is no such format.
        RequestError: it does not go with a suffix or with the provider; a library is missing.
        StorageError: a file cannot be written.
    """
    if name is not None and name not in (known := (*export_formats(), TABLE)):
        raise UnknownNameError("format of tuned configurations", name, known)
    for path in paths:
        chosen = _format_of(path, name)
        if chosen is None:
            check_library(path.suffix.lower())
        elif chosen.provider and chosen.provider != provider:
            raise RequestError(
                f"{path} would hold configurations of {chosen.provider}, not of {provider}",
                hint="Write a table of the dispatcher (.json), or --format results.",
            )
        check_writable(path)


def _format_of(path: Path, name: str | None) -> ExportFormat | None:
    """The format of a file; None for a table.

    Raises:
        RequestError: its suffix is not one of the format, or of no format.
    """
    suffix = path.suffix.lower()
    known = export_formats()
    if name is None:
        found = next((one for one in known.values() if suffix in one.suffixes), None)
        suffixes = [end for one in known.values() for end in one.suffixes] + [*TABLE_FORMATS]
    else:
        found = known.get(name)
        suffixes = list(found.suffixes if found else TABLE_FORMATS)
    if suffix not in suffixes:
        raise RequestError(
            f"unknown format of {path}: unknown suffix {path.suffix!r}",
            hint=f"Give a name that ends in one of {', '.join(dict.fromkeys(suffixes))}.",
        )
    return found


def export(found: TuningResult, path: Path, name: str | None) -> None:
    """Write what a search found.

    Raises:
        RequestError: the format cannot hold it. StorageError: the file cannot be written.
    """
    chosen = _format_of(path, name)
    if chosen is None:
        write_tables([winner_table(found)], path)
    else:
        write_atomically(path, chosen.content(found, path.suffix.lower()).encode())
