"""Text of a diagnosis of hardware counters for a terminal, at most 80 columns wide.

Text of a comparison of hardware counters for a terminal, at most 80 columns wide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from gemmetry.counters.comparison import PERCENT, CounterComparison, KernelComparison, MetricChange
from gemmetry.counters.document import BRIEF_FINDINGS, ChecklistItem, RuleRemark, SideBySide
from gemmetry.counters.facts import StallShares
from gemmetry.counters.model import (
    CANNOT_TELL,
    COUNTER,
    CounterEvidence,
    Finding,
    LaunchDiagnosis,
    LaunchVerdict,
    WorkCheck,
    uncapitalised,
)
from gemmetry.counters.roofline import LaunchRoofline
from gemmetry.domain.units import format_bytes, format_gflops, format_ns, plural
from gemmetry.formats.counters.launches import ProfiledLaunch
from gemmetry.results.texts import MOST_CHARACTERS, cut, elide, fitted, printable

if TYPE_CHECKING:
    from rich.console import Console


_WIDTH = 80
_LABEL = 12
"""Columns of the labels on the left."""
_STYLES = {"high": "bold green", "medium": "bold yellow", "low": "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedLaunch:
    """A launch that stands for `count` alike ones, with everything that is known about it."""

    diagnosis: LaunchDiagnosis
    count: int = 1
    grid: str = ""
    """Text of :func:`grid_text`."""
    roofline: LaunchRoofline | None = None
    stalls: StallShares | None = None
    checklists: SideBySide | None = None


def print_diagnoses(launches: Sequence[DiagnosedLaunch], console: Console) -> None:
    """Print each launch: the verdict, the work, findings, what is suppressed, and the roofline."""

    def write(line: _Line) -> None:
        left = _LABEL + line.indent
        room = max(min(console.width, 100) - left, 20)
        # Names of metrics and options are copied, and so not broken.
        texts = wrap(cut(line.text, 2000), room, break_long_words=False, break_on_hyphens=False)
        for number, text in enumerate(texts or [""]):
            start = f"{'' if number else line.label:<{left}}"
            console.print(Text.assemble((start, "dim"), (text, line.style)), soft_wrap=True)

    for number, one in enumerate(launches):
        if number:
            console.print()
        found = one.diagnosis
        console.print(Text(_name(found.kernel, MOST_CHARACTERS), "bold"), soft_wrap=True)
        write(_Line("", _where(one)))
        console.print(_verdict(found.verdict, _LABEL), soft_wrap=True)
        for line in (_Line("", f"{found.verdict.claim}."), *_lines(one)):
            write(line)


def _verdict(verdict: LaunchVerdict, label: int) -> Text:
    return Text.assemble(
        (f"{'verdict':<{label}}", "dim"), (verdict.id, _STYLES[verdict.confidence]),
        f"  ({verdict.confidence} confidence)",
    )  # fmt: skip


def print_brief(launches: Sequence[DiagnosedLaunch], console: Console) -> None:
    """Print at most eleven lines for each launch: its verdict and its first three findings."""
    for number, one in enumerate(launches):
        if number:
            console.print()
        for line in brief_lines(one, min(console.width, _WIDTH)):
            console.print(line, soft_wrap=True)


def brief_lines(launch: DiagnosedLaunch, width: int) -> list[Text]:
    """Summary in at most eleven lines of `width` columns."""
    found, verdict = launch.diagnosis, launch.diagnosis.verdict
    lines = [
        Text(_name(found.kernel, width), "bold"),
        Text(cut(f"{_where(launch)}", width)),
        _verdict(verdict, 9),
        *(Text(f"         {line}") for line in _two_lines(f"{verdict.claim}.", width - 9)),
    ]  # fmt: skip
    for number, one in enumerate(found.findings[:BRIEF_FINDINGS], 1):
        next_step = f"collect: {one.collect}" if one.collect and not one.remedy else one.remedy
        if one.id == verdict.id or one.claim == verdict.claim:
            # The verdict is the finding: what to do has the line of the claim as well.
            steps = _two_lines(next_step, width - 3)
            lines += [
                Text(f"{mark:<3}{step}") for mark, step in zip((number, ""), steps, strict=False)
            ]
        else:
            text = f"{one.id} ({one.confidence}): {_claim(one, verdict)}"
            lines.append(Text(f"{number}  {fitted(text, width - 3)}"))
            lines.append(Text(f"   {fitted(next_step, width - 3)}", "dim"))
    return lines


def _two_lines(text: str, width: int) -> list[str]:
    """The whole sentences or words of `text` that fit."""
    first, *rest = wrap(printable(text), width) or [""]
    return [first, fitted(" ".join(rest), width)] if rest else [first]


def _name(kernel: str, most: int) -> str:
    """A kernel's name with its end, in which instances of a template differ."""
    return elide(cut(kernel, len(kernel)), most)


