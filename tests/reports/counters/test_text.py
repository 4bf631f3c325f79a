from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gemmetry.counters.document import side_by_side
from gemmetry.counters.gates import diagnose
from gemmetry.counters.roofline import roofline_of
from gemmetry.counters.text import (
    DiagnosedLaunch,
    brief_lines,
    grid_text,
    print_brief,
    print_diagnoses,
)

LONG = "void cutlass::Kernel2<" + "a::b<1, 2>, " * 60 + ">(Params)"


@pytest.fixture
def shown(counter_launches):
    def of(name="my_kernel", count=1, **more):
        launch = counter_launches.launch({**counter_launches.metrics(), **more}, name)
        found = diagnose(launch)
        return DiagnosedLaunch(
            diagnosis=found, count=count, roofline=roofline_of(launch),
            checklists=side_by_side(launch, found),
        )  # fmt: skip

    return of


def _text(show, launches, width=80):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(launches, console)
    return console.file.getvalue()


def test_the_heading_has_the_grid_in_blocks_and_on_amd_in_workgroups(counter_launches):
    texts = {}
    for tool in ("ncu", "rocprofv3"):
        launch = counter_launches.launch(counter_launches.metrics(), tool=tool, grid=(16, 8, 1))
        assert grid_text(launch).startswith("grid 16x8x1")
        texts[tool] = _text(print_brief, [
            DiagnosedLaunch(diagnosis=diagnose(launch), grid=grid_text(launch))
        ]).splitlines()[1]  # fmt: skip
    assert texts["ncu"].endswith(", grid 16x8x1")
    assert texts["rocprofv3"].endswith(", grid 16x8x1 workgroups")
    assert grid_text(counter_launches.launch({})) == ""


def test_brief_lines_fit_whatever_the_name(shown):
    spills = {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 1e9,
              "smsp__thread_inst_executed_per_inst_executed.ratio": 3.0}  # fmt: skip
    lines = brief_lines(shown(LONG, **spills), 80)
    assert len(lines) == 11
    assert max(len(line.plain) for line in lines) <= 80
    assert lines[0].plain.startswith("void cutlass") and lines[0].plain.endswith("(Params)")


def test_names_are_no_markup_and_no_control_characters(shown):
    for show in (print_diagnoses, print_brief):
        text = _text(show, [shown("[bold]kernel[/bold]\x1b[31m")])
        assert "[bold]kernel[/bold]" in text
        assert "\x1b" not in text


def test_launches_alike_are_counted(shown):
    assert "one of 12 launches alike" in _text(print_diagnoses, [shown(count=12)])


@pytest.mark.parametrize(
    ("device", "expected"),
    [("9.0", "compute capability 9.0,"), ("NVIDIA H200", "NVIDIA H200,"), ("", "unknown GPU,")],
)
def test_a_version_is_not_shown_as_a_product(shown, device, expected):
    one = shown()
    launch = replace(one, diagnosis=replace(one.diagnosis, device=device))
    assert expected in _text(print_brief, [launch]).splitlines()[1]
