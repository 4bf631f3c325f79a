"""Tables and JSON of what a table of kernels holds, and of how it does."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gemmetry.dispatcher.evaluation import Evaluation, Regret
from gemmetry.dispatcher.problems import CUBLAS
from gemmetry.dispatcher.table import DispatchTable, TunedShape
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.target import TargetKind, parse_target
from gemmetry.domain.units import format_ns, format_percent
from gemmetry.statistics.comparison import Difference

_CUBLAS = "cuBLAS"


def library_name(target: str) -> str:
    """What computes where no candidate is chosen: torch, whose library on NVIDIA is cuBLAS."""
    is_nvidia = parse_target(target).kind is TargetKind.CUDA
    return _CUBLAS if is_nvidia else CUBLAS.partition(":")[0]


def _size(shape: tuple[int, int, int]) -> str:
    return "x".join(map(str, shape))


def _why(entry: TunedShape) -> str:
    """Why a shape has its choice."""
    if entry.choice != CUBLAS:
        return "shown to be faster"
    return _WHY.get(entry.verdict, entry.verdict)


_WHY = {
    "": "no other is verified",
    Difference.SLOWER: "others are slower",
    Difference.NONE_SHOWN: "no difference shown",
    Difference.UNDECIDED: "undecided",
}
"""Verdict on the fastest other candidate -> why the library computes a shape all the same."""


def entry_table(table: DispatchTable) -> Table:
    """One row for each measured shape."""
    library = library_name(table.target)
    columns = (
        Column("shape", description="M, N and K"),
        Column("signature", description="formats, layouts and modifiers"),
        Column("choice", description="what is run"),
        Column("ratio", ColumnType.NUMBER, format=lambda value: f"{value:.3f}", absent="–",
               description=f"time of the fastest other candidate over that of {library}"),
        Column("why", description="the reason for the choice"),
        Column("verdict", absent="–", description="what the ratio shows"),
    )  # fmt: skip
    rows = [
        [
            _size(entry.shape),
            entry.signature,
            library if entry.choice == CUBLAS else entry.choice,
            entry.ratio,
            _why(entry),
            entry.verdict or None,
        ]
        for entry in table.entries
    ]  # fmt: skip
    return Table("choices", columns, rows)


_SHARES = ("geometric_mean", "p95", "largest", "near")


def regret_table(found: Evaluation, library: str = _CUBLAS) -> Table:
    """One row for each policy, and for each kind of family; `library` computes the rest
    (:func:`library_name`)."""

    def share(name: str, heading: str, what: str) -> Column:
        return Column(name, ColumnType.NUMBER, format=format_percent, absent="–", heading=heading,
                      description=what)  # fmt: skip

    columns = (
        Column("policy", description="how kernels are chosen"),
        Column("shapes", ColumnType.INTEGER),
        share("geometric_mean", "mean", "geometric mean of the regret"),
        share("p95", "p95", "95 % quantile of the regret, from 20 shapes on"),
        share("largest", "largest", "largest regret"),
        share("near", "within 5%", "share of the shapes with a regret of at most 5 %"),
        Column("speedup", ColumnType.NUMBER, format=lambda value: f"{value:.3f}x", absent="–",
               heading=f"vs {library}",
               description=f"geometric mean of the speed relative to {library}"),
    )  # fmt: skip
    kinds = [one for one in found.families if one.shapes]
    rows = [
        [name, one.shapes, *(getattr(one, share) for share in _SHARES), one.speedup]
        for name, one in (
            *((one.name, one) for one in found.policies[:1]),
            *((f"  {one.name}", one) for one in kinds),
            *((one.name.replace(_CUBLAS, library), one) for one in found.policies[1:]),
        )
    ]
    return Table("regret", columns, rows)


def replay_table(found: Evaluation) -> Table:
    """One row for each unseen shape."""

    def time(name: str, what: str) -> Column:
        return Column(name, ColumnType.NUMBER, "ns", what, format=format_ns)

    columns = (
        Column("shape", description="M, N and K"),
        Column("signature", description="formats, layouts and modifiers"),
        Column("choice", description="the candidate that is chosen"),
        Column("step", description="the step that found it"),
        Column("reason", description="why"),
        time("chosen_ns", "its median"),
        Column("best", description="the fastest candidate"),
        time("best_ns", "its median"),
        time("cublas_ns", "median of cuBLAS"),
        Column("regret", ColumnType.NUMBER, format=format_percent,
               description="chosen_ns / best_ns - 1"),
        Column("known_family", ColumnType.BOOLEAN, description="the table has the same N and K"),
        Column("restricted", ColumnType.BOOLEAN, description="the first choice was not measured"),
    )  # fmt: skip
    rows = [
        [
            _size(one.problem.shape), one.problem.signature, one.choice.candidate,
            str(one.choice.step), one.choice.reason, one.chosen_ns, one.best,
            one.times_ns[one.best], one.times_ns[CUBLAS], one.regret, one.is_known_family,
            one.was_restricted,
        ]
        for one in found.replayed
    ]  # fmt: skip
    return Table("choices", columns, rows)


def evaluation_document(found: Evaluation) -> dict[str, Any]:
    """An evaluation as JSON."""

    def document(one: Regret) -> dict[str, Any]:
        return asdict(one)

    return {
        "policies": [document(one) for one in found.policies],
        "families": [document(one) for one in found.families],
        "noise": document(found.noise),
        "coverage": found.own_choices,
        "shapes_in_table": found.seen,
        "shapes_without_cublas": found.unusable,
        "choices": replay_table(found).records(),
    }
