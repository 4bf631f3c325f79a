from __future__ import annotations

from dataclasses import replace

import pytest

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
    def of(name, **more):
        launch = counter_launches.launch({**counter_launches.metrics(), **more}, name)
        found = diagnose(launch)
        return DiagnosedLaunch(
            diagnosis=found, roofline=roofline_of(launch), checklists=side_by_side(launch, found)
        )

    return of


@pytest.mark.parametrize(
    ("tool", "device", "count", "start", "end"),
    [("ncu", "9.0", 1, "compute capability 9.0, ", ", grid 16x8x1"),
     ("rocprofv3", "", 2, "unknown GPU, ", ", grid 16x8x1 workgroups, one of 2 launches alike")],
)  # fmt: skip
def test_the_heading_has_the_grid_in_blocks_and_on_amd_in_workgroups(
    counter_launches, tool, device, count, start, end
):
    """A version is not shown as a product."""
    launch = counter_launches.launch(counter_launches.metrics(), tool=tool, grid=(16, 8, 1))
    found = replace(diagnose(launch), device=device)
    one = DiagnosedLaunch(diagnosis=found, grid=grid_text(launch), count=count)
    assert brief_lines(one, 80)[1].plain == f"{start}100 µs{end}"
    assert grid_text(counter_launches.launch({})) == ""


def test_brief_lines_fit_whatever_the_name(shown):
    spills = {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 1e9,
              "smsp__thread_inst_executed_per_inst_executed.ratio": 3.0}  # fmt: skip
    lines = brief_lines(shown(LONG, **spills), 80)
    assert len(lines) == 11
    assert max(len(line.plain) for line in lines) <= 80
    assert lines[0].plain.startswith("void cutlass") and lines[0].plain.endswith("(Params)")


def test_names_are_no_markup_and_no_control_characters(shown, console_text):
    one = shown("[bold]kernel[/bold]\x1b[31m")
    for show in (print_diagnoses, print_brief):
        text = console_text(lambda console, show=show: show([one], console))
        assert "[bold]kernel[/bold]" in text
        assert "\x1b" not in text
