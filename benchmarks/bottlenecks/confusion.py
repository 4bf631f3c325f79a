"""The planted cause of each kernel next to the answers of the diagnosis, of the document's
checklist and of NVIDIA's rules.

    python benchmarks/bottlenecks/confusion.py RESULTS                # a folder of campaign.sh
    python benchmarks/bottlenecks/confusion.py RESULTS -o table.csv   # or .md, .json …
    python benchmarks/bottlenecks/confusion.py RESULTS --update       # the tests' data and the page

With the tests' own data as RESULTS, ``--update`` rewrites the page only: after a rule has changed.

The diagnosis names a cause if its verdict or its first finding is the cause; "listed" is a cause
that is a later finding. The other two are shown as they are: the checklist's conclusions, and the
rule of NVIDIA's that promises the most of the run time, or where none does, of its own metric
("local").
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planted_kernels import KERNELS
from publish import KEPT, NAMES, PAGE, PRODUCTS, copy_results, existing, provenance, with_block

from gemmetry.counters.collector import read_counters
from gemmetry.counters.document import side_by_side
from gemmetry.counters.gates import diagnose
from gemmetry.counters.work import GemmWork, gemm_work
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.formats.counters.launches import ProfiledLaunch
from gemmetry.results.emit import write_tables
from gemmetry.results.tables import markdown_table

CAUSES = {planted.name: planted.cause for planted in KERNELS}
LARGE_PRODUCTS = "torch:matmul_4096x4096x4096_", "torch:matmul_8192x1024x8192_"
"""Products of cuBLAS that fill the GPU, on tensor cores except in f32."""
ROOF = "tensor_roof"


def _percent(value: float) -> str:
    return f"{value:.0f} %"


COLUMNS = (
    Column("kernel", heading="kernel"),
    Column("cause", heading="planted"),
    Column("named"),
    Column("verdict"),
    Column("first_finding", heading="first finding"),
    Column("checklist", heading="the document's checklist"),
    Column("rule", heading="NVIDIA's rule that promises most"),
    Column("promise", ColumnType.NUMBER, "%", heading="promise", format=_percent),
)


@dataclass(frozen=True, slots=True)
class Answered:
    """A launch with its planted cause ("" if none is) and the answers."""

    kernel: str
    cause: str
    verdict: str
    confidence: str
    findings: tuple[str, ...]
    conclusions: tuple[str, ...]
    rule: str
    promise: float | None

    @property
    def named(self) -> str:
        """Whether the diagnosis names the cause; "" if none is planted."""
        if not self.cause:
            return ""
        if self.cause in (self.verdict, self.findings[0]):
            return "yes"
        return "listed" if self.cause in self.findings else "no"


def answers(folder: Path) -> Iterator[Answered]:
    """The launches of a campaign's results: the severe variants, the mild ones, the products."""
    for name in NAMES[:2]:
        for launch in _launches(folder, name):
            kernel = launch.name.partition("(")[0]
            yield _answered(kernel, CAUSES[kernel.rpartition("_")[0]], launch)
    products = json.loads(existing(folder, PRODUCTS).read_text())
    for product, launch in zip(products, _launches(folder, NAMES[2]), strict=True):
        is_full = product.startswith(LARGE_PRODUCTS) and "_f32t_" not in product.partition("n_")[0]
        work = gemm_work(parse_operation(product.split(":")[1]))
        yield _answered(product, ROOF if is_full else "", launch, work)


def _launches(folder: Path, name: str) -> Iterator[ProfiledLaunch]:
    """The launches of a raw page, each with the rules' results of the details page next to it."""
    raw, details = (
        read_counters(existing(folder, f"{name}{page}.csv")) for page in ("", "_details")
    )
    if [one.name for one in raw] != [one.name for one in details]:
        raise SystemExit(f"{folder}: the pages of {name} are of different launches")
    infos = [
        replace(one, rules=other.rules) for one, other in zip(raw.infos, details.infos, strict=True)
    ]
    yield from replace(raw, infos=infos)


def _answered(
    kernel: str, cause: str, launch: ProfiledLaunch, work: GemmWork | None = None
) -> Answered:
    found = diagnose(launch, work)
    beside = side_by_side(launch, found, work)
    conclusions = (one.answer for one in beside.checklist if one.answer.endswith(" bound"))
    promises = [one for one in launch.info.rules if one.speedup_percent]
    best = max(
        promises,
        key=lambda one: (one.speedup_kind == "global", one.speedup_percent or 0.0),
        default=None,
    )
    return Answered(
        kernel=kernel,
        cause=cause,
        verdict=found.verdict.id,
        confidence=str(found.verdict.confidence),
        findings=tuple(one.id for one in found.findings),
        conclusions=tuple(dict.fromkeys(conclusions)),
        rule=best.identifier + " (local)" * (best.speedup_kind == "local") if best else "",
        promise=best.speedup_percent if best else None,
    )


def confusion_table(rows: Sequence[Answered]) -> Table:
    """A row for each launch."""
    return Table(
        name="confusion",
        columns=COLUMNS,
        rows=[
            (one.kernel, one.cause, one.named, f"{one.verdict} ({one.confidence})",
             one.findings[0], ", ".join(one.conclusions), one.rule, one.promise)
            for one in rows
        ],
    )  # fmt: skip


def summary(rows: Sequence[Answered]) -> str:
    """The table, and how many answers are right."""
    mild = [one for one in rows if one.kernel.endswith("_mild")]
    counts = []
    for name, of in (("severe variants and full products", planted(rows)), ("mild variants", mild)):
        named, listed = (sum(one.named == word for one in of) for word in ("yes", "listed"))
        counts.append(f"Of {len(of)} {name}, {named} are named, and {listed} more are listed.")
    return "\n".join([*markdown_table(confusion_table(rows)), "", *counts])


def planted(rows: Sequence[Answered]) -> list[Answered]:
    """The severe variants, and the products that fill the GPU."""
    return [one for one in rows if one.cause and not one.kernel.endswith("_mild")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and how many answers are right. Status 1 if one of a severe variant, or of
    a product that fills the GPU, is not; then nothing is updated."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--update", action="store_true", help=f"replace {KEPT.name} and the table "
                        f"in {PAGE.name}")  # fmt: skip
    options = parser.parse_args(arguments)
    rows = list(answers(options.results))
    if options.output:
        write_tables([confusion_table(rows)], options.output)
    print(summary(rows))
    if any(one.named != "yes" for one in planted(rows)):
        return 1
    if options.update:
        text = with_block(PAGE, f"{provenance(options.results)}\n\n{summary(rows)}")
        if options.results.resolve() != KEPT:
            copy_results(options.results, KEPT)
        PAGE.write_text(text)
        print(f"{KEPT} and the table of {PAGE} are replaced: review docs/diagnosis.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
