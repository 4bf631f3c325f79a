from __future__ import annotations

from xml.etree import ElementTree

from gemmetry.dispatches.results import to_junit
from gemmetry.domain.errors import Outcome
from gemmetry.domain.record import ResultSet

NAME = "matmul_8x8x8_f32t_f32t_f32t"


def _suites(*records):
    return ElementTree.fromstring(to_junit(ResultSet(title="t", records=records)))


def test_counts_are_those_of_the_cases(result_set):
    root = ElementTree.fromstring(to_junit(result_set))
    assert root.get("tests") == str(len(result_set.records))
    assert root.get("failures") == "1"
    # crash, timeout, out_of_memory; rejected ones have an ok dispatch of the same operation.
    assert root.get("errors") == "3"
    assert root.get("skipped") == "6"
    for suite in root:
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        assert int(suite.get("errors")) == len(suite.findall("testcase/error"))


def test_a_rejected_configuration_is_an_error_only_if_nothing_of_its_operation_is_ok(make_record):
    rejected = make_record(NAME, "big", outcome=Outcome.COMPILE_ERROR, reason="too big")
    assert _suites(rejected).get("errors") == "1"
    alone_with_ok = _suites(rejected, make_record(NAME))
    assert alone_with_ok.get("errors") == "0"
    assert alone_with_ok.get("skipped") == "1"
