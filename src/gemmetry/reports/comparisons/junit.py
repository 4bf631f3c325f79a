"""A comparison as JUnit XML, for continuous integration: one suite per candidate experiment, one
case per dispatch."""

from __future__ import annotations

from xml.etree import ElementTree

from gemmetry.analysis.dispatches.comparison import Change, ExperimentComparison
from gemmetry.reports.dispatches.junit import set_counts, xml_document, xml_text
from gemmetry.statistics.comparison import Difference


def comparison_junit(comparison: ExperimentComparison, *, undecided_fails: bool = True) -> bytes:
    """The XML document. A regression is a failure. An undecided change is a failure if
    `undecided_fails` and counts as skipped otherwise. All other changes passed."""
    root = ElementTree.Element("testsuites", name=xml_text(f"against {comparison.title}"))
    every: list[str] = []
    for candidate in comparison.candidates:
        suite = ElementTree.SubElement(root, "testsuite", name=xml_text(candidate.title))
        found = [_add_case(suite, change, undecided_fails) for change in candidate.changes]
        set_counts(suite, found)
        every += found
    set_counts(root, every)
    return xml_document(root)


def _add_case(suite: ElementTree.Element, change: Change, undecided_fails: bool) -> str:
    """Add the change's case; return the counter to which it belongs, "" if it passed."""
    after = change.after
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=xml_text(f"{after.target}.{after.provider}"),
        name=xml_text(after.dispatch),
    )
    is_undecided = change.difference is Difference.UNDECIDED
    if not (change.is_regression or is_undecided):
        return ""
    fails = change.is_regression or undecided_fails
    message = f"{change.verdict}{_ratio(change)}"
    element = ElementTree.SubElement(
        case, "failure" if fails else "skipped", message=xml_text(message)
    )
    if fails:
        element.set("type", "undecided" if is_undecided else "regression")
    element.text = xml_text(change.note)
    return "failures" if fails else "skipped"


def _ratio(change: Change) -> str:
    if change.ratio is None:
        return ""
    interval = change.comparison.interval if change.comparison is not None else None
    ends = "n/a" if interval is None else f"{interval[0]:.3f}–{interval[1]:.3f}"
    return f": {change.ratio:.3f} times as long (interval {ends})"
