"""Diagnoses and comparisons of hardware counters as one HTML file that works offline.

Names of kernels come from reports of any origin: the template escapes them, and plotly's texts are
escaped where they are made.

The lines and points of a roofline with one or more launches, for pages and for pictures.

Each launch is shown against the roofs of its own GPU at its own clock; roofs that agree are one
line. A level of memory has a colour, which its slope and the points at its intensity share; where
launches have different roofs, the second slope of a level has a colour of its own.

Rooflines of launches as one picture, PNG or SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import unescape
from typing import Any, NamedTuple

from gemmetry.counters.comparison import STALL_SHARE, CounterComparison, KernelComparison
from gemmetry.counters.document import ChecklistItem
from gemmetry.counters.facts import MEANINGS
from gemmetry.counters.model import LaunchDiagnosis
from gemmetry.counters.roofline import LaunchRoofline
from gemmetry.counters.text import (
    DiagnosedLaunch,
    amount_text,
    change_text,
    finding_parts,
    measured_text,
    speedup_text,
    value_text,
)
from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Column, Table
from gemmetry.domain.units import format_bytes, format_gflops
from gemmetry.hardware.detect import own_version
from gemmetry.results.emit import IMAGES
from gemmetry.results.pages import Figure, page_section, rendered_page, text_of
from gemmetry.results.palette import COLOURS, image, set_log_scales
from gemmetry.results.tables import require
from gemmetry.results.texts import cut, elide, printable

_FILE = "the JSON document"
_ABOUT = (
    "A launch has a point for each level of memory, in its colour and at the operations per byte "
    "of that level. Slopes are bandwidths, the upper lines the peak of the datasheet and that at "
    "the clock of the launch. A point on the slope of its own level means that this memory limits "
    "the launch."
)
_MOST_STALLS = 8


def diagnosis_page(launches: Sequence[DiagnosedLaunch], problems: Sequence[str]) -> str:
    """The page of ``gemmetry counters diagnose -o x.html``.

    Raises:
        RequestError: plotly is not installed.
    """
    sections = []
    for number, one in enumerate(launches):
        found = one.diagnosis
        sides = [] if one.roofline is None else [Side("", found.device, one.roofline)]
        sections.append(page_section(
            f"kernel-{number}", cut(found.kernel, 30), cut(found.kernel), _ABOUT,
            [("Roofline", roofline_figure(sides)), ("What warps wait for", stall_figure(one))],
            _diagnosis_tables(number, one), _FILE, fluid=True,
        ))  # fmt: skip
    return rendered_page(
        title="Diagnosis of hardware counters",
        identity=[*sorted({one.diagnosis.device for one in launches if one.diagnosis.device}),
                  f"gemmetry {own_version()}"],
        groups=[{"heading": cut(one.diagnosis.kernel, 90), "minor": False,
                 "items": [("Verdict", _sentence(one.diagnosis))]} for one in launches],
        problems=problems,
        sections=sections,
    )  # fmt: skip


def comparison_page(found: CounterComparison) -> str:
    """The page of ``gemmetry counters compare -o x.html``.

    Raises:
        RequestError: plotly is not installed.
    """
    first = found.reports[0].label
    sections, groups = [], []
    for number, one in enumerate(found.kernels):
        labelled = ((first, one.first), (one.label, one.second))
        title = cut(one.first.name, 60)
        items = [(label, _sentence(side.diagnosis)) for label, side in labelled]
        items += [(word, ", ".join(ids)) for word, ids in
                  (("Gone", one.gone), ("New", one.new), ("Note", [one.note] if one.note else []))
                  if ids]  # fmt: skip
        groups.append({"heading": f"{title}: {first} and {one.label}", "minor": False,
                       "items": items})  # fmt: skip
        rows = [[change.metric, value_text(change.first, change.unit),
                 value_text(change.second, change.unit), change_text(change), change.verdict,
                 change.note] for change in one.metrics]  # fmt: skip
        heads = ("metric", first, one.label, "change", "verdict", "note")
        columns = tuple(
            Column("note" if head == "note" else f"column {n}", heading=cut(head))
            for n, head in enumerate(heads)
        )
        sections.append(page_section(
            f"kernel-{number}", cut(one.first.name, 30), title, _ABOUT,
            [("Both on one roofline", roofline_figure(compared_sides(first, one))),
             ("Shares of the stalls", compared_stalls(first, one))],
            [("Metrics", Table(f"changes {number}", columns, rows))], _FILE, fluid=True,
        ))  # fmt: skip
    unmatched = Table("unmatched", (Column("report"), Column("kernel")), list(found.unmatched))
    # Kernels without a counterpart.
    sections.append(page_section(
        "unmatched", "Only in one", "Kernels that only one report has",
        "There is nothing to compare them with; --kernel REGEX selects what is compared.",
        sheets=[("", unmatched)], file=_FILE, fluid=True,
    ))  # fmt: skip
    return rendered_page(
        title=" · ".join(one.label for one in found.reports),
        identity=[*(f"{one.label} = {cut(one.source)}" for one in found.reports),
                  f"gemmetry {own_version()}"],
        groups=groups, problems=found.problems, sections=sections,
    )  # fmt: skip


def _sentence(found: LaunchDiagnosis) -> str:
    verdict = found.verdict
    return f"{verdict.claim}. ({verdict.id}, {verdict.confidence} confidence)"


def _diagnosis_tables(number: int, one: DiagnosedLaunch) -> list[tuple[str, Table]]:
    found = one.diagnosis

    def table(name: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[str, Table]:
        columns = tuple(Column(head) for head in heads)
        return name, Table(f"{name} {number}", columns, rows)

    tables = [
        table("Findings", ("id", "part", "text"),
              [(one.id, part, text) for one in found.findings for part, text in (
                  ("claim", f"{one.claim} ({one.confidence} confidence)"), *finding_parts(one))]),
        table("Suppressed", ("id", "claim", "reason"),
              [(void.id, void.claim, void.reason) for void in found.suppressed]),
        table("Work", ("quantity", "measured", "expected", "check", "reason"),
              [(check.quantity, amount_text(check, check.measured),
                amount_text(check, check.expected), check.verdict, check.reason)
               for check in found.work_check]),
    ]  # fmt: skip
    if one.checklists is not None:
        heads = ("item", "measured", "target", "answer", "remark")
        tables += [
            table("The document's checklist", heads, _items(one.checklists.checklist)),
            table("What the document expects", heads, _items(one.checklists.insights)),
            table("NVIDIA's rules", ("rule", "text", "speed-up", "remark"),
                  [(rule.rule, rule.title, speedup_text(rule), rule.remark)
                   for rule in one.checklists.rules]),
        ]  # fmt: skip
    return tables


def _items(items: Iterable[ChecklistItem]) -> list[tuple[str, ...]]:
    # A number and its unit stay on one line where the columns are narrow.
    return [
        (one.item, *(text.replace(" ", "\N{NO-BREAK SPACE}")
                     for text in (measured_text(one), one.target)), one.answer, one.remark)
        for one in items
    ]  # fmt: skip


def stall_figure(one: DiagnosedLaunch) -> Figure | None:
    """The largest stall shares of a launch; None where they are not known."""
    if one.stalls is None or one.stalls.missing:
        return None
    ranked = [(name, share) for name, share in one.stalls.ranked() if share > 0][:_MOST_STALLS]
    names = [name for name, _ in ranked]
    meanings = [f"waiting {MEANINGS[name].meaning}" if name in MEANINGS else "" for name in names]
    bars = _bars("", names, [100 * share for _, share in ranked], meanings)
    return _stall_bars(names, [bars]) if names else None


def compared_stalls(first: str, one: KernelComparison) -> Figure | None:
    """The largest stall shares of both launches, as bars; None where stalls were not counted."""
    stalls = [change for change in one.metrics if change.metric.startswith(STALL_SHARE)]
    names = [change.metric.removeprefix(STALL_SHARE) for change in stalls]
    sides = ((first, [change.first for change in stalls]),
             (one.label, [change.second for change in stalls]))  # fmt: skip
    bars = [_bars(label, names, values, tint=3 + n) for n, (label, values) in enumerate(sides)]
    return _stall_bars(names, bars) if names else None


def _bars(
    label: str, names: Sequence[str], values: Sequence[float | None],
    meanings: Sequence[str] = (), *, tint: int = 3,
) -> dict[str, Any]:  # fmt: skip
    return {
        "type": "bar", "orientation": "h", "name": text_of(label), "tint": tint, "y": list(names),
        "x": list(values), "customdata": list(meanings), "showlegend": bool(label),
        "hovertemplate": f"%{{y}}: %{{x:.1f}} %{'<br>%{customdata}' if meanings else ''}"
        "<extra></extra>",
    }  # fmt: skip


def _stall_bars(names: Sequence[str], traces: list[dict[str, Any]]) -> Figure:
    return {
        "traces": traces,
        "layout": {"barmode": "group", "yaxis": {"autorange": "reversed"},
                   "xaxis": {"title": "% of the time of the warps", "rangemode": "tozero"}},
        "height": 120 + (20 + 15 * len(traces)) * len(names), "wide": True,
    }  # fmt: skip


_SAME_ROOF = 0.05
"""Roofs that differ by less share a line: those of caches follow the clock of a launch, and on a
logarithmic axis such lines would lie on each other."""

_LEVELS = {
    "device memory": (0, 5, "solid"),
    "L2 cache": (1, 4, "dash"),
    "shared memory": (2, 6, "dashdot"),
}
"""Level of memory -> the places in the palette of its first slope and of all others, and their dash
as plotly calls it."""
_CEILINGS = {"datasheet": "solid", "at its clock": "dot"}
"""Name of a peak of arithmetic, and its dash."""
INK = -1
"""Stands for the colour of the text in the place of one of the palette."""
_GREY = 7
"""Place in the palette of ceilings after the first of their kind, which has the text's colour."""
_SYMBOLS = ("circle", "diamond-open", "square-open", "x")
_MARGIN = 4.0
"""Factor by which the horizontal axis reaches beyond the points and ridges."""


