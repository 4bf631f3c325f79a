"""Outcomes as JUnit XML, for continuous integration: one suite per operation, one case per
dispatch.

Results as files; the suffix picks the format.

Results as an Excel workbook with one sheet each for records, failures, environment, columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from gemmetry.dispatches.analysis import (
    RunMarks,
    fastest,
    find_run_marks,
    group_by_problem,
    grouped_by_speed,
)
from gemmetry.dispatches.comparison import find_leader
from gemmetry.dispatches.console import run_state_lines, verdict_line
from gemmetry.dispatches.records import record_table, to_json_document
from gemmetry.domain.columns import COLUMNS
from gemmetry.domain.errors import Outcome, RequestError
from gemmetry.domain.record import Record, ResultSet
from gemmetry.domain.tables import Column, Table
from gemmetry.results.emit import FORMATS, check_library, check_suffix, write_atomically
from gemmetry.results.json_text import json_file
from gemmetry.results.tables import (
    Look,
    append_csv,
    cell_text,
    check_plots,
    csv_text,
    table_lines,
    workbook,
)
from gemmetry.results.tables import escape_markdown as escape
from gemmetry.results.texts import first_line, printable

_REJECTED = (Outcome.COMPILE_ERROR, Outcome.LAUNCH_ERROR)
_NOT_RUN = (Outcome.UNSUPPORTED, Outcome.SKIPPED)
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) cannot represent."""


def to_junit(result_set: ResultSet) -> bytes:
    """The XML document.

    ``wrong`` is a failure; ``crash``, ``timeout`` and ``out_of_memory`` are errors. A configuration
    that the compiler or the device rejected is an error too, unless another of the same operation
    is ok: then it counts as skipped, as in the exit status. If anything was measured, the first
    suite begins with the property ``verdict``, the sentence that opens every report.
    """
    root = ElementTree.Element("testsuites", name=xml_text(result_set.title))
    every: list[str] = []
    for (target, device, operation, _), records in group_by_problem(result_set.records).items():
        suite = ElementTree.SubElement(
            root, "testsuite", name=xml_text(f"{device or target} {operation}")
        )
        has_ok = any(record.outcome is Outcome.OK for record in records)
        found = [_add_case(suite, record, has_ok) for record in records]
        set_counts(suite, found)
        suite.set("time", f"{sum(map(_seconds, records)):.9f}")
        every += found
    set_counts(root, every)
    _add_verdict(root, result_set)
    return xml_document(root)


def _add_verdict(root: ElementTree.Element, result_set: ResultSet) -> None:
    """Add the sentence about the run as a property of a suite, where readers of JUnit look."""
    marks = find_run_marks(result_set.records)
    verdict = verdict_line(result_set.records, find_leader(result_set, marks), marks)
    if verdict:
        properties = ElementTree.Element("properties")
        ElementTree.SubElement(properties, "property", name="verdict", value=xml_text(verdict))
        root[0].insert(0, properties)


def set_counts(element: ElementTree.Element, counters: Sequence[str]) -> None:
    """Set how many cases `element` has, and how many belong to each of the `counters`, which are ""
    for those that passed."""
    element.set("tests", str(len(counters)))
    for name in ("failures", "errors", "skipped"):
        element.set(name, str(counters.count(name)))


def xml_document(root: ElementTree.Element) -> bytes:
    """The indented document of `root`."""
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _add_case(suite: ElementTree.Element, record: Record, has_ok: bool) -> str:
    """Add the record's case; return the counter to which it belongs, "" if it passed."""
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=xml_text(f"{record.target}.{record.provider}"),
        name=xml_text(record.dispatch),
        time=f"{_seconds(record):.9f}",
    )
    if record.reproduce:
        ElementTree.SubElement(case, "system-out").text = xml_text(record.reproduce)
    if record.outcome is Outcome.OK:
        return ""
    kind, counter = "error", "errors"
    if record.outcome is Outcome.WRONG:
        kind, counter = "failure", "failures"
    elif record.outcome in _NOT_RUN or (record.outcome in _REJECTED and has_ok):
        kind, counter = "skipped", "skipped"
    message = f"{record.outcome}: {first_line(record.reason)}"
    element = ElementTree.SubElement(case, kind, message=xml_text(message))
    if kind != "skipped":
        element.set("type", str(record.outcome))
    element.text = xml_text("\n".join(part for part in (record.reason, record.output_tail) if part))
    return counter


def _seconds(record: Record) -> float:
    return 0.0 if record.measurement is None else record.measurement.median_ns / 1e9


