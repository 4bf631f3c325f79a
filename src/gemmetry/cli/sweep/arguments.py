"""Arguments of ``gemmetry sweep``, also as the scripts of the sweep analysis document write
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gemmetry.cli.arguments import WorkbenchCommand
from gemmetry.domain.errors import RequestError

LISTS = ("--threads", "--channels", "--ranks")
"""Options whose values the old scripts separate by spaces: ``--channels 28 42 56``."""


class SweepCommand(WorkbenchCommand):
    """A command whose lists of numbers may be separated by spaces."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _joined(args))


def _joined(args: Iterable[str]) -> list[str]:
    """Numbers after the first value of an option of :data:`LISTS` become a part of it."""
    result: list[str] = []
    in_list = False
    for word in args:
        if in_list and result[-1] not in LISTS and _is_numbers(word):
            result[-1] += f",{word}"
            continue
        result.append(word)
        in_list = word in LISTS or (in_list and _is_numbers(word))
    return result


def _is_numbers(word: str) -> bool:
    return bool(word) and all(part.strip().isdecimal() for part in word.split(",") if part)


def parse_numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    """``28,42,56``; None where the option is not given.

    Raises:
        RequestError: the text is not a list of whole numbers.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise RequestError(
            f"{option} takes whole numbers separated by commas, not {text!r}",
            hint=f"Write {option} 28,42,56,70.",
        )
    return tuple(map(int, parts))


def parse_counts(texts: Iterable[str], option: str) -> tuple[int, ...]:
    """Numbers, separated by commas or given one by one.

    Raises:
        RequestError: one of them is not a whole number.
    """
    parts = list(_parts(texts))
    for part in parts:
        if not part.isdecimal() or len(part) > 9:
            raise RequestError(
                f"{option}: {part!r} is not a positive whole number",
                hint=f"Write {option} 256,512.",
            )
    return tuple(map(int, parts))


def parse_axes(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Axes of the form ``NAME=VALUE,VALUE``.

    Raises:
        RequestError: one is not of that form, or occurs twice.
    """
    from gemmetry.training.axes import AXIS_FORM

    axes: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name, parts = name.strip(), tuple(_parts([values]))
        if not equals or not name or not parts:
            raise RequestError(f"--axis {text}: not of the form NAME=VALUE,VALUE", hint=AXIS_FORM)
        if name in axes:
            raise RequestError(f"--axis: {name} is given twice", hint="Give each value once.")
        axes[name] = parts
    return axes


def _parts(texts: Iterable[str]) -> Iterator[str]:
    return (part.strip() for text in texts for part in text.split(",") if part.strip())


def parse_steps(text: str | None) -> tuple[str, ...]:
    """``variance,plots``; () where the option ``--only`` is not given.

    Raises:
        RequestError: there is no such step, or its library is not installed.
    """
    if text is None:
        return ()
    from gemmetry.reports.sweeps.products import check_steps

    steps = tuple(part.strip() for part in text.split(",") if part.strip())
    check_steps(steps or (text,))
    return steps


def sweep_folders(folder: Path | None, others: Iterable[Path | None]) -> tuple[Path, Path | None]:
    """The folder of the sweep, and that of its analysis if that is what was named: by `folder`, or
    by the old scripts' options, which name the sweep, the folder of its analysis, or a file in it.

    Raises:
        RequestError: none is given, or they name different sweeps.
    """
    named = [_sweep_of(one) for one in (folder, *others) if one is not None]
    given = [sweep for sweep, _ in named]
    if not given:
        raise RequestError(
            "no sweep was given",
            hint="Give its folder: gemmetry sweep analyze sweep_20251124_222204",
        )
    if len({one.absolute() for one in given}) > 1:
        raise RequestError(
            f"the arguments name different sweeps: {', '.join(map(str, dict.fromkeys(given)))}",
            hint="Give the folder of one sweep.",
        )
    return given[0], next((place for _, place in named if place is not None), None)


def _sweep_of(path: Path) -> tuple[Path, Path | None]:
    """The sweep that `path` names, and the folder of its analysis if it names that."""
    from gemmetry.analysis.sweeps.layout import ANALYSIS_FOLDERS

    if path.suffix.lower() in (".csv", ".xlsx") and not path.is_dir():
        path = path.parent
    return (path.parent, path) if path.name in ANALYSIS_FOLDERS else (path, None)