class Side(NamedTuple):
    """A launch on a roofline."""

    label: str
    """The report's; "" where there is only one."""
    device: str
    roofline: LaunchRoofline


@dataclass(slots=True)
class Roof:
    """A slope, in bytes per second, or a ceiling, in operations per second."""

    name: str
    value: float
    labels: list[str]
    """Labels of the launches below the heading."""
    level: str | None = None
    """One of :data:`_LEVELS`; None: a ceiling."""
    tint: int = INK
    """Place in the palette, or :data:`INK`."""
    dash: str = "solid"
    x: tuple[float, float] = (0.0, 0.0)

    @property
    def y(self) -> tuple[float, float]:
        """Operations per second at both ends."""
        low, high = (1.0, 1.0) if self.level is None else self.x
        return self.value * low, self.value * high


def roofline_figure(sides: Sequence[Side]) -> Figure | None:
    """The roofline of `sides`, for pages and pictures; None where no operations of any of them were
    counted."""
    known = [one for one in sides if one.roofline.operations_per_s]
    places = [level.intensity for one in known for level in one.roofline.levels if level.intensity]
    if not places:
        return None
    several = len({one.device for one in known}) > 1
    roofs: list[Roof] = []
    points: list[dict[str, Any]] = []
    for number, one in enumerate(known):
        own = [_add(roofs, roof) for roof in _roofs_of(one)]
        tints = {roof.level: roof.tint for roof in own if roof.level is not None}
        gpu = f" on {one.device}" if several and one.device else ""
        points += _points(one, gpu, _SYMBOLS[number % len(_SYMBOLS)], tints)
    _finish(roofs, places, [one.label for one in known])
    return {
        "traces": [*map(_line, roofs), *points],
        "layout": {"xaxis": {"title": "FLOP per byte", "type": "log"},
                   "yaxis": {"title": "TFLOP/s", "type": "log"}},
        "height": 480, "narrow_legend": True, "wide": True,
    }  # fmt: skip


