"""Values for the cells of files: one text or number each.

Tables as CSV, safe to open in a spreadsheet.

Libraries that only some reports need.

Tables as polars DataFrames, and as Parquet.

Tables as one plain HTML page.

Tables as Markdown.

Tables as an Excel workbook, one sheet each, in which nothing is a formula or a link.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmetry.domain.errors import RequestError, StorageError
from gemmetry.domain.files import encodable
from gemmetry.domain.opening import why_unreadable
from gemmetry.domain.rows import value as json_value
from gemmetry.domain.tables import Column, ColumnType, Table, cell_text
from gemmetry.results.texts import cell_fit, printable

if TYPE_CHECKING:
    import polars


_FORMULA = re.compile("[\\s\x00-\x1f\ufeff\u200b-\u200f]*[-=+@\uff0d\uff1d\uff0b\uff20]|[\t\r\n]")
"""Beginnings with which a spreadsheet evaluates a cell (OWASP, "CSV Injection"): signs, including
full-width ones, also after characters that a spreadsheet may drop."""


def csv_text(table: Table) -> str:
    """The table as CSV: one header line, lines end in ``\\n``.

    A text that a spreadsheet would evaluate (it starts with ``=``, ``+``, ``-``, ``@``, tab or
    line break) gets a leading apostrophe, and control characters are replaced; numbers are never
    changed.
    """
    return csv_lines([table.names, *table.rows])


def append_csv(table: Table, path: Path) -> str:
    """The text of the file at `path` followed by the rows of `table`.

    Raises:
        RequestError: the file has another header than `table`.
        StorageError: the file cannot be read.
    """
    old = check_append(path, table.columns)
    if not old.strip():
        return csv_text(table)
    return f"{old.removesuffix(chr(10))}\n{csv_lines(table.rows)}"


def check_append(path: Path, columns: Sequence[Column]) -> str:
    """The text of the file at `path`, to which rows with these columns can be appended.

    Raises:
        RequestError: the file has another header. StorageError: the file cannot be read.
    """
    try:
        old = path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot read {path} to append to it: {why_unreadable(error)}",
            hint="Write to a new file instead.",
        ) from error
    wanted = [str(_guard(column.name)) for column in columns]
    header = next(csv.reader(io.StringIO(old, newline=""))) if old.strip() else wanted
    if header != wanted:
        missing = [name for name in wanted if name not in header]
        extra = [name for name in header if name not in wanted]
        what = "; ".join(f"{text} {', '.join(names[:6])}" for text, names in
                         (("it lacks", missing), ("it also has", extra)) if names)  # fmt: skip
        raise RequestError(
            f"cannot append to {path}: its columns differ ({what or 'their order'})",
            hint="Use the same --columns and --tags as for the first rows, or another file.",
        )
    return old


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Rows of values as CSV; :func:`csv_text` describes how texts are changed."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([_guard(cell_text(value)) for value in row] for row in rows)
    return buffer.getvalue()


def _guard(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    lead = "'" if _FORMULA.match(value) else ""
    # Readers treat a bare carriage return as the end of a row.
    return lead + printable(value.replace("\r\n", "\n").replace("\r", "\n"))


def require(module: str, *, extra: str) -> Any:
    """The module called `module`, which ``gemmetry[extra]`` installs.

    Raises:
        RequestError: the library is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _missing(module, extra, f" ({error})") from error


def is_installed(module: str) -> bool:
    """Whether `module` is installed, without the cost of importing it."""
    return importlib.util.find_spec(module) is not None


def check_installed(module: str, *, extra: str) -> None:
    """Check that `module` is installed, without the cost of importing it.

    Raises:
        RequestError: the library is not installed.
    """
    if not is_installed(module):
        raise _missing(module, extra)


def _missing(module: str, extra: str, why: str = "") -> RequestError:
    return RequestError(
        f"this report needs {module.partition('.')[0]}, which is not installed{why}",
        hint=f"Install it with: pip install 'gemmetry[{extra}]'",
    )


_INTEGER_LIMIT = 2**63
"""Columns with larger integers become floats: a Parquet file has no type for them."""


def frame(table: Table) -> polars.DataFrame:
    """The table as a ``polars.DataFrame`` whose types follow the columns' types.

    Lists stay lists, and mappings become one text. The types do not depend on the rows, so that the
    frames of two runs can be concatenated.

    Raises:
        RequestError: polars is not installed.
    """
    library = require("polars", extra="analysis")
    values = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    made: polars.DataFrame = library.DataFrame([
        _series(library, column, list(of_column))
        for column, of_column in zip(table.columns, values, strict=True)
    ])  # fmt: skip
    return made