def _where(launch: DiagnosedLaunch) -> str:
    found = launch.diagnosis
    device = found.device or "unknown GPU"
    # Not every report has the product's name.
    is_version = device.replace(".", "").isdigit()
    parts = [f"compute capability {device}" if is_version else device]
    if found.duration_ns is not None:
        parts.append(format_ns(found.duration_ns))
    if launch.grid:
        parts.append(launch.grid)
    if launch.count > 1:
        parts.append(f"one of {plural(launch.count, 'launch', 'launches')} alike")
    return ", ".join(parts)


def grid_text(launch: ProfiledLaunch) -> str:
    """The blocks of a launch by dimension, on AMD the workgroups (its tools count work-items); ""
    where they are not known."""
    if launch.info.grid is None:
        return ""
    unit = "" if launch.table.tool == "ncu" else " workgroups"
    return f"grid {'x'.join(map(str, launch.info.grid))}{unit}"


class _Line(NamedTuple):
    label: str
    text: str
    style: str = ""
    indent: int = 0


def _lines(launch: DiagnosedLaunch) -> Iterator[_Line]:
    """Lines after the verdict: the work, findings, what is suppressed, the roofline, and the
    checklists."""
    found = launch.diagnosis
    yield from _section("work", ((_work(check), "") for check in found.work_check))
    for number, one in enumerate(found.findings, 1):
        claim = _claim(one, found.verdict)
        yield _Line(f"finding {number}", f"{one.id} ({one.confidence}): {claim}")
        for part, text in finding_parts(one):
            if part == "evidence":
                yield _Line("", text, "cyan", 2)
            elif part != SOURCE:
                yield _Line("", f"{part}: {text}", indent=2)
    yield from _section("suppressed", ((f"{void.id}: {void.claim}", f"because {void.reason}.")
                                       for void in found.suppressed))  # fmt: skip
    if launch.roofline is not None:
        yield from _section("roofline", ((line, "") for line in roofline_lines(launch.roofline)))
    if launch.checklists is None:
        return
    yield from _section("checklist", map(_item, launch.checklists.checklist))
    yield from _section("expected", map(_item, launch.checklists.insights))
    yield from _section("NVIDIA", map(_rule, launch.checklists.rules))


def _section(label: str, items: Iterable[tuple[str, str]]) -> Iterator[_Line]:
    """The texts of a part, each with its remark; the first one has the label."""
    for number, (text, remark) in enumerate(items):
        yield _Line("" if number else label, text)
        if remark:
            yield _Line("", remark, "dim", 2)


def _claim(finding: Finding, verdict: LaunchVerdict) -> str:
    """The claim of a finding, where the verdict does not contain it already."""
    if verdict.claim.startswith(finding.claim):
        return "the verdict"
    if verdict.claim.endswith(f": {uncapitalised(finding.claim)}"):
        return "the verdict if nothing were missing" if verdict.id == CANNOT_TELL else "the cause"
    return finding.claim


def _item(one: ChecklistItem) -> tuple[str, str]:
    target = f" (document: {one.target})" if one.target else ""
    answer = f": {one.answer}" if one.answer else ""
    return f"{one.item} {measured_text(one) or '–'}{target}{answer}", one.remark


