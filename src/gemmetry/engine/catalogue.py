"""The installed providers, for specs and listings.

Lists the dispatches of a plan without running it.

The support matrix: which provider can do which operation on which device, and why not.

The answers come from the providers' own ``supports``, so the matrix always agrees with a run.

The kernels of the ``cuda`` provider: which there are, and whether their machine code is what
their rows promise.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from gemmetry.domain.contracts import Provider
from gemmetry.domain.dispatch import Plan, Target, parse_operation, parse_target
from gemmetry.domain.errors import EmptySelectionError, RequestError
from gemmetry.domain.settings import RAY
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.engine.candidates import job_of
from gemmetry.engine.planning import make_lanes, planned_rows
from gemmetry.engine.slots import plan_for_nodes
from gemmetry.providers.base import support_places, traits_of
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.providers.cuda_provider.catalogue import (
    CheckedVariant,
    KernelVariant,
    check,
    variants_of,
)
from gemmetry.providers.cuda_provider.kernel import ARCHITECTURE, CudaKernel
from gemmetry.providers.cuda_provider.provider import PROVIDER
from gemmetry.providers.registry import (
    BrokenPluginError,
    UnavailableProvider,
    load_provider,
    provider_names,
)


class InstalledCatalogue:
    """Answers from the registry; each provider is created once for each set of options."""

    def __init__(self) -> None:
        self._loaded: list[tuple[str, dict[str, Any], Provider]] = []

    provider_names = staticmethod(cache(provider_names))
    traits = staticmethod(traits_of)

    def provider(self, name: str, options: Mapping[str, Any] | None = None) -> Provider:
        """The provider itself; a provider that cannot be imported is returned as unavailable, with
        the reason.

        Raises:
            UnknownNameError: no such provider. RequestError: the provider refuses its options.
        """
        wanted = dict(options or {})
        for known, known_options, loaded in self._loaded:
            if (known, known_options) == (name, wanted):
                return loaded
        try:
            provider = load_provider(name, wanted)
        except BrokenPluginError as error:
            provider = UnavailableProvider(name, error.message)
        self._loaded.append((name, wanted, provider))
        return provider

    def unavailable(self, name: str, options: Mapping[str, Any]) -> str | None:
        return self.provider(name, options).available()

    def targets(self, name: str, options: Mapping[str, Any]) -> Sequence[Target]:
        return self.provider(name, options).targets()


@dataclass(frozen=True, slots=True)
class ListedDispatch:
    """A dispatch of a plan by its names."""

    provider: str
    target: Target
    operation: str
    configuration: str
    refusal: str
    """Why the provider does not support it; "" if it does."""

    @property
    def name(self) -> str:
        return f"{self.operation}_{self.configuration}"


def list_dispatches(plan: Plan) -> Iterator[ListedDispatch]:
    """The dispatches of `plan` in its order, as a run would find them.

    Raises:
        EmptySelectionError: nothing is selected. RequestError: a configuration is unknown, or
            the executor cannot do what is requested.
    """
    if plan.settings.executor == RAY:
        plan = plan_for_nodes(plan, job_of(plan.settings), None)
    lanes = make_lanes(plan, load_provider)
    by_id = {item.lane.id: item.lane for item in lanes}
    for row, refusal in planned_rows(plan, lanes):
        lane = by_id[row.lane]
        yield ListedDispatch(lane.provider, lane.target, row.operation, row.configuration, refusal)


_TEXT = files(__package__).joinpath("support.csv").read_text("utf-8")
SAMPLES = tuple((row["label"], row["operation"]) for row in csv.DictReader(_TEXT.splitlines()))
"""The label of a row, and the operation that represents it."""


@dataclass(frozen=True, slots=True)
class SupportRow:
    """One operation: for each ``provider on target``, "" if it is supported, else the reason."""

    label: str
    operation: str
    refusals: Mapping[str, str]


def support_rows() -> Iterator[SupportRow]:
    """The matrix, row by row; needs no device, only the providers' own rules."""
    places = [(load_provider(name), parse_target(target)) for name, target in support_places()]
    for label, name in SAMPLES:
        operation = parse_operation(name)
        refusals = {
            f"{provider.name} on {target.name}": provider.supports(operation, target) or ""
            for provider, target in places
        }
        yield SupportRow(label, name, refusals)


Progress = Callable[[int, int, str], None]
"""Is called with what is done, how much there is, and the name of the latest."""

