"""Sweeps as one HTML file that loads nothing from the network: one sweep, or several compared.

The first screen answers in sentences; figures and tables follow. Names come from traces and folders
of any origin: the template escapes them, and plotly's texts are escaped where they are made.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from gemmetry.domain.errors import RequestError
from gemmetry.domain.rows import Row, table
from gemmetry.domain.tables import Column, ColumnType, Table
from gemmetry.domain.units import format_change, format_interval, format_percent, noun_for, plural
from gemmetry.hardware.detect import own_version
from gemmetry.results.emit import files_in
from gemmetry.results.pages import Figure, page_section, rendered_page, text_of
from gemmetry.results.palette import SCALE, colour_at, ink_on
from gemmetry.results.texts import cut
from gemmetry.statistics.comparison import Difference
from gemmetry.statistics.intervals import median
from gemmetry.sweeps.comparison import (
    PARTS,
    WORKBOOKS,
    ComparedSweep,
    LabelledSweep,
    RowGroup,
    SweepComparison,
    step_values,
)
from gemmetry.sweeps.folder import ANALYSIS_FOLDERS, analysis_folder
from gemmetry.sweeps.report import (
    MEASURES,
    Entry,
    answers,
    change_answers,
    collective_label,
    figure_text,
    first_few,
    gemm_label,
    mark_of,
    marked_label,
    point_label,
    row_label,
)
from gemmetry.sweeps.rows import (
    DELAYS,
    CollectiveRow,
    PointRow,
    PointStraggler,
    PooledRow,
    RecordedCollective,
    RocprofRow,
    SettingVerdict,
    SweepConfiguration,
    configuration_of,
)

Sweeps = Sequence[LabelledSweep]

PLOTS = "plots"
"""Folder of the PNGs below that of the analysis."""

_MOST_FACTS = 6
"""Differences between environments on the first screen."""

_MOST_BARS = 96
_MOST_ROWS = 40
"""Rows of a forest plot."""
_MOST_LINES = 8
_LEGEND_ROOM = 270
"""Minimum height in px of a figure whose legend may have a line for each part of the step: plotly
gives it half of the height."""

_TINTS = dict(zip(PARTS, (0, 1, 4, 5, 7), strict=True))
_VERDICT_TINTS = {"slower": 1, "faster": 2, "no difference shown": 0}
_NO_VERDICT = 7

_ABOUT = {
    "step": "The step, divided into what the rank does that the others wait for. Slowed compute is "
    "what GEMMs took longer than alone; exposed communication is communication during which "
    "nothing is computed.",
    "map": "The median step, as geometric mean over the runs of a point; the shortest is bold.",
    "counters": "Medians over the dispatches of a kernel with one grid on one rank; percentages "
    "are of the kernel's time. While counters are collected, kernels run one after the other: "
    "times marked as serialised are not those of the training.",
    "gemms": "Instances of a GEMM (a kernel with a shape) next to communication, compared with "
    "instances alone, over all ranks. Bars are intervals that hold together with 95 %; the "
    "verdict is read from them. Right of the dashed line, communication slows the GEMM.",
    "dose": "If communication slows a GEMM, instances that overlap longer take longer.",
    "settings": "What was requested, and what the traces show of it on the largest messages.",
    "stragglers": "Ranks wait for the one that enters a collective last.",
    "collectives": "Medians per operation and message size.",
    "changes": "Ratios to the first sweep. Runs are the observations, and bars are intervals that "
    "hold together with 95 %; right of the dashed line is slower. "
    "Differences up to {} count as none.",
}


def sweep_page(document: Entry, folder: Path | None = None) -> str:
    """The page of one sweep.

    Args:
        document: the content of ``analysis.json``.
        folder: of the analysis; the PNGs of its ``plots`` become a part of the page.

    Raises:
        RequestError: plotly is not installed.
    """
    sweep = LabelledSweep(label="", document=document)
    points = document["points"]
    nccl = {one["versions"]["nccl_version"] for one in points if "nccl_version" in one["versions"]}
    sizes = {one["world_size"] or 0 for one in points}
    identity = [
        cut(str(document["sweep"])),
        *(plural(size, "rank") for size in sorted(sizes - {0})),
        *sorted({one["device"] or "" for one in points} - {""}),
        *(f"NCCL {one}" for one in sorted(nccl)),
        f"gemmetry {own_version()}",
    ]  # fmt: skip
    return rendered_page(
        title=Path(sweep.title).name or "Sweep",
        identity=identity,
        groups=[{"heading": "", "items": answers(document), "minor": False}],
        problems=document["problems"],
        sections=[*_sections([sweep], "analysis.json"), _images([("", _written(folder))])],
    )


def comparison_page(comparison: SweepComparison, sweeps: Sweeps) -> str:
    """The page of several sweeps.

    Raises:
        RequestError: plotly is not installed.
    """
    groups: list[dict[str, Any]] = [
        {"heading": f"{one.label} compared with {comparison.label}", "minor": False,
         "items": [*_environment(one), *change_answers(comparison, one)]}
        for one in comparison.candidates
    ]  # fmt: skip
    groups += [
        {"heading": f"{one.label}: {one.title}", "items": answers(one.document), "minor": True}
        for one in sweeps
    ]
    problems = [f"{s.label}: {text}" for s in sweeps for text in s.document["problems"]]
    pictures = [(one.label, _pictures(one, problems)) for one in sweeps]
    environment = page_section(
        "environment", "Environment", "How the environments differ",
        sheets=[("", environments_of(comparison))], file="the JSON document",
    )  # fmt: skip
    sections = [environment, *_changes(comparison)]
    sections += [*_sections(sweeps, "analysis.json of each sweep"), _images(pictures)]
    return rendered_page(
        title=" · ".join(one.label for one in sweeps),
        identity=[f"{one.label} = {cut(one.title)}" for one in sweeps],
        groups=groups,
        problems=problems,
        sections=sections,
    )


def _environment(one: ComparedSweep) -> list[tuple[str, str]]:
    """Differences of a candidate's environment."""
    lines = one.environment_differences
    return [("Environments differ", f"{first_few(lines, _MOST_FACTS)}.")] if lines else []


