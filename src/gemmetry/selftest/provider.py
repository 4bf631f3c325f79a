"""Reads the catalogue, ``mutants.csv``: kernels with deliberate bugs, and correct kernels that are
easy to mistake for one.

A row names the change that makes the kernel. On the host, it is a class or an entry of ``KERNELS``
in a module of this package, with class attributes; in CUDA and Triton, the fields of a recipe. The
numbers are those of the list of bugs that real GEMM kernels had (docs/verification.md). A bug may
occur more than once, with another carrier or in a variant that only another check finds.

Kernels whose kind begins with ``u`` are unseen: their author had not seen the checks, and the
authors of the checks had not seen them. No check is listed that should kill them, and their score
is separate. An unseen mutant for which a check is written later no longer counts as unseen.

Two bugs of the list have no CUDA mutant, because they leave no trace on an H200 (CUDA 13.0, driver
580). 21, a block that exits before its bulk stores have read its memory, was right in 480 of 480
launches, even if the next block's copies went to the same memory. 22, results of matrix
instructions that are read before the wait, is repaired by ptxas, which inserts the wait (warning
C7518).

The provider looks mutants up in the catalogue, and builds them by carrier.
"""

from __future__ import annotations

import csv
from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any, ClassVar, cast

from gemmetry.domain.contracts import Executable, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import UnknownNameError, UnsupportedError
from gemmetry.domain.operation import Operation, Signature, operation_name
from gemmetry.domain.record import Trait
from gemmetry.hardware.host_device import set_blas_threads
from gemmetry.providers.base import BaseProvider, is_installed

WITHOUT_MUTANT: Mapping[int, str] = {
    53: (
        "a kernel that calls a vendor's library gives correct results, and operations do not "
        "require a kernel of one's own; a profiler's list of kernel names shows such calls"
    )
}
"""Number in the list of bugs -> why there is no mutant for it."""


class Carrier(StrEnum):
    """The kind of kernel that a mutant is written as."""

    HOST = "host"
    """The tiled GEMM emulator of ``emulator.py``, in numpy."""
    TRITON = "triton"
    """``providers/kernels/triton_mutants.py``, on a GPU or in the interpreter on the CPU."""
    CUDA = "cuda"
    """``providers/kernels/mutants/*.cu``, compiled at run time. ``tiled_matmul`` computes one tile
    per block, in ``split_k_matmul`` blocks share a tile, and in ``hopper_matmul`` a ring of bulk
    copies feeds Hopper's matrix instructions."""


HOPPER_SOURCE = "hopper_matmul"
SPLIT_SOURCE = "split_k_matmul"


@dataclass(frozen=True, slots=True)
class HostRecipe:
    """The class of the emulator that a mutant is built from."""

    source: str = ""
    """``module.Class``, or ``module.entry`` of its ``KERNELS``."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of the class that differ."""


@dataclass(frozen=True, slots=True)
class CudaRecipe:
    """Compilation and launch of a mutant."""

    source: str = "tiled_matmul"
    blocks: int = 0
    """Blocks (or clusters) among which all tiles are divided; 0: one for each tile."""
    serial: bool = False
    """Split-K: slices are added in turn, not by atomics."""
    cluster: int = 1
    chunk: int = 16
    """Columns of the result that one bulk store takes."""
    extra_bytes: int = 0
    """Dynamic shared memory in addition to what the source needs."""
    in_launch: bool = False
    """The bug is in how the kernel is launched, not in the kernel."""
    code: int = 0
    """The value of the macro MUTANT where another kernel has the bug's number; 0: that number."""