def _points(
    side: Side, gpu: str, symbol: str, tints: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """A launch: its entry of the legend, and a point for each level of memory, all at its
    operations per second."""
    rate = side.roofline.operations_per_s or 0.0
    path = side.roofline.path or "operations"
    name = text_of(f"{_prefix([side.label])}{path}{gpu}, {_flops(rate)}")
    edge = {"line": {"width": 2}} if symbol.endswith("-open") else {}
    common = {
        "type": "scatter", "mode": "markers", "name": name, "legendgroup": name,
        "marker": {"size": 11, "symbol": symbol, **edge},
    }  # fmt: skip
    # The colours are those of the levels, so that the legend shows the symbol alone.
    yield {**common, "ink": True, "x": [None], "y": [None]}
    for level in side.roofline.levels:
        if level.intensity:
            yield {
                **common, "tint": tints.get(level.name, _LEVELS[level.name][0]),
                "showlegend": False,
                "x": [level.intensity], "y": [rate / 1e12],
                "hovertemplate": f"{name}<br>{level.name}: %{{x:.3g}} FLOP per byte<extra></extra>",
            }  # fmt: skip


def compared_sides(first: str, one: KernelComparison) -> list[Side]:
    """The launches of a kernel in the report `first` and in the one that it is compared with."""
    return [
        Side(label, side.diagnosis.device, side.roofline)
        for label, side in ((first, one.first), (one.label, one.second))
        if side.roofline is not None
    ]


def _roofs_of(side: Side) -> Iterator[Roof]:
    for level in side.roofline.levels:
        if level.peak_bytes_per_s:
            tint, _, dash = _LEVELS[level.name]
            yield Roof(level.name, level.peak_bytes_per_s, [side.label], level.name, tint, dash)
    peaks = (side.roofline.datasheet_peak, side.roofline.clock_peak)
    for (words, dash), peak in zip(_CEILINGS.items(), peaks, strict=True):
        if peak:
            yield Roof(f"{side.roofline.path or 'peak'} {words}", peak, [side.label], dash=dash)


def _add(roofs: list[Roof], new: Roof) -> Roof:
    """Add a roof, or where it is there already only its label; the roof in the list is returned."""
    alike = [one for one in roofs if (one.level, one.dash) == (new.level, new.dash)]
    for one in alike:
        if one.name == new.name and abs(new.value - one.value) <= _SAME_ROOF * one.value:
            one.labels += new.labels
            return one
    if alike:
        new.tint = _GREY if new.level is None else _LEVELS[new.level][1]
    roofs.append(new)
    return new


def _finish(roofs: Sequence[Roof], places: list[float], labels: Sequence[str]) -> None:
    """Give roofs their ends, and the names of a legend."""
    ridges = [_ridge(one, roofs) for one in roofs]
    low, high = min(places) / _MARGIN, max(places + [x for x in ridges if x is not None]) * _MARGIN
    for one, ridge in zip(roofs, ridges, strict=True):
        one.x = (low, high if ridge is None else ridge)
        value = _flops(one.value) if one.level is None else f"{format_bytes(one.value)}/s"
        prefix = "" if len(one.labels) == len(labels) else _prefix(one.labels)
        one.name = f"{prefix}{one.name}, {value}"


def _ridge(slope: Roof, roofs: Sequence[Roof]) -> float | None:
    """Ridge where a slope meets the highest ceiling of its launches; None without one.""" ""
    if slope.level is None:
        return None
    tops = [one.value for one in roofs
            if one.level is None and not set(slope.labels).isdisjoint(one.labels)]  # fmt: skip
    return max(tops) / slope.value if tops else None


def _prefix(labels: Sequence[str]) -> str:
    return f"{', '.join(labels)}: " if any(labels) else ""


def _flops(rate: float) -> str:
    return format_gflops(rate / 1e9)


def _line(roof: Roof) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines", "name": text_of(roof.name), "ink": roof.tint == INK,
        "tint": roof.tint, "line": {"dash": roof.dash}, "x": list(roof.x),
        "y": [value / 1e12 for value in roof.y], "hoverinfo": "name",
    }  # fmt: skip