def _rule(rule: RuleRemark) -> tuple[str, str]:
    gain = f" ({found})" if (found := speedup_text(rule)) else ""
    title = f": {rule.title}" if rule.title else ""
    return f"{rule.rule}{title}{gain}", rule.remark


SOURCE = "its source"
"""The part of a finding that only pages show."""


def finding_parts(finding: Finding) -> list[tuple[str, str]]:
    """Name and text of each part of a finding after its claim."""
    parts = [
        *(("evidence", evidence_text(one)) for one in finding.evidence),
        ("threshold", finding.threshold), (SOURCE, finding.threshold_source),
        ("against", finding.against), ("remedy", finding.remedy),
        ("ceiling", finding.ceiling), ("collect", finding.collect),
    ]  # fmt: skip
    return [(part, text) for part, text in parts if text]


def measured_text(item: ChecklistItem) -> str:
    """Measured value with its unit; "" where the report lacks it."""
    return "" if item.measured is None else f"{item.measured:.3g} {item.unit}".strip()


def speedup_text(rule: RuleRemark) -> str:
    """The speed-up that a rule of NVIDIA's promises; "" where it promises none."""
    if rule.speedup_percent is None:
        return ""
    return f"{rule.speedup_kind or 'estimated'} speed-up {rule.speedup_percent:.3g} %"


def _work(check: WorkCheck) -> str:
    if check.measured is None or check.expected is None:
        return f"{check.quantity}: {check.verdict} ({check.reason})"
    measured, expected = (amount_text(check, one) for one in (check.measured, check.expected))
    return f"{check.quantity}: {check.verdict}, {measured} of {expected} expected ({check.reason})"


def amount_text(check: WorkCheck, value: float | None) -> str:
    """An amount of the quantity of a work check; "" where it is not known."""
    if value is None:
        return ""
    if "bytes" in check.quantity:
        return format_bytes(value)
    return operations_text(value)


def operations_text(count: float) -> str:
    """A number of operations: ``137 GFLOP``."""
    return format_gflops(count / 1e9).removesuffix("/s")


def evidence_text(evidence: CounterEvidence) -> str:
    """Name of the metric, then its number with the unit."""
    plain = evidence.value == int(evidence.value) and abs(evidence.value) < 1e9
    value = f"{evidence.value:,.0f}" if plain else f"{evidence.value:.4g}"
    text = f"{evidence.metric} = {value} {evidence.unit}".rstrip()
    return text if evidence.source == COUNTER else f"{text} ({evidence.source})"


def roofline_lines(roofline: LaunchRoofline) -> list[str]:
    """The operations with their roofs, and a line for each level of memory."""
    lines = []
    if roofline.operations_per_s is not None:
        roofs = [
            f"{format_gflops(peak / 1e9)} {words}"
            for peak, words in (
                (roofline.clock_peak, f"at its clock of {(roofline.clock_hz or 0) / 1e9:.2f} GHz"),
                (roofline.datasheet_peak, f"({roofline.source})"),
            )
            if peak is not None
        ]
        of = f" of {', '.join(roofs)}" if roofs else ""
        rate = format_gflops(roofline.operations_per_s / 1e9)
        lines.append(f"{roofline.path}: {rate}{of}")
    for level in roofline.levels:
        peak = "" if level.peak_bytes_per_s is None else f" of {_rate(level.peak_bytes_per_s)}"
        intensity = "" if level.intensity is None else f", {level.intensity:.3g} FLOP per byte"
        lines.append(
            f"{level.name}: {format_bytes(level.bytes)} at {_rate(level.bytes_per_s)}{peak}"
            f"{intensity}"
        )
    return lines


def _rate(value: float) -> str:
    return f"{format_bytes(value)}/s"


MOST_KERNELS = 10
"""Kernels that are shown on a terminal; the others took less time in the first report."""

_NAME, _VALUE, _CHANGE = 31, 13, 10


