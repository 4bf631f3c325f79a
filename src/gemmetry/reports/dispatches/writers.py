"""Results as files; the suffix picks the format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmetry.domain.errors import RequestError
from gemmetry.domain.resultset import ResultSet
from gemmetry.reports.dispatches.junit import to_junit
from gemmetry.reports.dispatches.markdown import to_markdown
from gemmetry.reports.dispatches.records import record_table, to_json_document
from gemmetry.reports.extras import check_installed
from gemmetry.reports.tables.csv import append_csv, csv_text
from gemmetry.reports.tables.files import write_atomically
from gemmetry.reports.tables.frames import parquet
from gemmetry.reports.tables.json_document import to_json_text
from gemmetry.reports.tables.writing import LIBRARIES, check_suffix


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
    """Write the results to `path` in the format of its suffix (:data:`SUFFIXES`).

    The file appears whole or not at all. `columns` (names of docs/columns.md or presets) applies
    to csv, parquet, xlsx and md; `append` to csv; `baseline` to html and the pictures.

    Raises:
        RequestError: unknown suffix, an option that the format has not, a missing library, or a
            file to append to that has other columns.
        UnknownNameError: no such column.
        StorageError: the file cannot be written; an older one is unchanged.
    """
    suffix = check_suffix(path, tuple(SUFFIXES))
    if append and suffix != ".csv":
        raise RequestError(f"cannot append to {path}", hint="Only csv files can be appended to.")
    if columns and suffix not in _WITH_COLUMNS:
        raise RequestError(
            f"columns cannot be chosen for {path}",
            hint=f"They can for {', '.join(_WITH_COLUMNS)}; leave --columns out here.",
        )
    if append:
        content = append_csv(record_table(result_set.records, columns), path).encode()
    else:
        content = SUFFIXES[suffix](result_set, _Options(columns, baseline))
    write_atomically(path, content)


def check_libraries(suffix: str) -> None:
    """Find out whether the libraries that the format `suffix` needs are there.

    Raises:
        RequestError: one is not installed.
    """
    if suffix in LIBRARIES:
        check_installed(LIBRARIES[suffix], extra="analysis")
    if suffix in _PLOTS:
        check_installed(_PLOTS[suffix], extra="plot")


def to_csv(result_set: ResultSet, columns: Sequence[str] | None = None) -> str:
    """The results as CSV; see :func:`csv_text`.

    Raises:
        UnknownNameError: no such column.
    """
    return csv_text(record_table(result_set.records, columns))


def _csv(result_set: ResultSet, options: _Options) -> bytes:
    return to_csv(result_set, options.columns).encode()


def _json(result_set: ResultSet, options: _Options) -> bytes:
    return to_json_text(to_json_document(result_set)).encode()


def _parquet(result_set: ResultSet, options: _Options) -> bytes:
    return parquet(record_table(result_set.records, options.columns))


def _xlsx(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.reports.dispatches.workbook import to_workbook

    return to_workbook(result_set, options.columns)


def _markdown(result_set: ResultSet, options: _Options) -> bytes:
    return to_markdown(result_set, options.columns).encode()


def _html(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.reports.dispatches.html import render_html

    return render_html(result_set, baseline=options.baseline).encode()


def _junit(result_set: ResultSet, options: _Options) -> bytes:
    return to_junit(result_set)


def _png(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.reports.dispatches.plots import render_picture

    return render_picture(result_set, "png", baseline=options.baseline)


def _svg(result_set: ResultSet, options: _Options) -> bytes:
    from gemmetry.reports.dispatches.plots import render_picture

    return render_picture(result_set, "svg", baseline=options.baseline)


_PLOTS = {".html": "plotly", ".png": "matplotlib", ".svg": "matplotlib"}
"""Suffix -> the module that the format's plots need, of the extra ``plot``."""

_WITH_COLUMNS = (".csv", ".parquet", ".xlsx", ".md")

SUFFIXES: dict[str, Callable[[ResultSet, _Options], bytes]] = {
    ".csv": _csv,
    ".json": _json,
    ".parquet": _parquet,
    ".xlsx": _xlsx,
    ".md": _markdown,
    ".html": _html,
    ".xml": _junit,
    ".png": _png,
    ".svg": _svg,
}
"""Suffix -> writer."""
