from __future__ import annotations

from xml.etree import ElementTree

from gemmetry.dispatches.analysis import find_run_marks
from gemmetry.dispatches.comparison import find_leader
from gemmetry.dispatches.labels import verdict_line
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


def test_the_first_suite_begins_with_the_sentence_that_opens_every_report(result_set):
    root = ElementTree.fromstring(to_junit(result_set))
    (verdict,) = root.iter("property")
    assert root[0][0].tag == "properties"
    assert root[0][0][0] is verdict
    marks = find_run_marks(result_set.records)
    leader = find_leader(result_set, marks)
    assert verdict.attrib == {
        "name": "verdict",
        "value": verdict_line(result_set.records, leader, marks),
    }


def test_a_run_without_times_has_no_verdict(make_record):
    root = _suites(make_record(NAME, outcome=Outcome.CRASH, reason="gone"))
    assert not list(root.iter("properties"))
    assert not list(_suites().iter("properties"))


def test_a_rejected_configuration_is_an_error_only_if_nothing_of_its_operation_is_ok(make_record):
    rejected = make_record(NAME, "big", outcome=Outcome.COMPILE_ERROR, reason="too big")
    assert _suites(rejected).get("errors") == "1"
    alone_with_ok = _suites(rejected, make_record(NAME))
    assert alone_with_ok.get("errors") == "0"
    assert alone_with_ok.get("skipped") == "1"


def test_a_failure_shows_reason_output_and_command(make_record):
    record = make_record(
        NAME, outcome=Outcome.WRONG, reason="bad <&> values\nsecond", output_tail="tail"
    )
    case = _suites(record).find("testsuite/testcase")
    failure = case.find("failure")
    assert failure.get("message") == "wrong: bad <&> values"
    assert failure.text == "bad <&> values\nsecond\ntail"
    assert case.find("system-out").text == record.reproduce
    assert case.get("classname") == "cpu.torch"


def test_characters_that_xml_lacks_do_not_break_the_document(make_record):
    record = make_record(NAME, outcome=Outcome.CRASH, reason="a\x00b\x1b[0m\ufffec\ud800d")
    failure = _suites(record).find("testsuite/testcase/error")
    assert failure.text == "a\ufffdb\ufffd[0m\ufffdc\ufffdd"


def test_times_are_seconds(make_record):
    record = make_record(NAME)
    case = _suites(record).find("testsuite/testcase")
    assert float(case.get("time")) * 1e9 == round(record.measurement.median_ns)
