"""Sizes in what libraries write while a program runs: torch's TunableOp results, and the command
lines that hipBLASLt logs.

Both write the sizes of column-major products. Such a product of m, n, k is in memory the row-major
one of M = n, N = m, K = k, which is the form of torch's results and of gemmetry's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

BENCH = "hipblaslt-bench"
"""The program whose command lines ``HIPBLASLT_LOG_MASK=32`` logs (hipBLASLt documentation, "Logging
and heuristics")."""

_VALIDATOR = "Validator"
_TUNABLE = "TunableOp"
_PARAMETERS = re.compile(
    r"[nt]{2}_(?P<m>\d+)_(?P<n>\d+)_(?P<k>\d+)(?:_b_(?P<batch>\d+))?(?:_.*)?", re.ASCII
)
"""``nt_25088_4096_64`` in lower case, with ``_b_16`` for a batch and, in later versions, more
behind it (torch, ``TunableGemm.h``, ``Signature``)."""
_OPTIONS = {
    "-m": "m", "--sizem": "m", "-n": "n", "--sizen": "n", "-k": "k", "--sizek": "k",
    "--batch_count": "batch",
}  # fmt: skip
"""Options of hipblaslt-bench."""


def is_tunable_op(cells: Sequence[str]) -> bool:
    """Whether a row of a CSV file is one that TunableOp writes."""
    return cells[0] == _VALIDATOR or _TUNABLE in cells[0]


def tunable_op_row(cells: Sequence[str]) -> str | Mapping[str, str] | None:
    """The sizes in a row of TunableOp's file, by name; the text itself where there are none, and
    None for a row about versions."""
    if cells[0] == _VALIDATOR:
        return None
    text = cells[1] if len(cells) > 1 else ""
    match = _PARAMETERS.fullmatch(text.lower())
    return _row_major(match.groupdict()) if match else text or cells[0]


def bench_rows(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The sizes of each command line of hipblaslt-bench in a log, by name; other lines are left
    out."""
    for number, line in enumerate(text.splitlines(), 1):
        _, found, options = line.partition(BENCH)
        if not found:
            continue
        try:
            words = shlex.split(options)
        except ValueError:  # An apostrophe of something else that was logged.
            words = options.split()
        given = {_OPTIONS[option]: value for option, value in pairwise(words) if option in _OPTIONS}
        yield number, _row_major(given)


def _row_major(sizes: Mapping[str, str | None]) -> Mapping[str, str]:
    given = {name: size for name, size in sizes.items() if size is not None}
    if "m" in given and "n" in given:
        given["m"], given["n"] = given["n"], given["m"]
    return given
