"""The invented experiment of ``tests/dispatches``, for the tests of this folder as well."""

from __future__ import annotations

from tests.dispatches.conftest import make_record_fixture, result_set, small_result_set  # noqa: F401