def _changes(comparison: SweepComparison) -> Iterator[dict[str, Any]]:
    steps = (RowGroup.WHOLE, RowGroup.STEP, RowGroup.PARTS)
    kinds = (RowGroup.GEMMS, RowGroup.COLLECTIVES)
    about = _ABOUT["changes"].format(format_percent(comparison.threshold))
    for number, one in enumerate(comparison.candidates):
        if not one.is_same:
            ratio = f"{one.label} over {comparison.label}"
            others = "GEMMs and collectives"
            figures = [("Steps", change_forest(one, [RowGroup.STEP], f"step of {ratio}")),
                       (others, change_forest(one, kinds, ratio))]  # fmt: skip
            sheets = [("Steps and their parts", changes_of(one, steps, f"steps {number}")),
                      (others, changes_of(one, kinds, f"changes {number}"))]  # fmt: skip
            yield page_section(
                f"changes-{number}", f"{one.label} / {comparison.label}", f"What changed: {ratio}",
                about, figures, sheets, "the JSON document",
            )  # fmt: skip


def _sections(sweeps: Sweeps, file: str) -> list[dict[str, Any]]:
    """Sections of every page about sweeps; a section without content is empty."""
    rows, about = _tables(sweeps), _ABOUT
    return [
        page_section("step", "Step", "Where the time of a step goes", about["step"],
                 [("The whole step", split_figure(sweeps)),
                  ("What is added to computing", split_figure(sweeps, without=["compute_ms"]))],
                 [("", rows["points"])], file),
        page_section("map", "Map", "Step by threads and channels, in ms", about["map"],
                 figures=[("", one) for one in maps(sweeps)]),
        page_section("gemms", "GEMMs", "What communication costs each GEMM", about["gemms"],
                 [("", slowdown_forest(sweeps))], [("", rows["GEMMs"])], file),
        page_section("dose", "Overlap", "Slowdown by overlapped share", about["dose"],
                 [("", dose_figure(sweeps))]),
        page_section("settings", "Settings", "Whether settings took effect", about["settings"],
                 sheets=[("", rows["settings"])], file=file),
        page_section("stragglers", "Stragglers", "Who is waited for", about["stragglers"],
                 sheets=[("", rows["stragglers"])], file=file),
        page_section("collectives", "Collectives", "Collectives by size", about["collectives"],
                 [("", collective_figure(sweeps))],
                 [("", rows["collectives"]), ("NCCL's own records", rows["records of NCCL"])],
                 file),
        page_section("counters", "Counters", "Kernels under rocprofv3", about["counters"],
                 sheets=[("", rows["counters"])], file=file),
    ]  # fmt: skip