def print_comparison(found: CounterComparison, console: Console) -> None:
    """Print each kernel: both verdicts, findings that came and went, and the metrics."""
    first = found.reports[0].label
    for report in found.reports:
        console.print(Text(f"{report.label} = {elide(cut(report.source, 4000), 70)}"),
                      soft_wrap=True)  # fmt: skip
    shown = sorted(found.kernels, key=lambda one: -one.first.total_ns)[:MOST_KERNELS]
    for one in shown:
        console.print()
        for line in kernel_lines(first, one):
            console.print(line, soft_wrap=True)
    for label, name in found.unmatched[:MOST_KERNELS]:
        console.print(Text(cut(f"only in {label}: {name}", _WIDTH), "dim"), soft_wrap=True)


def hidden_kernels(found: CounterComparison) -> int:
    """Compared kernels that :func:`print_comparison` leaves out."""
    return max(len(found.kernels) - MOST_KERNELS, 0)


def kernel_lines(first: str, one: KernelComparison) -> list[Text]:
    """The lines about one kernel of the report `first` and of another."""
    lines = [Text(elide(cut(one.first.name, 4000), _WIDTH), "bold")]
    if one.second.name != one.first.name:
        lines.append(Text(f"  with {elide(cut(one.second.name, 4000), _WIDTH - 7)}", "bold"))
    for label, side in ((first, one.first), (one.label, one.second)):
        info = side.launches[0].info
        launches = plural(len(side.launches), "launch", "launches")
        where = [info.device or "unknown GPU", launches, grid_text(side.launches[0])]
        lines.append(Text(cut(f"{label}: {', '.join(filter(None, where))}", _WIDTH), "dim"))
    before, after = one.first.diagnosis.verdict, one.second.diagnosis.verdict
    verdict = before.id if before.id == after.id else f"{before.id} → {after.id}"
    lines.append(Text.assemble(("verdict  ", "dim"), (verdict, "bold")))
    for label, found in ((first, before), (one.label, after)):
        claim = f"{label}: {found.claim} ({found.confidence} confidence)"
        text = wrap(cut(claim, 2000), _WIDTH - 9)
        lines.extend(Text(f"         {line}") for line in text)
    for heading, ids in (("gone", one.gone), ("new", one.new)):
        if ids:
            lines.append(Text.assemble((f"{heading:<9}", "dim"), cut(", ".join(ids), _WIDTH - 9)))
    if one.note:
        lines.append(Text(cut(f"note     {one.note}", _WIDTH), "yellow"))
    heads = "".join(f"{cut(label, _VALUE - 1):>{_VALUE}}" for label in (first, one.label))
    lines.append(Text(f"{'':<{_NAME}}{heads}{'change':>{_CHANGE}}", "dim"))
    lines.extend(_line(change) for change in one.metrics)
    if any(change.note.endswith("profile more of them") for change in one.metrics):
        lines.append(Text("Undecided: too few launches of the kernel to know their noise.", "dim"))
    return lines


def _line(change: MetricChange) -> Text:
    text = f"{cut(change.metric, _NAME - 1):<{_NAME}}"
    for value in (change.first, change.second):
        text += f"{value_text(value, change.unit):>{_VALUE}}"
    verdict = {"no difference shown": "no diff."}.get(change.verdict, change.verdict)
    return Text(f"{text}{change_text(change):>{_CHANGE}}  {verdict}".rstrip())


def value_text(value: float | None, unit: str) -> str:
    """A value in the most readable multiple of its unit."""
    if value is None:
        return "–"
    if unit in _SHOWN:
        return _SHOWN[unit](value)
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"


_SHOWN: Mapping[str, Callable[[float], str]] = {
    "ns": format_ns, "byte": format_bytes, "byte/s": _rate, "%": "{:.1f} %".format,
    "FLOP/s": lambda value: format_gflops(value / 1e9),
    "hz": lambda value: f"{value / 1e9:.2f} GHz",
}  # fmt: skip
"""Unit -> formatter of its values."""


def change_text(change: MetricChange) -> str:
    """Percentage points of percentages, otherwise percent of the first value."""
    if change.difference is None:
        return ""
    if change.unit == PERCENT:
        return f"{change.difference:+.1f} pp"
    if change.ratio is None:
        return "from 0"
    if change.ratio >= 10:
        return f"{change.ratio:.3g}×"
    return f"{100 * (change.ratio - 1):+.1f} %"
