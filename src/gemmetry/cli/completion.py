"""Shell completion of options' values; each completer imports only what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import typer

from gemmetry.specs.keys import SETTINGS


def _list(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Completes the last item of a comma-separated list."""

    def complete(incomplete: str) -> list[str]:
        done, comma, part = incomplete.rpartition(",")
        given = set(done.split(","))
        return [
            f"{done}{comma}{name}"
            for name in names()
            if name.startswith(part) and name not in given
        ]

    return complete


def _providers() -> Iterable[str]:
    from gemmetry.providers.registry import provider_names

    return provider_names()


def _baselines() -> Iterable[str]:
    from gemmetry.providers.traits import best_baseline

    return [*_providers(), best_baseline()]


def _dtypes() -> Sequence[str]:
    from gemmetry.domain.dtypes import DTYPES

    return list(DTYPES)


def _kinds() -> Sequence[str]:
    from gemmetry.domain.operation import OperationKind

    return [*OperationKind, "all"]


def _epilogues() -> Sequence[str]:
    from gemmetry.domain.operation import EpilogueStep

    return ["none", *EpilogueStep]


def _presets() -> Sequence[str]:
    from gemmetry.specs.operations.shapes import PRESETS

    return list(PRESETS)


def _columns() -> Sequence[str]:
    from gemmetry.domain.columns import COLUMNS_BY_NAME

    return ["gemmetry", "summary", "dispatch-profiler", *COLUMNS_BY_NAME]


def _fixed(*names: str) -> Callable[[], Sequence[str]]:
    return lambda: names


def complete_names(*names: str) -> Callable[[str], list[str]]:
    """Completes an option that takes one of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


_DTYPE_LIST = _list(_dtypes)

COMPLETERS: dict[str, Callable[[str], list[str]]] = {
    **{key.name: _list(_fixed(*names)) for key in SETTINGS if (names := key.choices or key.names)},
    "providers": _list(_providers),
    "baseline": _list(_baselines),
    "dtypes": _DTYPE_LIST,
    "precisions": _DTYPE_LIST,
    "result_dtype": _DTYPE_LIST,
    "accumulator": _DTYPE_LIST,
    "operation_kind": _list(_kinds),
    "layouts": _list(_fixed("tt", "tn", "nt", "nn")),
    "epilogues": _list(_epilogues),
    "shapes": _list(_presets),
    "columns": _list(_columns),
    "device": _list(_fixed("cpu", "cuda", "cuda:0", "cuda:1", "cuda-sm_80", "hip", "vulkan")),
    "format": _list(_fixed("table", "block", "csv", "md", "none")),
    "scaling": _list(
        _fixed("none", "tensor", "row", "vs32_e8m0", "vs16_e4m3", "vs1x128", "vs1x128_vs128x128")
    ),
    "result_layout": _list(_fixed("t", "n")),
    "verification_providers": _list(_fixed("numpy", "device")),
}
"""Key of a spec -> its completion."""


def option(*names: str, panel: str, choices: tuple[str, ...] = (), **more: Any) -> Any:
    """An option of this panel of the help, whose value is completed from `choices`."""
    completer = complete_names(*choices) if choices else None
    return typer.Option(*names, rich_help_panel=panel, autocompletion=completer, **more)
