"""Results of a run: for scripts and notebooks, as tables, and as files of every format.

The console block and the CSV columns of the IREE dispatch profiler, for its users' scripts, follow
that tool, whose documentation shows the block, in names, order and values. What it cannot express,
such as convolutions or providers other than IREE, is written in the same style.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from gemmetry.dispatches.analysis import fastest, group_by_problem, grouped_by_speed
from gemmetry.dispatches.labels import NOT_RUN, Overview
from gemmetry.domain.columns import COLUMNS, COLUMNS_BY_NAME, SCHEMA_VERSION, RecordColumn, row
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import Outcome, RequestError, UnknownNameError, Verification
from gemmetry.domain.operation import Operation, OperationKind, operation_name
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.rows import value as json_value
from gemmetry.domain.tables import Column, ColumnType, Table, cell_text
from gemmetry.domain.units import plural
from gemmetry.providers.base import traits_of
from gemmetry.results import emit
from gemmetry.results.emit import Case, junit
from gemmetry.results.tables import (
    Looks,
    csv_text,
    frame,
    require,
    table_lines,
    workbook,
)
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.results.texts import first_line, printable

if TYPE_CHECKING:
    import pandas
    import polars

    from gemmetry.dispatches.comparison import ExperimentComparison


class Results(Sequence[Record]):
    """The records of one experiment, and views of them; a sequence of ``Record``.

    ``result_set`` holds the same with environments, raw samples and the command.
    """

    def __init__(self, result_set: ResultSet) -> None:
        self.result_set = result_set

    @property
    def records(self) -> Sequence[Record]:
        """One record per dispatch, in the plan's order."""
        return self.result_set.records

    @property
    def failures(self) -> list[Record]:
        """Records whose outcome is not ok; each has a ``reason``."""
        return [record for record in self.records if record.outcome is not Outcome.OK]

    def samples(self, record: Record) -> Sequence[float]:
        """The raw samples of `record`, in ns per launch, in the order they were taken."""
        return self.result_set.samples(record)

    def best(self) -> list[Record]:
        """The fastest ok dispatch of each operation (per target and distribution)."""
        found = (fastest(group) for group in group_by_problem(self.records).values())
        return [record for record in found if record is not None]

    def compare(
        self, *others: Results, allow_different_inputs: bool = False
    ) -> ExperimentComparison:
        """These results compared with `others`, dispatch by dispatch, with intervals and verdicts.

        Raises:
            RequestError: the input distributions differ and `allow_different_inputs` is false.
        """
        from gemmetry.dispatches.comparison import compare

        sets = [self.result_set, *(other.result_set for other in others)]
        return compare(sets, allow_different_inputs=allow_different_inputs)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict per record, with every column of docs/columns.md."""
        return [row(record) for record in self.records]

    def to_polars(self, columns: Sequence[str] | None = None) -> polars.DataFrame:
        """One row per record.

        Raises:
            RequestError: polars is not installed (extra ``analysis``).
            UnknownNameError: no such column.
        """
        return frame(record_table(self.records, columns))

    def to_pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """One row per record.

        Raises:
            RequestError: pandas, pyarrow or polars is not installed (extras ``pandas`` and
                ``analysis``).
            UnknownNameError: no such column.
        """
        require("pandas", extra="pandas")
        require("pyarrow", extra="pandas")
        made: pandas.DataFrame = self.to_polars(columns).to_pandas()
        return made

    def write(
        self,
        path: str | PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        append: bool = False,
    ) -> None:
        """Write to a file; its suffix picks csv, json, parquet, xlsx, md, html, xml, png or svg.

        Raises:
            RequestError: unknown suffix or column. StorageError: the file cannot be written.
        """
        write(self.result_set, Path(path), columns=columns, append=append)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __repr__(self) -> str:
        ok = len(self) - len(self.failures)
        count = plural(len(self), "dispatch", "dispatches")
        return f"<Results {self.result_set.title!r}: {count}, {ok} ok>"

    def _repr_html_(self) -> str:
        from gemmetry.dispatches.page import render_notebook_table

        return render_notebook_table(self.result_set)


def load(path: str | PathLike[str]) -> Results:
    """The results of the experiment in the folder `path`.

    Raises:
        RequestError: no experiment is there.
        JournalDamagedError: its database cannot be read.
    """
    from gemmetry.engine.experiment import Experiment

    return Results(Experiment.open(Path(path)).result_set())


_RULE = "-" * 64 + " "
"""The tool printed a space after the dashes; scripts may compare whole lines."""

_KINDS = {
    OperationKind.MATMUL: "OperationKind.Matmul",
    OperationKind.BATCH_MATMUL: "OperationKind.BatchMatmul",
    OperationKind.MATMUL_SPLITK: "OperationKind.SplitkMatmul",
    OperationKind.CONV2D: "OperationKind.Conv2d",
}


def format_block(records: Iterable[Record]) -> str:
    """The console block of every record, one after the other, ending in a newline.

    A record whose outcome is not ok gets one more line, ``Outcome``, with the reason.
    """
    return "".join(_block(record) for record in records)


def _block(record: Record) -> str:
    operation = parse_operation(record.operation)
    arguments = " ".join(f"--{key}={take(record, operation)}" for key, take in _ARGUMENTS.items())
    wrapped = textwrap.fill(arguments, width=80, subsequent_indent=" " * 16, break_on_hyphens=False)
    fields = {
        "Dispatch": record.dispatch,
        "Provider": _provider(record),
        "OpKind": _KINDS[operation.kind],
        "Operation": record.operation,
        "Configuration": record.configuration,
        "Arguments": wrapped,
        "Verification": _verification(record),
        "Runtime(ms)": _runtime_ms(record) or "Not profiled",
        "GFLOPs": _gflops(record) or "Not profiled",
    }
    if record.outcome is not Outcome.OK:
        fields["Outcome"] = f"{record.outcome}: {first_line(record.reason)}"
    lines = [_RULE, *(f"{name:<14}: {printable(text)}" for name, text in fields.items())]
    return "\n".join(lines) + "\n"


def _provider(record: Record) -> str:
    return traits_of(record.provider).legacy_label or record.provider


def _tile_columns(configuration: str) -> list[str]:
    """``tile_config_128x128_32x5_tensorcore_mmasync`` -> tile, core and instruction class."""
    parts = configuration.removeprefix("tile_config_").split("_")
    if configuration in ("default", "tile_config_default"):
        return ["Default", "Default", "Default"]
    if configuration.startswith("tile_config_") and len(parts) >= 4:
        return ["_".join(parts[:2]), parts[2], "_".join(parts[3:])]
    return [configuration, "N/A", "N/A"]


def _verification(record: Record) -> str:
    if record.verdict.status in (Verification.PASSED, Verification.WARNED):
        return "SUCCESS"
    return "FAILED" if record.verdict.status is Verification.FAILED else "Not verified"


def _runtime_ms(record: Record) -> str:
    """Milliseconds with at least three significant decimals; "" without a measurement."""
    if not record.median_ns:
        return ""
    ms = record.median_ns / 1e6
    whole, _, fraction = f"{ms:.{max(3, 3 - math.floor(math.log10(ms)))}f}".partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}"


def _gflops(record: Record) -> str:
    return "" if record.gflops is None else str(round(record.gflops, 2))


_Take = Callable[[Record, Operation], str | int]

_ARGUMENTS: dict[str, _Take] = {
    "batch_count": lambda _, one: one.matmul_shape.batch,
    "m": lambda _, one: one.matmul_shape.m,
    "n": lambda _, one: one.matmul_shape.n,
    "k": lambda _, one: one.matmul_shape.k,
    "lhs": lambda _, one: f"{one.signature.lhs}{one.signature.lhs_layout}",
    "rhs": lambda _, one: f"{one.signature.rhs}{one.signature.rhs_layout}",
    "result": lambda _, one: f"{one.signature.result}{one.signature.result_layout}",
    "split_k_mode": lambda _, one: "parallel" if one.signature.split_k_slices > 1 else "N/A",
    "split_k_slices": lambda _, one: n if (n := one.signature.split_k_slices) > 1 else "N/A",
}

_OF_THE_TOOL: dict[str, _Take] = {
    "Provider": lambda record, _: _provider(record),
    "op_kind": lambda _, one: str(one.kind),
    "Operation": lambda _, one: operation_name(one),
    "bytes": lambda record, _: record.bytes,
    "flops": lambda record, _: record.flops,
    **_ARGUMENTS,
    "Tile config": lambda record, _: _tile_columns(record.configuration)[0],
    "Core class": lambda record, _: _tile_columns(record.configuration)[1],
    "Instruction class": lambda record, _: _tile_columns(record.configuration)[2],
    "Verification": lambda record, _: _verification(record),
    "Runtime(ms)": lambda record, _: _runtime_ms(record),
    "GFLOPs": lambda record, _: _gflops(record) or "Not run",
}
"""The tool's columns; tags precede them."""