def xml_text(text: str) -> str:
    """`text` without the characters that XML cannot hold."""
    return printable(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


@dataclass(frozen=True, slots=True)
class _Options:
    columns: Sequence[str] | None
    baseline: str | None


def write(
    result_set: ResultSet,
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    append: bool = False,
    baseline: str | None = None,
) -> None:
    """Write the results to `path` in the format of its suffix (:func:`suffixes`).

    The file appears whole or not at all. `columns` (names of docs/columns.md or presets) applies
    to csv, parquet, xlsx and md; `append` to csv; `baseline` to html and the pictures.

    Raises:
        RequestError: unknown suffix, an option that the format does not have, a missing library, or
            a file to append to that has other columns.
        UnknownNameError: no such column.
        StorageError: the file cannot be written; an older one is unchanged.
    """
    suffix = check_suffix(path, suffixes())
    if append and suffix != ".csv":
        raise RequestError(f"cannot append to {path}", hint="Only csv files can be appended to.")
    if columns and suffix not in with_columns():
        raise RequestError(
            f"columns cannot be chosen for {path}",
            hint=f"Only {', '.join(with_columns())} can have chosen columns; leave --columns out.",
        )
    if append:
        content = append_csv(record_table(result_set.records, columns), path).encode()
    else:
        content = _content(suffix, result_set, _Options(columns, baseline))
    write_atomically(path, content)


def _content(suffix: str, result_set: ResultSet, options: _Options) -> bytes:
    if suffix in _OWN:
        return _OWN[suffix](result_set, options)
    return FORMATS[suffix].content([record_table(result_set.records, options.columns)])


def check_libraries(suffix: str) -> None:
    """Check that the libraries that the format `suffix` needs are installed.

    Raises:
        RequestError: one is not installed.
    """
    check_library(suffix)
    check_plots(suffix)


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
    records = grouped_by_speed(result_set.records)
    marks = find_run_marks(records)
    bests = {id(fastest(group)) for group in group_by_problem(records).values()}
    table = record_table(records, columns or ("summary",))
    rows = (
        [
            _cell(column, value, record, id(record) in bests, marks)
            for column, value in zip(table.columns, values, strict=True)
        ]
        for record, values in zip(records, table.rows, strict=True)
    )
    headings = [column.label for column in table.columns]
    lines = table_lines(headings, rows, [column.type.is_numeric for column in table.columns])
    verdict = verdict_line(records, find_leader(result_set, marks), marks)
    parts = [f"# {escape(result_set.title)}", escape(verdict), "\n".join(lines)]
    parts += map(escape, _notes(records, marks, result_set.remarks))
    if result_set.command:
        parts.append(f"    {printable(result_set.command).replace(chr(10), ' ')}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _notes(records: Sequence[Record], marks: RunMarks, remarks: Sequence[str]) -> list[str]:
    """The marks that most rows share, and what ``!`` means."""
    notes = run_state_lines(marks, remarks)
    if kinds := marks.counts(records):
        count = sum(bool(marks.of(record)) for record in records)
        kinds_shown = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
        notes.append(f"! {count} less trustworthy: {kinds_shown}")
    return notes


def _cell(column: Column, value: Any, record: Record, is_best: bool, marks: RunMarks) -> str:
    text = escape(column.text(value))
    if column.name != "median_ns" or value is None:
        return text
    return (f"**{text}**" if is_best else text) + (" !" if marks.of(record) else "")


def _json(result_set: ResultSet, options: _Options) -> bytes:
    return json_file(to_json_document(result_set))


def _xlsx(result_set: ResultSet, options: _Options) -> bytes:

    return to_workbook(result_set, options.columns)


def _markdown(result_set: ResultSet, options: _Options) -> bytes:
    return to_markdown(result_set, options.columns).encode()


def _html(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.dispatches.page import render_html

    return render_html(result_set, baseline=options.baseline).encode()


def _junit(result_set: ResultSet, options: _Options) -> bytes:
    return to_junit(result_set)


def _png(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.dispatches.figures import render_picture

    return render_picture(result_set, "png", baseline=options.baseline)


def _svg(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.dispatches.figures import render_picture

    return render_picture(result_set, "svg", baseline=options.baseline)


_OWN: dict[str, Callable[[ResultSet, _Options], bytes]] = {
    ".json": _json,
    ".xlsx": _xlsx,
    ".md": _markdown,
    ".html": _html,
    ".xml": _junit,
    ".png": _png,
    ".svg": _svg,
}
"""Suffix -> writer, of the formats that show results in a way of their own; the other formats of
tables have one row per record."""


def suffixes() -> tuple[str, ...]:
    """The suffixes of all formats of results."""
    return tuple(dict.fromkeys((*FORMATS, *_OWN)))


def with_columns() -> tuple[str, ...]:
    """The suffixes of the formats whose columns can be chosen."""
    return tuple(suffix for suffix in FORMATS if suffix not in (".json", ".html"))


_FAILURES = ("target", "provider", "dispatch", "outcome", "stage", "reason", "reproduce")

_LOOKS = {
    "outcome": Look(good=str(Outcome.OK)),
    "gflops\n[10⁹ FLOP/s]": Look(has_bar=True),
    **{
        name: Look(width=width)
        for name, width in {
            "dispatch": 60, "operation": 40, "configuration": 34, "reason": 50, "reproduce": 50,
            "environment_id": 30, "field": 30, "value": 80, "column": 28, "meaning": 80,
        }.items()
    },
}  # fmt: skip


def to_workbook(result_set: ResultSet, columns: Sequence[str] | None = None) -> bytes:
    """The workbook. Texts are stored as text: nothing in it is a formula or a link.

    Raises:
        RequestError: XlsxWriter is not installed. UnknownNameError: no such column.
        StorageError: the temporary files for a large workbook cannot be written.
    """
    records = result_set.records
    failed = [record for record in records if record.outcome is not Outcome.OK]
    return workbook(
        [
            _with_units(record_table(records, columns)),
            _with_units(record_table(failed, _FAILURES, name="failures", has_tags=False)),
            _environment(result_set),
            columns_table(),
        ],
        _LOOKS,
    )


def columns_table() -> Table:
    """What the columns of records mean."""
    columns = tuple(map(Column, ("column", "unit", "better", "meaning")))
    return Table("columns", columns, [(c.name, c.unit, str(c.direction), c.description)
                                      for c in COLUMNS])  # fmt: skip


def _with_units(table: Table) -> Table:
    """The table with each column's unit in its heading."""
    columns = (replace(column, name=f"{column.name}\n[{column.unit}]" if column.unit
                       else column.name) for column in table.columns)  # fmt: skip
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