def _images(pictures: Sequence[tuple[str, Mapping[str, bytes]]]) -> dict[str, Any]:
    """The PNGs of each sweep, which is given by its label."""
    return page_section("pictures", "Pictures", "The pictures of the analysis", images=[
        {"name": f"{label}: {name}" if label else name,
         "source": f"data:image/png;base64,{base64.b64encode(content).decode()}"}
        for label, found in pictures
        for name, content in found.items()
    ])  # fmt: skip


def _pictures(sweep: LabelledSweep, problems: list[str]) -> dict[str, bytes]:
    """The plots of a sweep, made now if it was analysed now."""
    if sweep.reported is None:
        folder = Path(sweep.title)
        if not folder.is_dir():
            return {}
        return _written(folder if folder.name in ANALYSIS_FOLDERS else analysis_folder(folder))
    from gemmetry.documents import sweep_plots as plots

    try:
        return plots.sweep_plots(sweep.reported().points)
    except RequestError as error:
        problems.append(f"{sweep.label}: there are no pictures: {error}")
        return {}


def _written(folder: Path | None) -> dict[str, bytes]:
    """The plots in the folder of an analysis."""
    if folder is None:
        return {}
    return {name: path.read_bytes() for name, path in files_in(folder / PLOTS, ".png").items()}


def _percent(name: str, description: str) -> Column:
    return Column(name, ColumnType.NUMBER, description=description, absent="–",
                  format=format_change)  # fmt: skip


_SWEEP = Column("sweep", description="label of the sweep")
_POINT = Column("point", description="threads, channels, further axes, repeat")
_SHAPE = Column("GEMM", description="M x N x K")
_CHANGES = (
    *map(Column, ("what", "measure", "point", "before", "after")),
    _percent("change", "of a part of the step: of the step if only this part changed"),
    _percent("low", "lower end of its interval"), _percent("high", "upper end of its interval"),
    Column("verdict"), Column("runs", description="of both sweeps"), Column("note"),
)  # fmt: skip


def _tables(sweeps: Sweeps) -> dict[str, Table]:
    """The tables by name; those of several sweeps have a column with their label."""
    gemms = _of_sweeps("GEMMs", PooledRow, sweeps, "pooled_gemms", shape=_SHAPE)
    place = gemms.names.index("ms/step")
    costly = sorted(gemms.rows, key=lambda row: -(row[place] or 0))
    every = (
        _of_sweeps("points", PointRow, sweeps, "points", _with_reason),
        Table(gemms.name, gemms.columns, costly),
        _of_sweeps("settings", SettingVerdict, sweeps, "points.settings"),
        _of_sweeps("stragglers", PointStraggler, sweeps, "points.stragglers", _judged),
        _of_sweeps("collectives", CollectiveRow, sweeps, "collectives", _spoken),
        _of_sweeps("records of NCCL", RecordedCollective, sweeps, "points.nccl_records", _spoken),
        _of_sweeps("counters", RocprofRow, sweeps, "rocprof"),
    )
    return {one.name: one for one in every}


def _with_reason(one: Entry) -> Entry:
    why = one["reason"] or one.get("left_out")
    outcome = mark_of(one) or "ok"
    return {**one, "outcome": f"{outcome}: {why}" if why else outcome}


def _judged(one: Entry) -> Entry:
    """With the verdict, which older analyses lack."""
    return {"verdict": DELAYS if one["is_straggler"] else None, **one}


def _spoken(one: Entry) -> Entry:
    return {**one, "op": (one["op"] or "unknown").replace("_", "-")}


