"""Sweeps as one HTML file that loads nothing from the network: one sweep, or several compared.

The first screen answers in sentences; figures and tables follow. Names come from traces and folders
of any origin: the template escapes them, and plotly's texts are escaped where they are made.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmetry.domain.errors import RequestError
from gemmetry.domain.tables import Table
from gemmetry.domain.units import counted
from gemmetry.hardware.detect import own_version
from gemmetry.results.emit import files_in
from gemmetry.results.pages import render_page
from gemmetry.results.palette import COLOURS, DARK_COLOURS
from gemmetry.results.texts import cut
from gemmetry.sweeps import page_tables as tables
from gemmetry.sweeps.comparison import (
    ComparedSweep,
    LabelledSweep,
    RowGroup,
    SweepComparison,
)
from gemmetry.sweeps.figures import (
    Figure,
    change_forest,
    collective_figure,
    dose_figure,
    maps,
    slowdown_forest,
    split_figure,
)
from gemmetry.sweeps.sentences import answers, change_answers

PLOTS = "plots"
"""Folder of the PNGs below that of the analysis."""

_MOST_FACTS = 6
"""Differences between environments on the first screen."""

_ABOUT = {
    "step": "The step of the slowest rank, divided into its parts. Slowed compute is what GEMMs "
    "took longer than alone; exposed communication is communication during which nothing is "
    "computed.",
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
    "hold together with 95 %; right of the dashed line is slower.",
}


def sweep_page(document: Mapping[str, Any], folder: Path | None = None) -> str:
    """The page of one sweep.

    Args:
        document: the content of ``analysis.json``.
        folder: of the analysis; the PNGs of its ``plots`` become a part of the page.

    Raises:
        RequestError: plotly is not installed.
    """
    sweep = LabelledSweep(label="", document=document)
    sections = [*_sections([sweep], "analysis.json"), _images([("", _written(folder))])]
    return rendered_page(
        title=Path(sweep.title).name or "Sweep",
        identity=_identity(document),
        groups=[{"heading": "", "items": answers(document), "minor": False}],
        problems=document["problems"],
        sections=sections,
    )


def comparison_page(comparison: SweepComparison, sweeps: Sequence[LabelledSweep]) -> str:
    """The page of several sweeps.

    Raises:
        RequestError: plotly is not installed.
    """
    groups: list[dict[str, Any]] = [
        {
            "heading": f"{one.label} compared with {comparison.label}",
            "items": [*_environment(one), *change_answers(comparison, one)],
            "minor": False,
        }
        for one in comparison.candidates
    ]
    groups += [
        {"heading": f"{one.label}: {one.title}", "items": answers(one.document), "minor": True}
        for one in sweeps
    ]
    problems = [f"{s.label}: {text}" for s in sweeps for text in s.document["problems"]]
    pictures = [(one.label, _pictures(one, problems)) for one in sweeps]
    sections = [
        page_section(
            "environment", "Environment", "How the environments differ",
            sheets=[("", tables.environments_of(comparison))], file="the JSON document",
        ),
        *_changes(comparison),
        *_sections(sweeps, "analysis.json of each sweep"),
        _images(pictures),
    ]  # fmt: skip
    return rendered_page(
        title=" · ".join(one.label for one in sweeps),
        identity=[f"{one.label} = {cut(one.title)}" for one in sweeps],
        groups=groups,
        problems=problems,
        sections=sections,
    )


def _environment(one: ComparedSweep) -> list[tuple[str, str]]:
    """How the environment of a candidate differs."""
    lines = one.environment_differences
    if not lines:
        return []
    more = f"; and {len(lines) - _MOST_FACTS} more" if len(lines) > _MOST_FACTS else ""
    return [("Environments differ", "; ".join(lines[:_MOST_FACTS]) + more + ".")]


def _changes(comparison: SweepComparison) -> list[dict[str, Any]]:
    found = []
    for number, one in enumerate(comparison.candidates):
        if one.is_same:
            continue
        ratio = f"{one.label} over {comparison.label}"
        steps = change_forest(one, [RowGroup.STEP], f"step of {ratio}")
        others = change_forest(one, [RowGroup.GEMMS, RowGroup.COLLECTIVES], ratio)
        groups = (RowGroup.WHOLE, RowGroup.STEP, RowGroup.PARTS)
        kinds = (RowGroup.GEMMS, RowGroup.COLLECTIVES)
        found.append(page_section(
            f"changes-{number}", f"{one.label} / {comparison.label}", f"What changed: {ratio}",
            about=_ABOUT["changes"],
            figures=[("Steps", steps), ("GEMMs and collectives", others)],
            sheets=[("Steps and their parts", tables.changes_of(one, groups, f"steps {number}")),
                    ("GEMMs and collectives", tables.changes_of(one, kinds, f"changes {number}"))],
            file="the JSON document",
        ))  # fmt: skip
    return found


def _sections(sweeps: Sequence[LabelledSweep], file: str) -> list[dict[str, Any]]:
    """What every page about sweeps shows; a section without content is empty."""
    return [
        page_section("step", "Step", "Where the time of a step goes", _ABOUT["step"],
                 [("The whole step", split_figure(sweeps)),
                  ("What is added to computing", split_figure(sweeps, without=["compute_ms"]))],
                 [("", tables.points_of(sweeps))], file),
        page_section("map", "Map", "Step by threads and channels, in ms", _ABOUT["map"],
                 figures=[("", one) for one in maps(sweeps)]),
        page_section("gemms", "GEMMs", "What communication costs each GEMM", _ABOUT["gemms"],
                 [("", slowdown_forest(sweeps))], [("", tables.gemms_of(sweeps))], file),
        page_section("dose", "Overlap", "Slowdown by overlapped share", _ABOUT["dose"],
                 [("", dose_figure(sweeps))]),
        page_section("settings", "Settings", "Whether settings took effect", _ABOUT["settings"],
                 sheets=[("", tables.settings_of(sweeps))], file=file),
        page_section("stragglers", "Stragglers", "Who is waited for", _ABOUT["stragglers"],
                 sheets=[("", tables.stragglers_of(sweeps))], file=file),
        page_section("collectives", "Collectives", "Collectives by size", _ABOUT["collectives"],
                 [("", collective_figure(sweeps))],
                 [("", tables.collectives_of(sweeps)),
                  ("NCCL's own records", tables.records_of(sweeps))], file),
        page_section("counters", "Counters", "Kernels under rocprofv3", _ABOUT["counters"],
                 sheets=[("", tables.counters_of(sweeps))], file=file),
    ]  # fmt: skip


def page_section(
    id: str,
    short: str,
    heading: str,
    about: str = "",
    figures: Sequence[tuple[str, Figure | None]] = (),
    sheets: Sequence[tuple[str, Table]] = (),
    file: str = "",
    *,
    fluid: bool = False,
) -> dict[str, Any]:
    """A section for :func:`rendered_page`; figures and tables come with their titles. The cells of
    `fluid` tables break wherever they have to, so that no column is out of sight."""
    shown = [
        {"note": "", "wide": False, **one, "title": title or one.get("title", ""), "name": heading}
        for title, one in figures
        if one
    ]
    return {
        "id": id,
        "short": short,
        "heading": heading,
        "about": about,
        "figures": shown,
        "tables": [
            {**tables.page_table(table, file), "title": title, "fluid": fluid}
            for title, table in sheets
            if table.rows
        ],
        "images": [],
    }


def _images(pictures: Sequence[tuple[str, Mapping[str, bytes]]]) -> dict[str, Any]:
    """The PNGs of each sweep, which is given by its label."""
    section = page_section("pictures", "Pictures", "The pictures of the analysis")
    section["images"] = [
        {"name": f"{label}: {name}" if label else name,
         "source": f"data:image/png;base64,{base64.b64encode(content).decode()}"}
        for label, found in pictures
        for name, content in found.items()
    ]  # fmt: skip
    return section


def _pictures(sweep: LabelledSweep, problems: list[str]) -> dict[str, bytes]:
    """The plots of a sweep, made now if it was analysed now."""
    if sweep.products is None:
        return _written(_analysis_folder(sweep))
    from gemmetry.documents import sweep_plots as plots

    try:
        return plots.sweep_plots(sweep.products().points)
    except RequestError as error:
        problems.append(f"{sweep.label}: there are no pictures: {error}")
        return {}


def _written(folder: Path | None) -> dict[str, bytes]:
    """The plots in the folder of an analysis."""
    if folder is None:
        return {}
    return {name: path.read_bytes() for name, path in files_in(folder / PLOTS, ".png").items()}


def _analysis_folder(sweep: LabelledSweep) -> Path | None:
    from gemmetry.sweeps.folder import ANALYSIS_FOLDERS, analysis_folder

    folder = Path(sweep.title)
    if not folder.is_dir() or folder.name in ANALYSIS_FOLDERS:
        return folder if folder.is_dir() else None
    return analysis_folder(folder)


def _identity(document: Mapping[str, Any]) -> list[str]:
    points = document["points"]
    devices = sorted({one["device"] for one in points if one["device"]})
    sizes = sorted({one["world_size"] for one in points if one["world_size"]})
    nccl = sorted({one["versions"]["nccl_version"] for one in points
                   if "nccl_version" in one["versions"]})  # fmt: skip
    return [
        cut(str(document["sweep"])),
        *(counted(size, "rank") for size in sizes),
        *devices,
        *(f"NCCL {one}" for one in nccl),
        f"gemmetry {own_version()}",
    ]


def rendered_page(
    *,
    title: str,
    identity: Sequence[str],
    groups: Sequence[Mapping[str, Any]],
    problems: Sequence[str],
    sections: Sequence[dict[str, Any]],
) -> str:
    """The page: sentences first, then the sections that have any content.

    Raises:
        RequestError: plotly is not installed.
    """
    shown = [one for one in sections if one["figures"] or one["tables"] or one["images"]]
    figures = [figure for one in shown for figure in one["figures"]]
    for number, figure in enumerate(figures):
        figure["number"] = number
    data = {"figures": figures, "palette": {"light": COLOURS, "dark": DARK_COLOURS}}
    return render_page(
        "sweep.html.j2",
        styles=("report.css", "sweep.css"),
        scripts=("sweep.js",),
        data=data,
        draws=True,
        title=cut(title),
        identity=identity,
        answer_groups=groups,
        problems=[cut(one) for one in problems],
        sections=shown,
    )
