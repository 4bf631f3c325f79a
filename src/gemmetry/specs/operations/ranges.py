"""Reads sizes as users write them: ``256``, ``64:1024:128``, ``log2:64:8192``, lists and mixes."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