@dataclass(frozen=True, slots=True)
class TritonRecipe:
    """The compile-time constants of a mutant apart from its number, and its grid."""

    programs: int = 0
    """Programs among which all tiles are divided; 0: one for each tile."""
    splits: int = 1
    reversed: bool = False
    thirds: bool = False
    code: int = 0
    """The constant MUTANT where another kernel has the bug's number; 0: that number."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One kernel of the catalogue: a mutant, or a correct kernel that is easy to mistake for
    one."""

    number: int
    """Number in the list of bugs, or in the list of correct but tricky kernels."""
    slug: str
    """The middle part of the configuration's name, unique among the kernels of one carrier."""
    bug: str
    """Bug (or trick) in one line."""
    carrier: Carrier
    operation: str
    """The name of the operation it runs on."""
    is_bug: bool = True
    """False for a kernel that is correct but tricky, and must pass."""
    killed_by: tuple[str, ...] = ()
    """Checks that are expected to catch it, or outcomes (``launch_error``, ``timeout``) with which
    it may end; empty for a correct kernel."""
    declared: tuple[Trait, ...] = ()
    tile: tuple[int, int, int] = (64, 64, 32)
    """Sides along M, N and K, part of the configuration, so that shapes with tails can be
    derived."""
    level: str = "standard"
    """The lowest level of verification that has a check for it."""
    recipe: Any = field(default=None, repr=False, compare=False)
    """The recipe of its carrier."""
    is_unseen: bool = False
    """Numbered and scored separately."""

    @property
    def configuration(self) -> str:
        """The name of its configuration: ``m05_k_tail_dropped_host``, ``ok03_stream_k_host``, and
        for unseen ones ``u07_..._host`` and ``uok07_..._host``."""
        kind = ("u" if self.is_bug else "uok") if self.is_unseen else "m" if self.is_bug else "ok"
        return f"{kind}{self.number:02d}_{self.slug}_{self.carrier}"

    @property
    def code(self) -> int:
        """The value of MUTANT in a source that contains several mutants."""
        return (self.recipe.code or self.number) if self.is_bug else 0

    def as_configuration(self) -> Configuration:
        """The configuration that the provider lists."""
        m, n, k = self.tile
        return Configuration(
            self.configuration, {"tile_m": m, "tile_n": n, "tile_k": k, "vehicle": self.carrier}
        )


@cache
def all_mutants() -> tuple[Mutant, ...]:
    """All kernels of the catalogue, by carrier and in the order of their numbers; unseen ones
    last."""
    table = files(__package__).joinpath("mutants.csv").read_text(encoding="utf-8")
    return tuple(map(_mutant, csv.DictReader(table.splitlines())))


def _mutant(row: Mapping[str, str]) -> Mutant:
    carrier = Carrier(row["carrier"])
    m, n, k = map(int, row["tile"].split("x"))
    return Mutant(
        number=int(row["number"]),
        slug=row["slug"],
        bug=row["what"],
        carrier=carrier,
        operation=row["operation"],
        is_bug=row["kind"] in ("m", "u"),
        killed_by=tuple(row["killed_by"].split()),
        declared=tuple(map(Trait, row["declared"].split())),
        tile=(m, n, k),
        level=row["level"] or "standard",
        recipe=_recipe(carrier, row["change"]),
        is_unseen=row["kind"].startswith("u"),
    )


def _recipe(carrier: Carrier, change: str) -> HostRecipe | CudaRecipe | TritonRecipe:
    """The recipe of ``[source] [name=value ...]``."""
    fields: dict[str, Any] = {}
    for word in change.split():
        name, equals, value = word.partition("=")
        fields |= {name: literal_eval(value)} if equals else {"source": name}
    if carrier is Carrier.HOST:
        return HostRecipe(fields.pop("source"), attributes=fields)
    return CudaRecipe(**fields) if carrier is Carrier.CUDA else TritonRecipe(**fields)


@cache
def mutants_by_configuration() -> Mapping[str, Mutant]:
    """Name of a configuration -> kernel of the catalogue."""
    return {item.configuration: item for item in all_mutants()}


@cache
def signature_of(operation: str) -> Signature:
    """The signature of the operation named `operation`."""
    return parse_operation(operation).signature