def parquet(table: Table) -> bytes:
    """A Parquet file (zstd) of :func:`frame`."""
    buffer = io.BytesIO()
    frame(table).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def _series(polars: Any, column: Column, values: list[Any]) -> Any:
    converters: dict[ColumnType, tuple[Any, Callable[[Any], Any]]] = {
        ColumnType.INTEGER: (polars.Int64, int),
        ColumnType.NUMBER: (polars.Float64, float),
        ColumnType.BOOLEAN: (polars.Boolean, bool),
        ColumnType.TEXTS: (polars.List(polars.String), lambda texts: list(map(_text, texts))),
    }
    dtype, convert = converters.get(column.type, (polars.String, _text))
    if column.type is ColumnType.INTEGER and any(abs(v or 0) >= _INTEGER_LIMIT for v in values):
        dtype, convert = polars.Float64, float
    plain = [None if (v := json_value(value)) is None else convert(v) for value in values]
    return polars.Series(column.name, plain, dtype=dtype)


def _text(value: Any) -> str:
    return encodable(str(cell_text(value)))


def html_page(tables: Sequence[Table]) -> str:
    """The page of the tables, with values formatted for people, each under its name if there are
    several."""
    title = ", ".join(table.name for table in tables)
    parts = [_table(table) for table in tables]
    if len(tables) > 1:
        parts = [f"<h2>{escape(table.name)}</h2>\n{part}"
                 for table, part in zip(tables, parts, strict=True)]  # fmt: skip
    return f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title>\n{"".join(parts)}'


def _table(table: Table) -> str:
    titles = (f' title="{escape(one.meaning)}"' if one.meaning else "" for one in table.columns)
    heads = "".join(f"<th{title}>{escape(printable(one.label))}</th>"
                    for title, one in zip(titles, table.columns, strict=True))  # fmt: skip
    body = "\n".join(
        f"<tr>{''.join(f'<td>{escape(printable(c.text(v)))}</td>' for c, v in row)}</tr>"
        for row in (zip(table.columns, values, strict=True) for values in table.rows)
    )
    return f"<table><tr>{heads}</tr>\n{body}</table>\n"


def markdown_text(tables: Sequence[Table]) -> str:
    """The tables with values formatted for people, each under its name if there are several."""
    texts = ["\n".join(markdown_table(table)) for table in tables]
    if len(tables) > 1:
        texts = [f"## {escape_markdown(table.name)}\n\n{text}"
                 for table, text in zip(tables, texts, strict=True)]  # fmt: skip
    return "\n\n".join(texts) + "\n"


def markdown_table(table: Table) -> list[str]:
    """The lines of one table; columns of numbers are right-aligned."""
    columns = table.columns
    return markdown_lines(
        [column.label for column in columns],
        ([c.text(value) for c, value in zip(columns, row, strict=True)] for row in table.rows),
        numbers=[column.type.is_numeric for column in columns],
    )


def markdown_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[bool] = ()
) -> list[str]:
    """The lines of a table; texts are escaped, and columns in `numbers` are right-aligned."""
    escaped = ([escape_markdown(text) for text in row] for row in rows)
    return table_lines(headings, escaped, numbers or [False] * len(headings))


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[bool]
) -> list[str]:
    """Lines of :func:`markdown_lines` for cells that are already Markdown."""
    lines = [[escape_markdown(heading) for heading in headings]]
    lines.append(["---:" if is_number else "---" for is_number in numbers])
    lines += map(list, rows)
    return [f"| {' | '.join(line)} |" for line in lines]


def escape_markdown(text: str) -> str:
    """`text` on one line, escaped so that neither Markdown nor HTML changes it."""
    text = printable(text).replace("\n", " ").replace("&", "&amp;").replace("<", "&lt;")
    for character in "\\`*[]|":
        text = text.replace(character, f"\\{character}")
    return text


MOST_ROWS = 1_048_575
"""Rows of a sheet below its heading (Excel's published limits)."""

_MAXIMUM_SHEET_NAME = 31
"""Characters of a sheet's name (Excel's published limits)."""