def _of_sweeps(
    name: str,
    kind: type[Row],
    sweeps: Sweeps,
    entries: str,
    shown: Callable[[Entry], Entry] = dict,
    *,
    shape: Column | None = None,
) -> Table:
    """The page's table of the `entries` of each sweep (``settings``), or of each of its points
    (``points.settings``). Before the columns of their `kind` are the sweep, if there are several,
    the point, and the sizes of a GEMM."""
    outer, _, inner = entries.partition(".")
    found = [
        (sweep, point, entry)
        for sweep in sweeps
        for point in sweep.document.get(outer, ())
        for entry in (point.get(inner, ()) if inner else (point,))
    ]
    rows = table(name, kind, [shown(entry) for *_, entry in found], page=True)
    is_labelled = len(sweeps) > 1
    columns = [*([_SWEEP] if is_labelled else []), _POINT, *([shape] if shape else [])]
    cells = [
        [*([sweep.label] if is_labelled else []), point_label(point),
         *([gemm_label(entry) if entry["m"] is not None else ""] if shape else []), *row]
        for (sweep, point, entry), row in zip(found, rows.rows, strict=True)
    ]  # fmt: skip
    return Table(name, (*columns, *rows.columns), cells)


def changes_of(candidate: ComparedSweep, groups: Iterable[RowGroup], name: str) -> Table:
    """One row per compared figure, those that are shown to change first."""
    order = {"slower": 0, "faster": 1, "undecided": 2}
    rows = sorted(candidate.rows_of(*groups), key=lambda row: order.get(str(row.verdict), 3))
    return Table(name, _CHANGES, [
        [row_label(row, rows) or "step", MEASURES[row.measure], row.place,
         figure_text(row.before, row.unit), figure_text(row.after, row.unit),
         row.comparison.ratio, row.comparison.ratio_low, row.comparison.ratio_high,
         str(row.verdict), f"{row.runs_before} / {row.runs_after}", row.note]
        for row in rows
    ])  # fmt: skip


def environments_of(comparison: SweepComparison) -> Table:
    """One row per fact in which a sweep's environment differs from that of the first, with a column
    for each sweep."""
    labels = [comparison.label, *(one.label for one in comparison.candidates)]
    rows: dict[str, dict[str, str]] = {}
    for one in comparison.candidates:
        for line in one.environment_differences:
            name, _, values = line.partition(": ")
            before, _, after = values.partition(" vs ")
            rows.setdefault(name, dict.fromkeys(labels, before))[one.label] = after
    columns = (Column("fact"), *(Column(str(n), heading=label) for n, label in enumerate(labels)))
    return Table("environments", columns, [[name, *of.values()] for name, of in rows.items()])


def _named(label: str, sweep: LabelledSweep, sweeps: Sweeps) -> str:
    """A label on a figure, with that of its sweep if there are several."""
    return f"{label} · {sweep.label}" if len(sweeps) > 1 else label


def split_figure(sweeps: Sweeps, *, without: Collection[str] = ()) -> Figure | None:
    """Figure of the parts of each point's step.

    Args:
        without: parts that are left out, so that small ones can be compared.
    """
    rows = [
        (_named(marked_label(point), sweep, sweeps), point)
        for sweep in sweeps
        for point in sweep.document["points"]
        if point["step_ms"]["median"] is not None
    ]
    rows.sort(key=lambda row: configuration_of(row[1]).order)
    hidden, rows = max(0, len(rows) - _MOST_BARS), rows[:_MOST_BARS]
    if not rows:
        return None
    labels = [text_of(label) for label, _ in rows]
    traces = [
        {
            "type": "bar", "orientation": "h", "name": name, "tint": _TINTS[part], "y": labels,
            "x": [point[part] or 0 for _, point in rows],
            "hovertemplate": f"%{{y}}<br>{name} %{{x:.2f}} ms<extra></extra>",
        }
        for part, name in PARTS.items()
        if part not in without
    ]  # fmt: skip
    if not without:
        steps = [point["step_ms"] for _, point in rows]
        traces.append({
            "type": "scatter", "mode": "markers", "name": "median step", "y": labels, "ink": True,
            "x": [one["median"] for one in steps],
            "marker": {"symbol": "line-ns-open", "size": 9},
            "error_x": _bars([(one["median"], one["ci_low"], one["ci_high"]) for one in steps]),
            "hovertemplate": "%{y}<br>median step %{x:.2f} ms<extra></extra>",
        })  # fmt: skip
    note = f"{plural(hidden, 'point is', 'points are')} left out; the table below has all."
    return {
        "traces": traces,
        "layout": {"barmode": "stack", "xaxis": {"title": "ms, of the median step"},
                   "yaxis": {"autorange": "reversed"}},
        "height": max(_LEGEND_ROOM, 120 + 24 * len(rows)),
        "note": note if hidden else "",
    }  # fmt: skip