_CARRIERS: Mapping[Carrier, tuple[str, tuple[TargetKind, ...], tuple[str, ...]]] = {
    Carrier.HOST: ("emulator", (TargetKind.CPU,), ()),
    Carrier.TRITON: ("torch_callers", (TargetKind.CPU, TargetKind.CUDA), ("triton", "torch")),
    Carrier.CUDA: ("cuda", (TargetKind.CUDA,), ("cuda.bindings", "torch")),
}
"""Carrier -> the module that builds its kernels, the kinds of device on which they run, and modules
without which they cannot."""


def carrier_problem(carrier: Carrier, target: Target) -> str | None:
    """Why kernels of `carrier` do not run on `target`; None if they do."""
    _, kinds, needs = _CARRIERS[carrier]
    if target.kind not in kinds:
        return f"{carrier} kernels do not run on {target}"
    if target.index is None:
        return f"no {target} is on this machine"
    missing = [name for name in needs if not is_installed(name)]
    return f"needs {' and '.join(missing)}" if missing else None


class MutantProvider(BaseProvider):
    """Kernels with deliberate bugs, and correct ones that are easy to mistake for wrong.

    They serve the self-test of verification. An operation has the kernels that the catalogue lists
    for it, and any other operation has none.
    """

    name: ClassVar[str] = "mutant"
    description: ClassVar[str] = "kernels with deliberate bugs, for the self-test of verification"

    def targets(self) -> Sequence[Target]:
        targets = [Target(TargetKind.CPU)]
        if is_installed("torch"):
            from gemmetry.hardware.torch_device import gpu_targets

            targets += [target for target in gpu_targets() if target.kind is TargetKind.CUDA]
        return targets

    def supports(self, operation: Operation, target: Target) -> str | None:
        reason = "no mutant computes operations of this form"
        for item in all_mutants():
            if _computes(item, operation):
                problem = carrier_problem(item.carrier, target)
                if problem is None:
                    return None
                reason = problem
        return reason

    def configurations(self, operation: Operation, target: Target) -> Iterable[Configuration]:
        name = operation_name(operation)
        return [
            item.as_configuration()
            for item in all_mutants()
            if item.operation == name and carrier_problem(item.carrier, target) is None
        ]

    def parse_configuration(
        self, name: str, operation: Operation, target: Target
    ) -> Configuration | None:
        item = mutants_by_configuration().get(name)
        return item.as_configuration() if item and _computes(item, operation) else None

    def build(self, dispatch: Dispatch, workspace: Workspace) -> Executable:
        """Build the mutant, at its own shape or at any other of the same signature; on the host
        also with other factors alpha and beta.

        Raises:
            UnknownNameError: no mutant has that name.
            UnsupportedError: its carrier does not run here, or it computes something else.
        """
        name, known = dispatch.configuration.name, mutants_by_configuration()
        if name not in known:
            raise UnknownNameError("mutant", name, list(known))
        item = known[name]
        problem = carrier_problem(item.carrier, dispatch.target)
        if not _computes(item, dispatch.operation):
            problem = f"it computes {item.operation} and other shapes of that"
        if problem is not None:
            raise UnsupportedError(f"{dispatch}: {problem}")
        if dispatch.target.kind is TargetKind.CPU:
            # Its products are too small for several threads, which would keep spinning after each
            # product: that took most of the processor time of a self-test.
            set_blas_threads(1)
        builder = import_module(f"{__package__}.{_CARRIERS[item.carrier][0]}")
        return cast(Executable, builder.build(item, dispatch))


def _computes(item: Mutant, operation: Operation) -> bool:
    wanted, signature = signature_of(item.operation), operation.signature
    if item.carrier is Carrier.HOST:
        wanted, signature = _without_factors(wanted), _without_factors(signature)
    return wanted == signature


@cache
def _without_factors(signature: Signature) -> Signature:
    return replace(signature, alpha=1.0, beta=0.0)


PROVIDER = MutantProvider
