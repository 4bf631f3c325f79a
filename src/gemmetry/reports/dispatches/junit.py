"""Outcomes as JUnit XML, for continuous integration: one suite per operation, one case per
dispatch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from gemmetry.analysis.dispatches.baseline import group_by_problem
from gemmetry.analysis.dispatches.leader import find_leader
from gemmetry.analysis.dispatches.marks import find_run_marks
from gemmetry.domain.outcome import Outcome
from gemmetry.domain.record import Record, ResultSet
from gemmetry.reports.dispatches.verdict_line import verdict_line
from gemmetry.reports.texts import first_line, printable

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