_INTEGERS = ("bytes", "flops", "batch_count", "m", "n", "k")
"""Columns that hold an integer for every operation; the others hold text."""

SUMMARY = (
    "provider", "operation", "configuration", "outcome", "verification", "median_ns",
    "ci_low_ns", "ci_high_ns", "gflops", "roofline_fraction",
)  # fmt: skip

PRESETS: dict[str, str] = {
    "gemmetry": "every column (gemmetry help columns)",
    "summary": ", ".join(SUMMARY),
    "dispatch-profiler": "the columns of the IREE dispatch profiler's CSV, under its names",
}
"""Preset -> the columns it holds, for people."""


_PRESETS: dict[str, tuple[RecordColumn, ...]] = {
    "gemmetry": COLUMNS,
    "summary": tuple(COLUMNS_BY_NAME[name] for name in SUMMARY),
    "dispatch-profiler": tuple(
        RecordColumn(heading, ColumnType.INTEGER if heading in _INTEGERS else ColumnType.TEXT,
                     value=take)
        for heading, take in _OF_THE_TOOL.items()
    ),
}  # fmt: skip


def record_table(
    records: Iterable[Record],
    columns: Sequence[str] | None = None,
    *,
    name: str = "records",
    has_tags: bool = True,
) -> Table:
    """The `records` as a table of :func:`select_columns`, preceded by a column for each of their
    tags if `has_tags`.

    Raises:
        UnknownNameError: no such column or preset.
    """
    records = list(records)
    chosen = select_columns(columns, tags=tag_names(records) if has_tags else ())
    return Table(name, tuple(chosen), [list(row(record, chosen).values()) for record in records])


