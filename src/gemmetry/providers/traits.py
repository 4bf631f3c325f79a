"""What the providers of this package declare of themselves, known without loading any."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import cast

from gemmetry import providers
from gemmetry.domain.contracts import ProviderTraits
from gemmetry.domain.target import TargetKind, parse_target

_SUFFIX = "_provider"


@cache
def builtin_names() -> tuple[str, ...]:
    """Names of the providers that come with gemmetry."""
    return tuple(
        module.name.removesuffix(_SUFFIX)
        for module in pkgutil.iter_modules(providers.__path__)
        if module.name.endswith(_SUFFIX)
    )


def builtin_module(name: str) -> ModuleType:
    """The module or package of a provider that comes with gemmetry."""
    return importlib.import_module(f"{providers.__name__}.{name}{_SUFFIX}")


@cache
def traits_of(name: str) -> ProviderTraits:
    """The traits of a provider, without loading it; providers of other packages, and unknown ones,
    have the default traits."""
    if name not in builtin_names():
        return ProviderTraits()
    return cast(ProviderTraits, getattr(builtin_module(name), "TRAITS", ProviderTraits()))


def baseline_names(names: Iterable[str]) -> list[str]:
    """Those of `names` that are vendor libraries, the best baseline first."""
    ranks = {name: traits_of(name).baseline_rank for name in names}
    ranked = [(rank, name) for name, rank in ranks.items() if rank is not None]
    return [name for _, name in sorted(ranked)]


def best_baseline() -> str:
    """``provider:configuration`` of the fastest of a vendor library's algorithms."""
    return next(
        f"{name}:{best}" for name in builtin_names() if (best := traits_of(name).best_configuration)
    )


def kernel_provider() -> str:
    """The provider that runs the functions of ``--kernel``."""
    return next(name for name in builtin_names() if traits_of(name).takes_kernels)


def recording_provider() -> str:
    """The provider whose dispatches ``trace record`` records where none is named."""
    return next(name for name in builtin_names() if traits_of(name).records_traces)


def legacy_provider() -> str:
    """The provider that the dispatch profiler's own set of dispatches is for."""
    return next(name for name in builtin_names() if traits_of(name).is_dispatch_profilers)


def support_places() -> list[tuple[str, str]]:
    """The (provider, target) pairs that the support matrix shows: by kind of device, vendor
    libraries first."""
    libraries = baseline_names(builtin_names())
    names = [*libraries, *(name for name in builtin_names() if name not in libraries)]
    places = [(name, target) for name in names for target in traits_of(name).support_targets]
    kinds = list(TargetKind)
    return sorted(places, key=lambda place: kinds.index(parse_target(place[1]).kind))
