"""Exact inputs and their results, kept for the next dispatch of the same operation."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from gemmetry.domain.operation import Operation
from gemmetry.verification.inputs.exact import ExactCase

CASE_CACHE_BYTES = 3 * 2**29
"""Memory limit of exact inputs and results that are kept for the next dispatch of the same
operation: the three cases of an 8192³ bf16 product take 1.2e9 bytes."""


class CaseCache:
    """Exact cases, up to :data:`CASE_CACHE_BYTES`.

    Those of other operations are dropped first, the least recent before the others. Where the cases
    of one operation alone exceed the limit, its later ones are not kept: each dispatch needs all of
    them in the same order, so that every case would be dropped before it is needed again.
    """

    def __init__(self) -> None:
        self._cases: OrderedDict[tuple[object, ...], ExactCase | None] = OrderedDict()
        self._held_bytes = 0

    def get(
        self, operation: Operation, key: tuple[object, ...], make: Callable[[], ExactCase | None]
    ) -> ExactCase | None:
        """The case of `operation` and `key`, created if it is not cached."""
        whole = (operation, *key)
        if whole in self._cases:
            self._cases.move_to_end(whole)
            return self._cases[whole]
        case = make()
        size = _case_bytes(case)
        while self._held_bytes + size > CASE_CACHE_BYTES:
            other = next((one for one in self._cases if one[0] != operation), None)
            if other is None:
                break
            self._held_bytes -= _case_bytes(self._cases.pop(other))
        if self._held_bytes + size <= CASE_CACHE_BYTES:
            self._cases[whole] = case
            self._held_bytes += size
        return case


def _case_bytes(case: ExactCase | None) -> int:
    return 0 if case is None else case.nbytes
