"""Cases and the invented experiment of ``tests/reports``, for the tests of this folder as well."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_PATH = Path(__file__).parents[1] / "reports" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("of_reports", _PATH)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

pytest_generate_tests = _MODULE.pytest_generate_tests
result_set, small_result_set = _MODULE.result_set, _MODULE.small_result_set
make_record, record_of = _MODULE.make_record_fixture, _MODULE.record_of_fixture
report_of, job_report = _MODULE.report_of_fixture, _MODULE.job_report_fixture
kernels, trace, found = _MODULE.kernels_fixture, _MODULE.trace_fixture, _MODULE.found_fixture