_LISTED = (
    Column("name", required=True),
    Column("rung", ColumnType.INTEGER, description="place on the ladder"),
    Column("adds", description="what it does that the rung before does not", required=True),
    Column("configurations", ColumnType.TEXTS, required=True),
)

_CHECKED = (
    Column("name", required=True),
    Column("rung", ColumnType.INTEGER),
    Column("configurations", ColumnType.TEXTS, description="those that use it", required=True),
    Column("arch", required=True),
    Column("source", required=True),
    Column("entry", required=True),
    Column("macros", ColumnType.MAPPING, required=True),
    Column("status", choices=("ok", "failed"), required=True),
    Column("registers", ColumnType.INTEGER, description="of a thread"),
    Column("spill_bytes", ColumnType.INTEGER, "B", "spilled registers of a thread"),
    Column("local_bytes", ColumnType.INTEGER, "B", "local memory of a thread"),
    Column("shared_bytes", ColumnType.INTEGER, "B", "shared memory of a block"),
    Column("expected_instructions", ColumnType.TEXTS, required=True),
    Column("missing_instructions", ColumnType.TEXTS, "", "expected ones that the code lacks"),
    Column("not_disassembled", description="why not"),
    Column("problems", ColumnType.TEXTS, description="why it failed", required=True),
)


def list_kernels() -> Table:
    """All kernels, the ladder first, with the configurations of a small product of each."""
    rows = []
    for kernel in _ladder_first(catalogue.kernels()):
        legal = (one.name for name in kernel.checked for one in kernel.legal(parse_operation(name)))
        rows.append((kernel.name, kernel.rung, kernel.adds, list(dict.fromkeys(legal))))
    return Table("kernels", _LISTED, rows)


def check_kernels(
    names: Collection[str] = (),
    *,
    jobs: int = 1,
    kept_in: Path | None = None,
    progress: Progress | None = None,
) -> Table:
    """Compile kernels in each of their configurations, GPU or not, and check the machine code.

    Args:
        names: those of kernels and configurations, as :func:`list_kernels` has them; globs of them;
            or the beginning of a kernel's name, such as ``r07``. (): all kernels.
        jobs: threads that compile.
        kept_in: a folder with the results of earlier calls; None: there is none.
        progress: is called with the number of compilations that are done, that of all, and the
            name of the latest.

    Raises:
        EmptySelectionError: no kernel and no configuration has such a name.
        RequestError: the bindings are not installed. CompileError: the compiler is missing.
    """
    if reason := PROVIDER().available():
        raise RequestError(f"the kernels cannot be compiled here: {reason}")
    every = [one for kernel in _ladder_first(catalogue.kernels()) for one in variants_of(kernel)]
    for name in names:
        if not any(_is_meant(name, one) for one in every):
            raise EmptySelectionError(
                f"no kernel and no configuration is called {name!r}",
                hint="gemmetry kernels list lists them all.",
            )
    variants = [one for one in every if not names or any(_is_meant(name, one) for name in names)]
    rows = []
    for found in check(variants, jobs, kept_in):
        rows.append(_row(found))
        if progress is not None:
            progress(len(rows), len(variants), ", ".join(found.variant.configurations))
    return Table("kernels", _CHECKED, rows)


def _is_meant(name: str, variant: KernelVariant) -> bool:
    kernel = variant.kernel.name
    called = (kernel, *variant.configurations)
    return any(fnmatchcase(one, name) for one in called) or kernel.startswith(f"{name}_")


def _ladder_first(kernels: tuple[CudaKernel, ...]) -> list[CudaKernel]:
    return sorted(kernels, key=lambda one: (one.rung is None, one.rung or 0, one.name))


_USAGE = ("registers", "spill_bytes", "local_bytes", "shared_bytes")


def _row(checked: CheckedVariant) -> tuple[object, ...]:
    variant = checked.variant
    kernel, compilation = variant.kernel, variant.compilation
    return (
        kernel.name, kernel.rung, variant.configurations, ARCHITECTURE, compilation.source,
        compilation.entry, dict(compilation.macros), "failed" if checked.problems else "ok",
        *(getattr(checked.usage, name, None) for name in _USAGE), list(variant.expected),
        None if checked.missing is None else list(checked.missing), checked.unchecked or None,
        list(checked.problems),
    )  # fmt: skip