def _bars(
    intervals: Sequence[tuple[float, float | None, float | None]], **look: float
) -> dict[str, Any]:
    """Error bars of values with their intervals; none where there is no interval."""
    return {
        "type": "data", "symmetric": False, **look,
        "array": [0.0 if high is None else high - middle for middle, _, high in intervals],
        "arrayminus": [0.0 if low is None else middle - low for middle, low, _ in intervals],
    }  # fmt: skip


def maps(sweeps: Sweeps) -> list[Figure]:
    """The step's time over threads × channels, one map for each sweep and further axes. Points that
    did not run or have no steps are empty and name the reason."""
    found = []
    for sweep in sweeps:
        values = {one: geometric_mean(of) for one, of in step_values(sweep.document).items()}
        outcomes = {configuration_of(one): one for one in sweep.document["points"]}
        for axes in sorted({one.axes for one in outcomes}):
            chosen = [one for one in outcomes if one.axes == axes]
            parts = [sweep.label] if len(sweeps) > 1 else []
            parts += [f"{name}={value}" for name, value in axes]
            if len(chosen) > 1 and sweep.document.get("source") != WORKBOOKS:
                found.append(_map(", ".join(parts), chosen, values, outcomes))
    return found


def _map(
    title: str,
    chosen: Sequence[SweepConfiguration],
    values: Mapping[SweepConfiguration, float],
    outcomes: Mapping[SweepConfiguration, Entry],
) -> Figure:
    threads = sorted({one.threads or 0 for one in chosen})
    channels = sorted({one.channels or 0 for one in chosen})
    by_place = {(one.threads or 0, one.channels or 0): one for one in chosen}
    known = [values[one] for one in chosen if one in values]
    least, most = min(known, default=0.0), max(known, default=0.0)
    grid: list[list[float | None]] = [[None] * len(channels) for _ in threads]
    texts: list[dict[str, Any]] = []
    for y, thread in enumerate(threads):
        for x, channel in enumerate(channels):
            one = by_place.get((thread, channel))
            value = grid[y][x] = values.get(one) if one else None
            label = {"x": x, "y": y, "showarrow": False}
            if value is None:
                why = mark_of(outcomes[one]) or "no steps" if one else "not run"
                texts.append({**label, "text": text_of(why)})
                continue
            share = (most - value) / (most - least) if most > least else 1.0
            text = f"<b>{value:.2f}</b>" if value == least else f"{value:.2f}"
            texts.append({**label, "text": text, "font": {"color": ink_on(colour_at(share))}})
    # Short steps are light, like fast configurations on other maps.
    scale = [[i / (len(SCALE) - 1), colour] for i, colour in enumerate(reversed(SCALE))]
    return {
        "title": text_of(title),
        "traces": [{
            "type": "heatmap", "z": grid, "colorscale": scale, "xgap": 2, "ygap": 2,
            "hoverongaps": False, "colorbar": {"title": {"text": "ms"}, "thickness": 12},
            "hovertemplate": "%{z:.2f} ms<extra></extra>",
        }],
        "layout": {
            "annotations": texts,
            "xaxis": {"title": "channels", **_ticks(channels), "showgrid": False},
            "yaxis": {"title": "threads", **_ticks(threads), "showgrid": False},
        },
        "height": 150 + 56 * len(threads),
    }  # fmt: skip