_DASHES = {"solid": "-", "dash": "--", "dashdot": "-.", "dot": ":"}
_MARKERS = {"circle": "o", "diamond-open": "D", "square-open": "s", "x": "x"}
"""Markers of plotly -> those of matplotlib."""
_INK, _GRID = "#222222", "#e6e6e6"
_HEIGHT = 3.6
_TITLE_CHARACTERS = 90

Panel = tuple[str, str, Sequence[Side]]
"""Title, a sentence, and what is on its roofline."""


def diagnosis_panels(launches: Sequence[DiagnosedLaunch]) -> list[Panel]:
    """A roofline of each kernel, with its verdict."""
    return [
        (one.diagnosis.kernel, f"{one.diagnosis.device}: {one.diagnosis.verdict.claim}".strip(": "),
         [Side("", one.diagnosis.device, one.roofline)] if one.roofline is not None else [])
        for one in launches
    ]  # fmt: skip


def comparison_panels(found: CounterComparison) -> list[Panel]:
    """A roofline of each kernel with both of its launches."""
    first = found.reports[0].label
    panels: list[Panel] = []
    for one in found.kernels:
        ids = [side.diagnosis.verdict.id for side in one.sides]
        text = f"{first}: {ids[0]}, {one.label}: {ids[1]}"
        panels.append((one.first.name, text, compared_sides(first, one)))
    return panels


