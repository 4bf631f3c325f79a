"""Sizes in what libraries write while a program runs: torch's TunableOp results, and the command
lines and profiles that hipBLASLt and rocBLAS log.

All write the sizes of column-major products. Such a product of m, n, k is in memory the row-major
one of M = n, N = m, K = k, which is the form of torch's results and of gemmetry's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise

_COMMAND = re.compile(r"\b(?:hipblaslt|rocblas)-bench\s(?P<options>.*)")
"""Command lines of a library's benchmark (hipBLASLt: ``HIPBLASLT_LOG_MASK=32``; rocBLAS:
``ROCBLAS_LAYER=2``)."""
_CALL = re.compile(r"-\s*\{.*?\b(?:rocblas_)?function:\s*(?P<function>[^,}]+),(?P<named>.*)\}")
"""Calls of a profile (hipBLASLt: ``HIPBLASLT_LOG_MASK=64``; rocBLAS: ``ROCBLAS_LAYER=4``)."""
_NAMED = re.compile(r"\b(M|N|K|batch_count):\s*([^\s,}]+)")
_PRODUCT = re.compile("gemm|matmul")
_VALIDATOR = "Validator"
_TUNABLE = "TunableOp"
_PARAMETERS = re.compile(
    r"[nt]{2}_(?P<m>\d+)_(?P<n>\d+)_(?P<k>\d+)(?:_b_(?P<batch>\d+))?(?:_.*)?", re.ASCII
)
"""``nt_25088_4096_64`` in lower case, with ``_b_16`` for a batch and, in later versions, more
behind it (torch, ``TunableGemm.h``, ``Signature``)."""
_OPTIONS = {
    "-m": "m", "--sizem": "m", "-n": "n", "--sizen": "n", "-k": "k", "--sizek": "k",
    "--batch_count": "batch", "-f": "function", "--function": "function",
}  # fmt: skip
"""Options of hipblaslt-bench and rocblas-bench."""


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


def logged_rows(text: str) -> list[tuple[int, Mapping[str, str]]] | None:
    """The sizes of each matrix product that hipBLASLt or rocBLAS logged, by name; other lines are
    left out. None where the text is no log of theirs."""
    found: list[tuple[int, Mapping[str, str]]] = []
    is_log = False
    for number, line in enumerate(text.splitlines(), 1):
        given: dict[str, str]
        if command := _COMMAND.search(line):
            words = _words(command["options"])
            given = {_OPTIONS[one]: value for one, value in pairwise(words) if one in _OPTIONS}
        elif call := _CALL.search(line):
            given = {"function": call["function"]}
            for name, value in _NAMED.findall(call["named"]):
                given["batch" if name == "batch_count" else name.lower()] = value
        else:
            continue
        is_log = True
        if _PRODUCT.search(given.pop("function", "matmul")):
            found.append((number, _row_major(given)))
    return found if is_log else None


def _words(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:  # An apostrophe of something else that was logged.
        return options.split()


def _row_major(sizes: Mapping[str, str | None]) -> Mapping[str, str]:
    given = {name: size for name, size in sizes.items() if size is not None}
    if "m" in given and "n" in given:
        given["m"], given["n"] = given["n"], given["m"]
    return given