def select_columns(names: Sequence[str] | None, *, tags: Iterable[str] = ()) -> list[RecordColumn]:
    """The columns called `names` (of a preset or of the domain; default: all of the domain),
    preceded by the tags.

    Raises:
        UnknownNameError: no such column or preset.
    """
    chosen: dict[str, RecordColumn] = {}
    for name in names or ("gemmetry",):
        if name not in _PRESETS and name not in COLUMNS_BY_NAME:
            raise UnknownNameError("column", name, [*COLUMNS_BY_NAME, *PRESETS])
        for column in _PRESETS.get(name) or (COLUMNS_BY_NAME[name],):
            chosen.setdefault(column.name, column)
    leading: dict[str, RecordColumn] = {}
    for tag in tags:
        heading = f"tag:{tag}" if tag in chosen else tag
        leading[heading] = RecordColumn(heading, value=partial(_tag, tag))
    if leading:
        chosen.pop("tags", None)
    return [*leading.values(), *chosen.values()]


def _tag(name: str, record: Record, _operation: Operation) -> str | None:
    return record.tags.get(name)


def tag_names(records: Iterable[Record]) -> list[str]:
    """The names of all tags, in the order in which they appear."""
    return list(dict.fromkeys(name for record in records for name in record.tags))


def to_json_document(result_set: ResultSet) -> dict[str, Any]:
    """``schema_version``, ``records`` (each column is a key, null where it does not apply),
    ``environments`` by id, and where the results come from. JSON values only."""
    return {
        "schema_version": SCHEMA_VERSION,
        "title": result_set.title,
        "command": result_set.command or None,
        "created": result_set.created or None,
        "experiment": result_set.path or None,
        "planned": result_set.planned,
        "remarks": list(result_set.remarks),
        "records": [json_value(row(record)) for record in result_set.records],
        "environments": {key: json_value(asdict(one))
                         for key, one in result_set.environments.items()},
    }  # fmt: skip


