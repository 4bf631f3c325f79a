"""The invented experiment of tests/reports, for the tests of this folder as well."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_PATH = Path(__file__).parents[1] / "reports" / "conftest.py"
_SPEC = importlib.util.spec_from_file_location("made_up_experiment", _PATH)
_MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_MODULE)

result_set = _MODULE.result_set
small_result_set = _MODULE.small_result_set
make_record = _MODULE.make_record_fixture
report_of = _MODULE.report_of_fixture
job_report = _MODULE.job_report_fixture
kernels = _MODULE.kernels_fixture
trace = _MODULE.trace_fixture
found = _MODULE.found_fixture
