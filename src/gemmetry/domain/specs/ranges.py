"""Reads sizes as users write them: ``256``, ``64:1024:128``, ``log2:64:8192``, lists and mixes.

Sizes in what libraries write while a program runs: torch's TunableOp results, and the command
lines and profiles that hipBLASLt and rocBLAS log.

All write the sizes of column-major products. Such a product of m, n, k is in memory the row-major
one of M = n, N = m, K = k, which is the form of torch's results and of gemmetry's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from gemmetry.domain.errors import EmptySelectionError, RequestError

MAX_VALUES = 10_000_000
"""More values than this in one axis are treated as a typing mistake, before they use memory."""

MAX_SIZE = 10**12 - 1
"""Largest size that an operation's name can hold (docs/names.md: 12 digits)."""

_HINT = "Write 256, 64:1024:128 (end excluded), log2:64:8192 (end included) or a list of these."


def split_list(text: str) -> list[str]:
    """The parts of a comma- or space-separated list, blanks dropped."""
    return text.replace(",", " ").split()


_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")


def split_files(text: str) -> list[str]:
    """``a.csv,b.json`` -> both. A comma separates files only where every part ends in a suffix, so
    that a name may contain commas."""
    parts = [part.strip() for part in text.split(",")]
    return parts if all(map(_SUFFIX.search, parts)) else [text]


def parse_sizes(items: Iterable[int | str] | int | str) -> tuple[int, ...]:
    """All sizes that `items` name, in the order written, without duplicates.

    ``start:stop:step`` excludes the end, as in the dispatch profiler; ``start:stop`` has step 1;
    ``log2:start:stop`` doubles from the start and includes the end.

    Raises:
        RequestError: an item cannot be read, or a size or step is zero or negative.
        EmptySelectionError: a range, or all of `items`, is empty.
    """
    if isinstance(items, int | str):
        items = [items]
    values: dict[int, None] = {}
    for item in items:
        for part in split_list(item) if isinstance(item, str) else [item]:
            values.update(dict.fromkeys(_parse_item(part)))
    if not values:
        raise EmptySelectionError("no size is given", hint=_HINT)
    return tuple(values)


def parse_sizes_in_order(text: str) -> tuple[int, ...]:
    """``8192,8192,1024,1`` -> the sizes, in order and with duplicates.

    Raises:
        RequestError: a part is not a size.
    """
    return tuple(_check_size(_integer(part, text), text) for part in split_list(text))


def _parse_item(item: int | str) -> Iterable[int]:
    if isinstance(item, int):
        return [_check_size(item, str(item))]
    head, *tail = item.split(":")
    if head.strip().lower() == "log2" and len(tail) == 2:
        return _doubling(item, *(_integer(part, item) for part in tail))
    if len(tail) > 2:
        raise RequestError(f"{item!r} is not a size or a range of sizes", hint=_HINT)
    numbers = [_integer(part, item) for part in (head, *tail)]
    if not tail:
        return [_check_size(numbers[0], item)]
    start, stop, step = (*numbers, 1)[:3]
    _check_size(start, item)
    if step < 1:
        raise RequestError(f"the range {item!r} has the step {step}", hint="Steps start at 1.")
    values = range(start, stop, step)
    if not values:
        raise EmptySelectionError(
            f"the range {item!r} is empty: its end {stop} is excluded",
            hint="Write start:stop:step with stop above start.",
        )
    _check_size(values[-1], item)
    if len(values) > MAX_VALUES:
        raise RequestError(
            f"the range {item!r} contains {len(values):,} sizes (at most {MAX_VALUES:,})",
            hint="Give a larger step.",
        )
    return values


def _doubling(item: str, start: int, stop: int) -> list[int]:
    _check_size(start, item)
    if stop < start:
        raise EmptySelectionError(
            f"the range {item!r} is empty: it ends below its start",
            hint="Write log2:start:stop with stop at or above start.",
        )
    _check_size(stop, item)
    values = [start]
    while values[-1] * 2 <= stop:
        values.append(values[-1] * 2)
    return values


def _integer(text: str, item: str) -> int:
    text = text.strip()
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 15:
        raise RequestError(f"{item!r} is not a size or a range of sizes", hint=_HINT)
    return int(text)


def _check_size(value: int, item: str) -> int:
    if value < 1:
        raise RequestError(
            f"the size {value} in {item!r} is below 1", hint="Sizes are whole numbers from 1 up."
        )
    if value > MAX_SIZE:
        raise RequestError(
            f"the size {value} in {item!r} is larger than a name can hold",
            hint=f"The largest size is {MAX_SIZE}.",
        )
    return value


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