def _ticks(values: Sequence[int]) -> dict[str, Any]:
    return {"tickvals": list(range(len(values))), "ticktext": [str(one or "–") for one in values],
            "zeroline": False}  # fmt: skip


def _costly(sweeps: Sweeps, is_shown: Callable[[Entry], bool]) -> Iterator[tuple[str, Entry]]:
    """Some of the GEMMs of the sweeps with their labels, those that cost most per step first."""
    found = [
        (sweep, one) for sweep in sweeps for one in sweep.document["pooled_gemms"] if is_shown(one)
    ]
    found.sort(key=lambda item: -abs(item[1]["cost_ms_per_step"] or 0))
    for sweep, one in found:
        label = f"{gemm_label(one, sweep.document['pooled_gemms'])} · {point_label(one)}"
        yield _named(label, sweep, sweeps), one


def slowdown_forest(sweeps: Sweeps) -> Figure | None:
    """The slowdown of each GEMM with its interval, those that cost most per step first."""
    rows = [
        {
            "label": label, "ratio": one["slowdown"], "low": one["slowdown_ci_low"],
            "high": one["slowdown_ci_high"], "verdict": one["verdict"],
            "hover": f"{one['alone_median_us']:,.0f} µs alone ({one['alone_count']}), "
            f"{one['overlapped_median_us']:,.0f} µs next to communication "
            f"({one['overlapped_count']})<br>{text_of(one['kernel'])}",
        }
        for label, one in _costly(sweeps, lambda one: one["slowdown_ci_low"] is not None)
    ]  # fmt: skip
    return _forest(rows, "duration next to communication over duration alone")


def change_forest(
    candidate: ComparedSweep, groups: Iterable[RowGroup], title: str
) -> Figure | None:
    """Ratios of a candidate to the first sweep with their intervals: what is decided before what is
    not, and the largest change first; points stay in their order."""
    rows = [
        row
        for row in candidate.rows_of(*groups)
        if row.comparison.interval or row.group is RowGroup.STEP
    ]
    if any(row.group is not RowGroup.STEP for row in rows):
        rows.sort(key=lambda row: (row.verdict is Difference.UNDECIDED, -row.size))
    return _forest(
        [
            {
                "label": f"{what}, {MEASURES[row.measure]} · {row.place}" if what else row.place,
                "ratio": row.comparison.ratio, "low": row.comparison.ratio_low,
                "high": row.comparison.ratio_high, "verdict": str(row.verdict),
                "hover": f"{row.before:,.2f} → {row.after:,.2f} {row.unit}<br>"
                f"{text_of(MEASURES[row.measure])}",
            }
            for row in rows
            for what in (row_label(row, rows),)
        ],
        title,
    )  # fmt: skip