_REJECTED = (Outcome.COMPILE_ERROR, Outcome.LAUNCH_ERROR)


def to_junit(result_set: ResultSet) -> bytes:
    """JUnit XML: one suite per operation, one case per dispatch.

    ``wrong`` is a failure; ``crash``, ``timeout`` and ``out_of_memory`` are errors. A configuration
    that the compiler or the device rejected is an error too, unless another of the same operation
    is ok: then it counts as skipped, as in the exit status. If anything was measured, the first
    suite begins with the property ``verdict``, the sentence that opens every report.
    """
    suites = [
        (f"{device or target} {operation}",
         [_case(one, has_ok=any(other.outcome is Outcome.OK for other in group)) for one in group])
        for (target, device, operation, _), group in group_by_problem(result_set.records).items()
    ]  # fmt: skip
    verdict = Overview(result_set).verdict
    return junit(result_set.title, suites, {"verdict": verdict} if verdict else {})


def _case(record: Record, *, has_ok: bool) -> Case:
    outcome = record.outcome
    kind = {Outcome.OK: "", Outcome.WRONG: "failure"}.get(outcome, "error")
    if outcome in NOT_RUN or (outcome in _REJECTED and has_ok):
        kind = "skipped"
    return Case(
        group=f"{record.target}.{record.provider}",
        name=record.dispatch,
        kind=kind,
        message=f"{outcome}: {first_line(record.reason)}",
        type="" if kind == "skipped" else str(outcome),
        text="\n".join(part for part in (record.reason, record.output_tail) if part),
        seconds=(record.median_ns or 0.0) / 1e9,
        output=record.reproduce,
    )


def files_of(
    result_set: ResultSet, columns: Sequence[str] | None = None, baseline: str | None = None
) -> emit.Result:
    """The results with their formats of files. `columns` applies to csv, parquet, xlsx and md,
    `baseline` to html and the pictures."""

    def page() -> str:
        from gemmetry.dispatches.page import render_html

        return render_html(result_set, baseline=baseline)

    def picture(suffix: str) -> bytes:
        from gemmetry.dispatches.figures import render_figure

        return render_figure(result_set, suffix.removeprefix("."), baseline=baseline)

    return emit.Result(
        rows={"records": lambda: record_table(result_set.records, columns)},
        whole=lambda: to_json_document(result_set),
        forms={
            emit.XLSX: lambda: to_workbook(result_set, columns),
            emit.MARKDOWN: lambda: to_markdown(result_set, columns),
            emit.HTML: page,
            emit.JUNIT: lambda: to_junit(result_set),
            **{suffix: partial(picture, suffix) for suffix in emit.IMAGES},
        },
    )


def write(
    result_set: ResultSet,
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    append: bool = False,
    baseline: str | None = None,
) -> None:
    """Write the results to `path` in the format of its suffix (:func:`files_of`).

    The file appears whole or not at all. `append` applies to csv.

    Raises:
        RequestError: unknown suffix, an option that the format does not have, a missing library, or
            a file to append to that has other columns.
        UnknownNameError: no such column.
        StorageError: the file cannot be written; an older one is unchanged.
    """
    suffix = emit.check_suffix(path, emit.every_form())
    if columns and not append and suffix not in emit.with_columns():
        names = ", ".join(emit.with_columns())
        raise RequestError(
            f"columns cannot be chosen for {path}",
            hint=f"Only {names} can have chosen columns; leave --columns out.",
        )
    emit.emit(files_of(result_set, columns, baseline), path, append=append)


