from __future__ import annotations

import io

import pytest
from rich.console import Console

from gemmetry.dispatches.terminal import print_results
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.record import ResultSet


def test_groups_fit_into_80_columns(result_set, console_text):
    text = console_text(lambda console: print_results(result_set, console))
    verdict, *groups = text.partition("Not ok:")[0].splitlines()
    assert verdict.startswith("iree is fastest on"), "whole, where lines are searched"
    assert len(groups) > 150
    assert max(len(line) for line in groups) <= 80


def test_chosen_columns_make_one_plain_table(small_result_set, console_text):
    text = console_text(
        lambda c: print_results(small_result_set, c, columns=["provider", "outcome", "gflops"])
    )
    lines = text.splitlines()
    assert lines[0].split() == ["provider", "outcome", "speed"]
    assert lines[1].split() == ["iree", "ok", "234", "TFLOP/s"]
    assert len(lines) == 7
    with pytest.raises(UnknownNameError, match="gflops"):
        console_text(lambda c: print_results(small_result_set, c, columns=["gflop"]))


def _terminal_lines(results, width=80, **options):
    console = Console(width=width, file=io.StringIO(), color_system=None, force_terminal=True,
                      highlight=False)  # fmt: skip
    print_results(results, console, **options)
    return console.file.getvalue().splitlines()


def test_every_line_of_a_terminal_keeps_within_its_width(result_set):
    lines = _terminal_lines(result_set)
    assert max(len(line.rstrip()) for line in lines) <= 80
    commands = [line for line in lines if line.startswith("    $ gemmetry profile")]
    assert commands
    assert all(line.endswith(" \\") for line in commands)


def test_a_terminal_does_not_break_the_command_that_shows_a_row(make_record):
    record = make_record("matmul_8x8x8_f32t_f32t_f32t", marks=("drift: slower",))
    folder = f"/experiments/{'long/' * 12}run"
    lines = _terminal_lines(ResultSet(title="t", records=[record], path=folder))
    place = lines.index("All marks and checks of a row:")
    command = " ".join(line.strip(" \\") for line in lines[place + 1 : place + 4])
    assert command == f"$ gemmetry show {folder} DISPATCH"
