"""The check of a history as files: JUnit XML, Markdown for a pull request, JSON, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from gemmetry.analysis.history.causes import CAUSES, ChangeCause
from gemmetry.analysis.history.checking import HistoryCheck, JudgedChange, LostDispatch
from gemmetry.domain.units import counted
from gemmetry.reports.dispatches.junit import set_counts, xml_document, xml_text
from gemmetry.reports.history.documents import change_table, check_document
from gemmetry.reports.history.rows import (
    HappeningRow,
    again_text,
    happening_rows,
    undecided_text,
)
from gemmetry.reports.tables.files import write_atomically
from gemmetry.reports.tables.json import json_file
from gemmetry.reports.tables.markdown import escape, table_lines
from gemmetry.reports.tables.writing import FORMATS, check_suffix, write_tables

_MOST_ROWS = 50
"""Changes in the Markdown of a pull request."""


def check_suffixes() -> list[str]:
    """Suffixes of the files that :func:`write_check` writes."""
    return [*FORMATS, ".xml"]


def write_check(check: HistoryCheck, path: Path) -> None:
    """Write the check in the format of the suffix.

    Raises:
        RequestError: another suffix, or a library is missing. StorageError: not writable.
    """
    match check_suffix(path, check_suffixes()):
        case ".xml":
            write_atomically(path, check_junit(check))
        case ".md":
            write_atomically(path, check_markdown(check).encode())
        case ".json":
            write_atomically(path, json_file(check_document(check)))
        case _:
            write_tables([change_table(check)], path)


def check_junit(check: HistoryCheck) -> bytes:
    """A suite for each device class, with a case for each of its series. Alarms are failures; other
    new changes count as skipped, with the cause as their message. What is undecided is a failure
    where the check fails on it, else skipped."""
    root = ElementTree.Element("testsuites", name="gemmetry history")
    every: list[str] = []
    for found in check.devices:
        history = found.history
        suite = ElementTree.SubElement(root, "testsuite", name=xml_text(history.device))
        new: dict[int, list[JudgedChange | LostDispatch]] = {}
        for change in check.changes:
            if (
                change.found is found
                and change.is_new
                and change.change.cause is not ChangeCause.NOISE
            ):
                new.setdefault(change.change.series, []).append(change)
        for lost in check.lost:
            if lost.found is found and lost.is_new:
                new.setdefault(lost.series, []).append(lost)
        fails = check.fails_on(found)
        counters = [
            _add_case(suite, history.keys[series], history.short_names[series],
                      new.get(series, []), undecided_text(found, series), fails)
            for series in range(len(history.keys))
        ]  # fmt: skip
        set_counts(suite, counters)
        every += counters
    set_counts(root, every)
    return xml_document(root)


def check_markdown(check: HistoryCheck) -> str:
    """The new changes for a pull request, alarms first; the other ones as a count."""
    new = check.new
    alarms = sum(one.is_alarm for one in new)
    headline = (
        f"{counted(alarms, 'regression')} within the latest {counted(check.latest, 'run')}"
        if alarms
        else f"{'undecided' if check.undecided else 'No regression'} within the latest "
        f"{counted(check.latest, 'run')}"
    )
    lines = [f"## GEMM history: {headline}", ""]
    rows = happening_rows(new)
    shown = [row for row in rows if not row.is_noise]
    if shown:
        heads = ("", "dispatch", "device", "change", "since", "why")
        cells = map(_markdown_row, shown[:_MOST_ROWS])
        lines += [*table_lines(heads, cells, [False] * len(heads)), ""]
    if len(shown) > _MOST_ROWS:
        lines += [f"And {counted(len(shown) - _MOST_ROWS, 'more change')}.", ""]
    if len(rows) > len(shown):
        lines += [f"{counted(len(rows) - len(shown), 'new change')} judged to be noise.", ""]
    causes = dict.fromkeys(row.cause for row in shown)
    lines += [f"- **{cause}**: {text}" for cause, text in CAUSES.items() if cause in causes]
    lines += [""] if causes else []
    lines += [
        f"- {escape(found.history.device)}: {escape(text)}"
        for found in check.devices
        for text in (undecided_text(found), again_text(found))
        if text
    ]
    lines += [f"- skipped: {escape(problem)}" for problem in check.problems]
    failing = ", ".join(check.fail_on) or "nothing"
    lines.append(f"Slower changes of these causes fail: {failing}. Intervals hold with "
                 f"95 % on average over the changes that were found.")  # fmt: skip
    return "\n".join(lines) + "\n"


def _markdown_row(row: HappeningRow) -> list[str]:
    remarks = [f"remark: {remark}" for remark in row.remarks]
    since = " ".join(filter(None, (row.run.time[:10], row.run.commit[:12])))
    return [
        "❌" if row.is_alarm else "",
        escape(row.name),
        escape(row.device),
        escape(f"{row.cause}: {row.text}"),
        escape(f"{since} (run {row.run.id})"),
        escape("; ".join((*row.reasons, *remarks))),
    ]


def _add_case(
    suite: ElementTree.Element,
    key: tuple[str, ...],
    name: str,
    new: Sequence[JudgedChange | LostDispatch],
    undecided: str,
    undecided_fails: bool,
) -> str:
    """Add the case of a series; return the counter to which it belongs, "" if it passed."""
    case = ElementTree.SubElement(
        suite, "testcase", classname=xml_text(f"{key[2]}.{key[0]}"), name=xml_text(name)
    )
    if not new and undecided:
        ElementTree.SubElement(
            case, "failure" if undecided_fails else "skipped", message=xml_text(undecided)
        )
        return "failures" if undecided_fails else "skipped"
    if not new:
        return ""
    rows = sorted((HappeningRow((one,)) for one in new), key=lambda row: not row.is_alarm)
    fails = rows[0].is_alarm
    element = ElementTree.SubElement(
        case,
        "failure" if fails else "skipped",
        message=xml_text(f"{rows[0].cause}: {rows[0].text}"),
    )
    if fails:
        element.set("type", rows[0].cause)
    element.text = xml_text(
        "\n".join(
            f"run {row.run.id} of {row.run.time}: {row.cause}: {row.text}: {'; '.join(row.reasons)}"
            for row in rows
        )
    )
    return "failures" if fails else "skipped"