MOST_CELLS_IN_MEMORY = 1_000_000
"""Larger workbooks are written through temporary files, because each cell otherwise takes about
100 bytes of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """Looks of columns that differ from the default, by name."""

    widths: Mapping[str, int] = field(default_factory=dict)
    """Widths in characters; a column without one is as wide as its heading."""
    good: Mapping[str, str] = field(default_factory=dict)
    """The text that is green; all others are red."""
    bars: Collection[str] = ()
    """Columns in which each cell shows a bar in proportion to its number."""


def workbook(tables: Sequence[Table], looks: Looks = Looks()) -> bytes:
    """The workbook. Texts are stored as text. Of a table with more than :data:`MOST_ROWS` rows,
    only the first are written; :func:`left_out` describes the rest.

    Raises:
        RequestError: XlsxWriter is not installed.
        StorageError: it is large, and the temporary files for it cannot be written.
    """
    xlsxwriter = require("xlsxwriter", extra="analysis")
    try:
        return _workbook(xlsxwriter, tables, looks)
    except (OSError, xlsxwriter.exceptions.XlsxFileError) as error:
        raise StorageError(
            f"this workbook is large and needs temporary files, which cannot be written: {error}",
            hint="Free some disk space, or set TMPDIR to a folder on another disk.",
        ) from error


def left_out(tables: Sequence[Table]) -> list[str]:
    """A line for each of `tables` that has more rows than fit on a sheet."""
    lead = "rows left out because they do not fit on a sheet"
    return [f"{one.name}: {lead}: {count}" for one in tables
            if (count := len(one.rows) - MOST_ROWS) > 0]  # fmt: skip


class _Buffer(io.BytesIO):
    """A buffer that stays open, so that closing an unfinished workbook raises no error."""

    def close(self) -> None:
        """Do nothing."""


def _workbook(xlsxwriter: Any, tables: Sequence[Table], looks: Looks) -> bytes:
    buffer = _Buffer()
    is_large = sum(len(t.rows) * len(t.columns) for t in tables) > MOST_CELLS_IN_MEMORY
    options = {
        # A temporary file for each sheet would take most of the time for a small workbook.
        "constant_memory": is_large,
        "in_memory": not is_large,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
    }
    with xlsxwriter.Workbook(buffer, options) as book:
        styles = _Styles(book)
        for table in tables:
            _write_sheet(book, styles, table, looks)
    return buffer.getvalue()


class _Styles:
    """The formats of one workbook."""

    def __init__(self, book: Any) -> None:
        self.heading = book.add_format({"bold": True, "bottom": 1, "text_wrap": True,
                                        "valign": "top", "bg_color": "#E8EEF4"})  # fmt: skip
        self.text, self.integer, self.decimal, self.small, self.percent = (
            book.add_format({"num_format": form})
            for form in ("@", "#,##0", "#,##0.00", "0.00E+00", "0.0%")
        )
        self.good = book.add_format({"font_color": "#1B6E3C"})
        self.bad = book.add_format({"font_color": "#A61B1B"})

    def of_column(self, column: Column) -> tuple[Any, Any]:
        """The formats for the column's small floats and its other floats."""
        if column.name.endswith(("_fraction", "_share")):
            return self.percent, self.percent
        return self.small, self.decimal


def _write_sheet(book: Any, styles: _Styles, table: Table, looks: Looks) -> None:
    sheet = book.add_worksheet(table.name[:_MAXIMUM_SHEET_NAME])
    sheet.freeze_panes(1, 0)
    for index, column in enumerate(table.columns):
        usual = max(10, min(24, len(column.name) + 3))
        sheet.set_column(index, index, looks.widths.get(column.name, usual))
        sheet.write_string(0, index, cell_fit(column.name), styles.heading)
        if column.meaning:
            sheet.write_comment(0, index, cell_fit(column.meaning), {"x_scale": 2})
    rows = table.rows[:MOST_ROWS]
    _write_rows(sheet, styles, table.columns, rows)
    sheet.autofilter(0, 0, max(len(rows), 1), len(table.columns) - 1)
    if rows:
        _colour(sheet, styles, table, looks)


def _write_rows(
    sheet: Any, styles: _Styles, columns: Sequence[Column], rows: Sequence[Sequence[Any]]
) -> None:
    """Write the rows, testing the commonest types first: traces have millions of cells."""
    write_string, write_number = sheet.write_string, sheet.write_number
    text_style, integer_style = styles.text, styles.integer
    float_styles = [styles.of_column(column) for column in columns]
    for number, row in enumerate(rows, start=1):
        for index, value in enumerate(row):
            if value is None or value == "":
                continue
            if isinstance(value, str):
                write_string(number, index, cell_fit(value), text_style)
            elif isinstance(value, bool):
                sheet.write_boolean(number, index, value)
            elif isinstance(value, int):
                write_number(number, index, value, integer_style)
            elif isinstance(value, float):
                if math.isfinite(value):
                    is_small = -0.01 < value < 0.01 and value != 0
                    write_number(number, index, value, float_styles[index][not is_small])
            elif text := str(cell_text(value)):
                write_string(number, index, cell_fit(text), text_style)


def _colour(sheet: Any, styles: _Styles, table: Table, looks: Looks) -> None:
    bar = {"type": "data_bar", "bar_color": "#9DC3E6", "bar_solid": True}
    for index, name in enumerate(table.names):
        rules = [bar] if name in looks.bars else []
        if good := looks.good.get(name):
            rules += [{"type": "cell", "criteria": sign, "value": f'"{good}"', "format": style}
                      for sign, style in (("==", styles.good), ("!=", styles.bad))]  # fmt: skip
        for rule in rules:
            sheet.conditional_format(1, index, len(table.rows[:MOST_ROWS]), index, rule)