def _forest(rows: Sequence[Entry], title: str) -> Figure | None:
    if not rows:
        return None
    hidden, rows = max(0, len(rows) - _MOST_ROWS), rows[:_MOST_ROWS]
    # An interval that decides nothing may be so wide that nothing else could be seen next to it.
    decided = [row for row in rows if row["verdict"] != str(Difference.UNDECIDED)]
    ends = [1.0, *(row["ratio"] for row in rows)]
    useful = [row for row in rows if "%" in format_interval(row["low"], row["high"])]
    ends += [row[end] for row in decided or useful for end in ("low", "high")]
    room = 0.04 * (max(ends) - min(ends)) or 0.01
    left, right = min(ends) - room, max(ends) + room
    is_clipped = any((row["low"] or left) < left or (row["high"] or right) > right for row in rows)
    notes = [f"{hidden} more {noun_for(hidden, 'is', 'are')} in the table."] if hidden else []
    notes += ["Intervals of undecided rows may continue beyond the chart."] if is_clipped else []
    traces = []
    for verdict in dict.fromkeys(row["verdict"] for row in rows):
        chosen = [(place, row) for place, row in enumerate(rows) if row["verdict"] == verdict]
        traces.append({
            "type": "scatter", "mode": "markers", "name": verdict,
            "tint": _VERDICT_TINTS.get(verdict, _NO_VERDICT), "marker": {"size": 9},
            "y": [place for place, _ in chosen], "x": [row["ratio"] for _, row in chosen],
            "error_x": _bars([(row["ratio"], row["low"], row["high"]) for _, row in chosen],
                             thickness=1.6, width=4),
            "text": [f"<b>{text_of(row['label'])}</b><br>"
                     f"{format_change(row['ratio'])}{_hover(row)}<br>{row['hover']}<br>"
                     f"{row['verdict']}" for _, row in chosen],
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    return {
        "traces": traces,
        "layout": {
            "xaxis": {"title": title, "range": [left, right]},
            "yaxis": {"tickvals": list(range(len(rows))), "range": [len(rows) - 0.4, -0.6],
                      "ticktext": [text_of(row["label"]) for row in rows], "zeroline": False},
            "line_at": 1,
            "showlegend": True,
        },
        "height": 130 + 23 * len(rows),
        "note": " ".join(notes),
        "wide": True,
    }  # fmt: skip


def _hover(row: Entry) -> str:
    if row["low"] is None:
        return ""
    return f" ({format_change(row['low'])} to {format_change(row['high'])})"


def dose_figure(sweeps: Sweeps) -> Figure | None:
    """The median slowdown by overlapped share, of the GEMMs that cost most and whose instances
    overlap to different degrees."""
    found = list(_costly(sweeps, lambda e: len(e.get("by_share", ())) > 1 and e["alone_count"]))
    traces = []
    for place, (label, one) in enumerate(found[:_MOST_LINES]):
        shares = [(0.0, 1.0, one["alone_count"])]
        shares += [((s["low"] + s["high"]) / 2, s["slowdown"], s["count"]) for s in one["by_share"]]
        traces.append({
            "type": "scatter", "mode": "lines+markers", "name": text_of(label), "tint": place,
            "x": [share for share, _, _ in shares], "y": [slow for _, slow, _ in shares],
            "text": [plural(count, "instance") for _, _, count in shares],
            "hovertemplate": "%{x:.0%} overlapped: %{y:.3f}×<br>%{text}<extra></extra>",
        })  # fmt: skip
    if not traces:
        return None
    return {
        "traces": traces,
        "layout": {
            "xaxis": {"title": "share of the GEMM next to communication", "tickformat": ".0%"},
            "yaxis": {"title": "median duration, alone = 1"},
            "legend": {"orientation": "v", "x": 1.02, "y": 1, "xanchor": "left", "yanchor": "top"},
        },
        "height": 380,
        "narrow_legend": True,
    }


def collective_figure(sweeps: Sweeps) -> Figure | None:
    """The median bus bandwidth of each operation and size over the channels, with a line for each
    number of threads, further axes and sweep."""
    series: dict[str, dict[int, list[float]]] = {}
    for sweep in sweeps:
        for one in sweep.document["collectives"]:
            if one["busbw_gbps"] is None:
                continue
            point = configuration_of(one)
            label = collective_label(one)
            if point.threads is not None or point.axes:
                label += f" · {SweepConfiguration(point.threads, None, point.axes).label}"
            values = series.setdefault(_named(label, sweep, sweeps), {})
            values.setdefault(point.channels or 0, []).append(one["busbw_gbps"])
    if not series:
        return None
    channels = sorted({one for values in series.values() for one in values})
    largest = sorted(series, key=lambda label: -max(map(max, series[label].values())))
    hidden = max(0, len(largest) - _MOST_LINES)
    return {
        "traces": [
            {
                "type": "scatter", "mode": "lines+markers", "name": text_of(label), "tint": place,
                "x": [channels.index(one) for one in sorted(series[label])],
                "y": [median(series[label][one]) for one in sorted(series[label])],
                "hovertemplate": f"{text_of(label)}<br>%{{y:.1f}} GB/s<extra></extra>",
            }
            for place, label in enumerate(largest[:_MOST_LINES])
        ],
        "layout": {
            "yaxis": {"title": "bus bandwidth, GB/s", "rangemode": "tozero"},
            "xaxis": {"title": "channels", **_ticks(channels)},
        },
        "height": 400,
        "note": f"{hidden} slower ones are in the table." if hidden else "",
    }  # fmt: skip
