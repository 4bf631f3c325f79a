"""The check of a history as files: JUnit XML, Markdown for a pull request, JSON, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from gemmetry.analysis.history.causes import CAUSES, ChangeCause
from gemmetry.analysis.history.checking import LOST, HistoryCheck, JudgedChange, LostDispatch
from gemmetry.domain.units import counted
from gemmetry.reports.dispatches.junit import set_counts, xml_document, xml_text
from gemmetry.reports.history.documents import change_table, check_document
from gemmetry.reports.history.text import change_title
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
    new changes count as skipped, with the cause as their message."""
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
        counters = [
            _add_case(suite, history.keys[series], history.short_names[series],
                      new.get(series, []))
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
        else f"No regression within the latest {counted(check.latest, 'run')}"
    )
    lines = [f"## GEMM history: {headline}", ""]
    shown = [one for one in new if not _is_noise(one)]
    rows = [_markdown_row(one) for one in shown[:_MOST_ROWS]]
    if rows:
        heads = ("", "dispatch", "device", "change", "since", "why")
        lines += [*table_lines(heads, rows, [False] * len(heads)), ""]
    if len(shown) > _MOST_ROWS:
        lines += [f"And {counted(len(shown) - _MOST_ROWS, 'more change')}.", ""]
    noise = len(new) - len(shown)
    if noise:
        lines += [f"{counted(noise, 'new change')} judged to be noise.", ""]
    causes = dict.fromkeys(one.change.cause for one in shown if isinstance(one, JudgedChange))
    lines += [f"- **{cause}**: {CAUSES[cause]}" for cause in causes]
    lines += [""] if causes else []
    lines += [f"- skipped: {escape(problem)}" for problem in check.problems]
    failing = ", ".join(check.fail_on) or "nothing"
    lines.append(f"Slower changes of these causes fail: {failing}. Intervals hold with "
                 f"95 % on average over the changes that were found.")  # fmt: skip
    return "\n".join(lines) + "\n"


def _is_noise(one: JudgedChange | LostDispatch) -> bool:
    return isinstance(one, JudgedChange) and one.change.cause is ChangeCause.NOISE


def _markdown_row(one: JudgedChange | LostDispatch) -> list[str]:
    reasons = one.change.reasons if isinstance(one, JudgedChange) else ()
    remarks = [f"remark: {remark.text}" for remark in one.remarks]
    since = " ".join(filter(None, (one.run.time[:10], one.run.commit[:12])))
    return [
        "❌" if one.is_alarm else "",
        escape(one.name),
        escape(one.found.history.device),
        escape(change_title(one)),
        escape(f"{since} (run {one.run.id})"),
        escape("; ".join((*reasons, *remarks))),
    ]


def _add_case(
    suite: ElementTree.Element,
    key: tuple[str, ...],
    name: str,
    new: Sequence[JudgedChange | LostDispatch],
) -> str:
    """Add the case of a series; return the counter to which it belongs, "" if it passed."""
    case = ElementTree.SubElement(
        suite, "testcase", classname=xml_text(f"{key[2]}.{key[0]}"), name=xml_text(name)
    )
    if not new:
        return ""
    fails = any(one.is_alarm for one in new)
    shown = sorted(new, key=lambda one: not one.is_alarm)
    element = ElementTree.SubElement(
        case, "failure" if fails else "skipped", message=xml_text(change_title(shown[0]))
    )
    if fails:
        first = shown[0]
        element.set("type", str(first.change.cause) if isinstance(first, JudgedChange) else LOST)
    texts = [
        f"run {one.run.id} of {one.run.time}: {change_title(one)}: "
        + "; ".join(one.change.reasons if isinstance(one, JudgedChange) else ())
        for one in shown
    ]
    element.text = xml_text("\n".join(texts))
    return "failures" if fails else "skipped"
