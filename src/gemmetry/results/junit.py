"""Cases as JUnit XML, for continuous integration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from xml.etree import ElementTree

from gemmetry.results.texts import printable

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 (section 2.2) cannot represent."""

_COUNTERS = {"failure": "failures", "error": "errors", "skipped": "skipped"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test case; it passed where `kind` is empty."""

    group: str
    name: str
    kind: str = ""
    """``failure``, ``error`` or ``skipped``."""
    message: str = ""
    type: str = ""
    text: str = ""
    seconds: float | None = None
    output: str = ""


def junit(
    title: str,
    suites: Sequence[tuple[str, Sequence[Case]]],
    properties: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """The document of the suites, each under its name; the first begins with the `properties`."""
    root = ElementTree.Element("testsuites", name=_text(title))
    for name, cases in suites:
        suite = ElementTree.SubElement(root, "testsuite", name=_text(name))
        for case in cases:
            _add(suite, case)
        _count(suite, cases)
        if any(case.seconds is not None for case in cases):
            suite.set("time", f"{sum(case.seconds or 0.0 for case in cases):.9f}")
    _count(root, [case for _, cases in suites for case in cases])
    if properties:
        found = ElementTree.Element("properties")
        for name, value in properties.items():
            ElementTree.SubElement(found, "property", name=name, value=_text(value))
        root[0].insert(0, found)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=False)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _add(suite: ElementTree.Element, case: Case) -> None:
    element = ElementTree.SubElement(
        suite, "testcase", classname=_text(case.group), name=_text(case.name)
    )
    if case.seconds is not None:
        element.set("time", f"{case.seconds:.9f}")
    if case.output:
        ElementTree.SubElement(element, "system-out").text = _text(case.output)
    if case.kind:
        found = ElementTree.SubElement(element, case.kind, message=_text(case.message))
        if case.type:
            found.set("type", case.type)
        found.text = _text(case.text)


def _count(element: ElementTree.Element, cases: Sequence[Case]) -> None:
    element.set("tests", str(len(cases)))
    for kind, counter in _COUNTERS.items():
        element.set(counter, str(sum(case.kind == kind for case in cases)))


def _text(text: str) -> str:
    """`text` without the characters that XML cannot hold."""
    return printable(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))
