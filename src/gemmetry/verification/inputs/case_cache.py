"""Exact inputs and their results, kept for the next dispatch of the same operation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from gemmetry.verification.inputs.exact import ExactCase

CASE_CACHE_BYTES = 3 * 2**29
"""Memory limit of exact inputs and results that are kept for the next dispatch of the same
operation: the three cases of an 8192³ bf16 product take 1.2e9 bytes."""


class CaseCache:
    """The most recent exact cases, up to :data:`CASE_CACHE_BYTES`."""

    def __init__(self) -> None:
        self._cases: OrderedDict[tuple[object, ...], ExactCase | None] = OrderedDict()
        self._held_bytes = 0

    def get(
        self, key: tuple[object, ...], make: Callable[[], ExactCase | None]
    ) -> ExactCase | None:
        """The case of `key`, created if it is not cached."""
        if key in self._cases:
            self._cases.move_to_end(key)
            return self._cases[key]
        case = make()
        self._cases[key] = case
        self._held_bytes += _case_bytes(case)
        while self._cases and self._held_bytes > CASE_CACHE_BYTES:
            self._held_bytes -= _case_bytes(self._cases.popitem(last=False)[1])
        return case


def _case_bytes(case: ExactCase | None) -> int:
    return 0 if case is None else case.nbytes