def to_csv(result_set: ResultSet, columns: Sequence[str] | None = None) -> str:
    """The results as CSV; see :func:`csv_text`.

    Raises:
        UnknownNameError: no such column.
    """
    return csv_text(record_table(result_set.records, columns))


def to_markdown(result_set: ResultSet, columns: Sequence[str] | None = None) -> str:
    """A heading, a sentence with the fastest, the table with values formatted for people (`summary`
    columns by default), what the marks mean, and the command.

    The dispatches of an operation are grouped, the fastest first and with its median in bold;
    ``!`` follows medians that are less trustworthy than the rest.

    Raises:
        UnknownNameError: no such column.
    """
    overview = Overview(result_set)
    records = grouped_by_speed(result_set.records)
    bests = {id(fastest(group)) for group in group_by_problem(records).values()}
    table = record_table(records, columns or ("summary",))

    def cell(column: Column, value: Any, record: Record) -> str:
        text = escape(column.text(value))
        if column.name != "median_ns" or value is None:
            return text
        text = f"**{text}**" if id(record) in bests else text
        return f"{text} !" if overview.marks.of(record) else text

    rows = (
        [cell(*pair, record) for pair in zip(table.columns, values, strict=True)]
        for record, values in zip(records, table.rows, strict=True)
    )
    headings = [column.label for column in table.columns]
    lines = table_lines(headings, rows, [column.type.is_numeric for column in table.columns])
    parts = [f"# {escape(result_set.title)}", escape(overview.verdict), "\n".join(lines)]
    parts += map(escape, (*overview.run_states, overview.less_trustworthy))
    if result_set.command:
        parts.append(f"    {printable(result_set.command).replace(chr(10), ' ')}")
    return "\n\n".join(filter(None, parts)) + "\n"


_FAILURES = ("target", "provider", "dispatch", "outcome", "stage", "reason", "reproduce")

_LOOKS = Looks(
    widths={
        "dispatch": 60, "operation": 40, "configuration": 34, "reason": 50, "reproduce": 50,
        "environment_id": 30, "field": 30, "value": 80, "column": 28, "meaning": 80,
    },
    good={"outcome": str(Outcome.OK)},
    bars=("gflops\n[10⁹ FLOP/s]",),
)  # fmt: skip


def to_workbook(result_set: ResultSet, columns: Sequence[str] | None = None) -> bytes:
    """The workbook. Texts are stored as text: nothing in it is a formula or a link.

    Raises:
        RequestError: XlsxWriter is not installed. UnknownNameError: no such column.
        StorageError: the temporary files for a large workbook cannot be written.
    """
    records = result_set.records
    failed = [record for record in records if record.outcome is not Outcome.OK]
    failures = record_table(failed, _FAILURES, name="failures", has_tags=False)
    return workbook([_with_units(record_table(records, columns)), _with_units(failures),
                     _environment(result_set), columns_table()], _LOOKS)  # fmt: skip


def columns_table() -> Table:
    """Meanings of the columns of records."""
    columns = tuple(map(Column, ("column", "unit", "better", "meaning")))
    return Table("columns", columns, [(c.name, c.unit, str(c.direction), c.description)
                                      for c in COLUMNS])  # fmt: skip


def _with_units(table: Table) -> Table:
    """The table with each column's unit in its heading."""
    columns = (replace(one, name=f"{one.name}\n[{one.unit}]") if one.unit else one
               for one in table.columns)  # fmt: skip
    return replace(table, columns=tuple(columns))


def _environment(result_set: ResultSet) -> Table:
    rows = [
        ("", "title", result_set.title),
        ("", "command", result_set.command),
        ("", "created", result_set.created_second),
        *(("", "remark", remark) for remark in result_set.remarks),
    ]
    for key, environment in result_set.environments.items():
        rows += [(key, name, str(cell_text(v))) for name, v in asdict(environment).items()]
    return Table("environment", tuple(map(Column, ("environment_id", "field", "value"))), rows)
