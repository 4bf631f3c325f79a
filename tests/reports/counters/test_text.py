from __future__ import annotations

import io

import pytest
from rich.console import Console

from gemmetry.counters.document import side_by_side
from gemmetry.counters.gates import diagnose
from gemmetry.counters.roofline import roofline_of
from gemmetry.counters.text import DiagnosedLaunch, brief_lines, print_brief, print_diagnoses

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


def test_brief_lines_fit_whatever_the_name(shown):
    spills = {"l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 1e9,
              "smsp__thread_inst_executed_per_inst_executed.ratio": 3.0}  # fmt: skip
    lines = brief_lines(shown(LONG, **spills), 80)
    assert len(lines) == 11
    assert max(len(line.plain) for line in lines) <= 80
    assert lines[0].plain.startswith("void cutlass") and lines[0].plain.endswith("(Params)")


def test_names_are_no_markup_and_no_control_characters(shown):
    for show in (print_diagnoses, print_brief):
        console = Console(file=io.StringIO(), width=80, highlight=False)
        show([shown("[bold]kernel[/bold]\x1b[31m")], console)
        text = console.file.getvalue()
        assert "[bold]kernel[/bold]" in text
        assert "\x1b" not in text
