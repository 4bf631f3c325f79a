from __future__ import annotations

import io

import pytest
from rich.console import Console

from gemmetry.dispatches.terminal import print_results
from gemmetry.domain.errors import UnknownNameError
from gemmetry.domain.record import ResultSet


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


def _terminal_lines(results):
    console = Console(width=80, file=io.StringIO(), color_system=None, force_terminal=True)
    print_results(results, console)
    return console.file.getvalue().splitlines()


def test_lines_keep_within_80_columns(result_set, console_text):
    """Those of a file, but for the verdict, which is whole where lines are searched."""
    text = console_text(lambda console: print_results(result_set, console))
    verdict, *groups = text.partition("Not ok:")[0].splitlines()
    assert verdict.startswith("iree is fastest on")
    assert len(groups) > 150
    lines = _terminal_lines(result_set)
    assert max(len(line.rstrip()) for line in [*groups, *lines]) <= 80
    commands = [line for line in lines if line.startswith("    $ gemmetry profile")]
    assert commands and all(line.endswith(" \\") for line in commands)


def test_a_terminal_does_not_break_the_command_that_shows_a_row(make_record):
    record = make_record("matmul_8x8x8_f32t_f32t_f32t", marks=("drift: slower",))
    folder = f"/experiments/{'long/' * 12}run"
    lines = _terminal_lines(ResultSet(title="t", records=[record], path=folder))
    shown = " ".join(line.strip(" \\") for line in lines)
    assert f" $ gemmetry show {folder} DISPATCH" in shown