def figure_forms(panels: Callable[[], Sequence[Panel]]) -> dict[str, Callable[[], bytes]]:
    """Suffix of a picture -> what draws the rooflines in that format."""
    return {
        suffix: partial(lambda name: render_roofline(panels(), name), suffix[1:])
        for suffix in IMAGES
    }


def render_roofline(panels: Sequence[Panel], format_name: str) -> bytes:
    """The rooflines one below the other, as ``png`` or ``svg``; those without counted operations
    are left out, which the foot notes.

    Raises:
        RequestError: there is nothing to draw, or matplotlib is not installed.
    """
    require("matplotlib", extra="plot")

    def draw(axes: Any, title: str, text: str, drawing: Figure) -> None:
        _draw(axes, drawing)
        axes.set_title(f"{_plain(title)}\n{_plain(text)}", fontsize=10, loc="left", color=_INK)
        if hidden := len(panels) - len(shown):
            foot = f"left out, as operations were not counted: {hidden}"
            axes.figure.supxlabel(foot, fontsize=8)

    shown = [(_HEIGHT, partial(draw, title=title, text=text, drawing=found))
             for title, text, sides in panels
             if (found := roofline_figure(sides)) is not None]  # fmt: skip
    if not shown:
        raise RequestError(
            "there is no roofline to draw: the operations of no kernel were counted",
            hint="Collect them: gemmetry counters collect --set gemm.",
        )
    return image(shown, format_name)


def _plain(text: str) -> str:
    return elide(cut(printable(text), 4000), _TITLE_CHARACTERS)


def _draw(axes: Any, drawing: Figure) -> None:
    for trace in drawing["traces"]:
        look: dict[str, Any] = {"color": _INK if trace.get("ink") else COLOURS[trace["tint"]]}
        if trace.get("showlegend", True):
            look["label"] = _plain(unescape(trace["name"]))
        if trace["mode"] == "lines":
            look |= {"linestyle": _DASHES[trace["line"]["dash"]], "linewidth": 1.6}
        else:
            symbol = trace["marker"]["symbol"]
            look |= {
                "marker": _MARKERS[symbol], "markersize": 8, "linestyle": "none", "zorder": 3,
                "fillstyle": "none" if symbol.endswith("-open") else "full",
            }  # fmt: skip
        x, y = ([one for one in trace[axis] if one is not None] for axis in "xy")
        axes.plot(x, y, **look)
    set_log_scales(axes)
    axes.set_xlabel("FLOP per byte")
    axes.set_ylabel("TFLOP/s")
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
