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
"""

from __future__ import annotations

import csv
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.names import parse_operation
from gemmetry.domain.operation import Signature
from gemmetry.domain.record import Trait

WITHOUT_MUTANT: Mapping[int, str] = {
    53: (
        "a kernel that calls a vendor's library gives correct results, and operations do not "
        "require a kernel of one's own; a profiler's list of kernel names shows such calls"
    ),
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
    """How a mutant is compiled and launched."""

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
    """Its number in the list of bugs, or in the list of correct but tricky kernels."""
    slug: str
    """The middle part of the configuration's name, unique among the kernels of one carrier."""
    bug: str
    """What is wrong (or tricky), in one line."""
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
    """Along M, N and K. It is part of the configuration, so that shapes with tails can be derived
    from it."""
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
    match carrier:
        case Carrier.HOST:
            return HostRecipe(fields.pop("source"), attributes=fields)
        case Carrier.CUDA:
            return CudaRecipe(**fields)
        case Carrier.TRITON:
            return TritonRecipe(**fields)


@cache
def mutants_by_configuration() -> Mapping[str, Mutant]:
    """Name of a configuration -> kernel of the catalogue."""
    return {item.configuration: item for item in all_mutants()}


@cache
def signature_of(operation: str) -> Signature:
    """The signature of the operation named `operation`."""
    return parse_operation(operation).signature
