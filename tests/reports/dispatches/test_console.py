from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from gemmetry.dispatches.comparison import compare_with_baseline
from gemmetry.dispatches.page import render_html
from gemmetry.dispatches.terminal import group_failures, print_results
from gemmetry.domain.errors import Outcome, Stage, UnknownNameError, Verification
from gemmetry.domain.record import BuildFacts, ResultSet, Verdict

EXPECTED = Path(__file__).parents[1] / "expected"


def test_table_of_few_records_is_as_reviewed(small_result_set, console_text):
    text = console_text(lambda console: print_results(small_result_set, console))
    assert text == (EXPECTED / "table_80_columns.txt").read_text(encoding="utf-8")


def test_groups_fit_into_80_columns(result_set, console_text):
    text = console_text(lambda console: print_results(result_set, console))
    verdict, *groups = text.partition("Not ok:")[0].splitlines()
    assert verdict.startswith("iree is fastest on"), "whole, where lines are searched"
    assert len(groups) > 150
    assert max(len(line) for line in groups) <= 80


def test_every_failure_shows_outcome_reason_and_command(result_set, console_text):
    text = console_text(lambda console: print_results(result_set, console), width=100)
    for record in result_set.records:
        if record.outcome not in (Outcome.OK, Outcome.UNSUPPORTED):
            assert f"{record.outcome}  {record.provider}:{record.dispatch}" in text
            assert record.reason.splitlines()[0][:150] in text
            assert f"$ {record.reproduce}" in text
    assert "4 × numpy unsupported: numpy has no bf16 product" in text


def test_terminal_sequences_and_markup_of_names_stay_text(make_record, console_text):
    record = make_record(
        "matmul_8x8x8_f32t_f32t_f32t",
        outcome=Outcome.CRASH,
        stage=Stage.BUILD,
        reason="\x1b]0;title\x07[bold]not bold[/bold] [/nothing]",
    )
    text = console_text(lambda c: print_results(ResultSet(title="t", records=[record]), c))
    assert "\x1b" not in text
    assert "[bold]not bold[/bold] [/nothing]" in text


def test_fastest_of_each_operation_is_marked_once(result_set, console_text):
    text = console_text(lambda console: print_results(result_set, console))
    groups = text.partition("Not ok:")[0]
    problems = {(r.operation, r.distribution) for r in result_set.records if r.measurement}
    assert groups.count("▸") == len(problems)


def test_baseline_can_be_chosen_and_must_exist(small_result_set, console_text):
    text = console_text(lambda c: print_results(small_result_set, c, baseline="iree"))
    assert "×iree" in text
    assert "torch 1.07× (1)" in text
    with pytest.raises(UnknownNameError):
        console_text(lambda c: print_results(small_result_set, c, baseline="cublas"))


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


def test_nothing_measured_prints_no_empty_table(small_result_set, console_text):
    failed = [r for r in small_result_set.records if r.measurement is None]
    only = dataclasses.replace(small_result_set, records=failed)
    text = console_text(lambda console: print_results(only, console))
    assert "provider configuration" not in text
    assert "2 dispatches: 1 compile_error, 1 unsupported" in text
    empty = dataclasses.replace(small_result_set, records=[])
    assert "0 dispatches" in console_text(lambda console: print_results(empty, console))


def test_devices_are_named_where_there_are_several(make_record, console_text):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    records = [make_record(name, target="cuda-sm_90", device=f"cuda:{i}") for i in (0, 1)]
    text = console_text(lambda c: print_results(ResultSet(title="t", records=records), c))
    assert "on cuda:0" in text
    assert "on cuda:1" in text


def test_kernels_that_fail_for_one_reason_are_one_message(make_record, console_text):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    records = [
        make_record(name, f"c{i}", outcome=Outcome.COMPILE_ERROR, stage=Stage.COMPILE,
                    reason=f"needs {i} registers")
        for i in range(10)
    ]  # fmt: skip
    text = console_text(lambda c: print_results(ResultSet(title="t", records=records), c))
    assert "Not ok: 10" in text
    assert text.count("compile_error  torch:") == 1
    assert "and 9 more for the same reason:" in text
    assert text.count("needs ") == 1
    assert text.count("    $ gemmetry") == 1


def test_long_lists_of_failures_are_counted(make_record, console_text):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    words = ["alpha"[: i % 5 + 1] * (i // 5 + 1) for i in range(30)]
    records = [
        make_record(name, f"c{i}", outcome=Outcome.WRONG, reason=words[i]) for i in range(30)
    ]
    text = console_text(lambda c: print_results(ResultSet(title="t", records=records), c))
    assert "Not ok: 30" in text
    assert "… and 10 more" in text


def test_wide_intervals_are_not_cut(make_record, console_text):
    records = [make_record("matmul_8x8x8_f32t_f32t_f32t", marks=("remembers: a result",))]
    for share in (0.0996, 1.5, 12.0):
        m = records[0].measurement
        low, high = m.median_ns * (1 - share), m.median_ns * (1 + share)
        wide = dataclasses.replace(m, ci_low_ns=low, ci_high_ns=high)
        records.append(dataclasses.replace(records[0], measurement=wide, provider=f"p{share}"))
    text = console_text(lambda c: print_results(ResultSet(title="t", records=records), c))
    assert "…" not in text
    table = text[text.index("provider") : text.index("Accuracy")]
    assert [word for word in table.split() if word.startswith("±")] == [
        "±", "±1.1%!", "±10%!"]  # fmt: skip
    assert table.count(">100%!") == 2


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


def test_the_foot_counts_every_kind_of_mark(make_record, console_text):
    drift, modes = "drift: slower", "two modes: 1 ms and 2 ms"
    marks = [(drift,), (drift, modes), (modes,), ()]
    records = [
        make_record("matmul_8x8x8_f32t_f32t_f32t", f"c{i}", provider="iree", marks=m)
        for i, m in enumerate(marks)
    ]
    records.append(make_record("matmul_8x8x8_f32t_f32t_f32t"))
    results = ResultSet(title="t", records=records, path="my runs/a")
    text = console_text(lambda c: print_results(results, c), width=120)
    assert "! 3 less trustworthy: 2 drift, 2 two modes\n" in text
    assert "All marks and checks of a row: gemmetry show 'my runs/a' DISPATCH\n" in text
    assert "iree 1.00× (1, 1 based on rows marked !)" in text


def test_a_terminal_does_not_break_the_command_that_shows_a_row(make_record):
    record = make_record("matmul_8x8x8_f32t_f32t_f32t", marks=("drift: slower",))
    folder = f"/experiments/{'long/' * 12}run"
    lines = _terminal_lines(ResultSet(title="t", records=[record], path=folder))
    place = lines.index("All marks and checks of a row:")
    command = " ".join(line.strip(" \\") for line in lines[place + 1 : place + 4])
    assert command == f"$ gemmetry show {folder} DISPATCH"


def test_a_mark_that_most_rows_share_is_stated_once(make_record, console_text):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    marks = [("busy: others",)] * 11 + [("busy: others", "drift: slower")]
    records = [make_record(name, f"c{i}", marks=m) for i, m in enumerate(marks)]
    text = console_text(
        lambda c: print_results(ResultSet(title="t", records=records), c), width=160
    )
    assert "The run as a whole: 12 of 12 rows busy; usual interval ±1.1 %;" in text
    assert "! 1 less trustworthy: 1 drift\n" in text
    assert text.count("%!") == 1


def test_checks_that_could_not_apply_are_one_line(make_record, console_text):
    checks = {
        "values": "passed",
        "written": "not applicable: the provider allocates it",
        "tail_shapes": "not applicable: this configuration",
        "nan_spreads": "not applicable: integers have no rounding, no NaN and no infinity",
    }
    records = [
        make_record("matmul_8x8x8_f32t_f32t_f32t", f"c{i}",
                    verdict=Verdict(status=Verification.PASSED, checks=checks))
        for i in range(3)
    ]  # fmt: skip
    text = console_text(lambda c: print_results(ResultSet(title="t", records=records), c))
    assert text.count("Not possible here") == 1
    assert "Not possible here: 2 checks on 3 of 3 dispatches\n" in text
    assert "All marks and checks of a row: gemmetry show EXPERIMENT DISPATCH\n" in text


def test_a_configuration_is_a_baseline(small_result_set, make_record, console_text):
    name = "matmul_3456x1024x2048_f16t_f16t_f16t"
    records = [*small_result_set.records, make_record(name, provider="iree", gflops=120_000.0)]
    results = dataclasses.replace(small_result_set, records=records)
    text = console_text(lambda c: print_results(results, c, baseline="iree:default"))
    assert "×iree:default" in text
    assert "Speed relative to iree:default, geometric mean (operations): iree 1.95× (1)" in text
    with pytest.raises(UnknownNameError, match="configuration of iree"):
        console_text(lambda c: print_results(results, c, baseline="iree:nope"))


def test_the_best_of_several_algorithms_is_named_so(small_result_set, make_record, console_text):
    name = "matmul_3456x1024x2048_f16t_f16t_f16t"
    best = make_record(
        name, "best", provider="cublaslt", gflops=1e5, facts=BuildFacts(algorithms_tried=8)
    )
    results = dataclasses.replace(small_result_set, records=[*small_result_set.records, best])
    text = console_text(lambda c: print_results(results, c, baseline="cublaslt:best"))
    assert "Speed relative to cublaslt:best (best of 8), geometric mean" in text
    page = render_html(results, baseline="cublaslt:best")
    assert "geometric mean vs cublaslt:best (best of 8)" in page
    comparison = compare_with_baseline(results, "cublaslt:best")
    assert comparison.title == "cublaslt:best (best of 8) of the same problem"


def test_a_reason_does_not_repeat_the_name(make_record, console_text):
    name = "matmul_8x8x8_f32t_f32t_f32t"
    record = make_record(name, outcome=Outcome.WRONG, reason=f"{name}_default: element 3 differs")
    text = console_text(lambda c: print_results(ResultSet(title="t", records=[record]), c))
    assert "    element 3 differs\n" in text


def test_a_missing_interval_is_stated(small_result_set, console_text):
    """No ±0.0 % for a single sample, whose speed against another is undecided."""
    records = [
        record
        if record.measurement is None
        else dataclasses.replace(
            record,
            measurement=dataclasses.replace(
                record.measurement, ci_low_ns=None, ci_high_ns=None, sample_count=1
            ),
        )
        for record in small_result_set.records
    ]
    few = dataclasses.replace(small_result_set, records=records, samples=lambda _: [1e6])
    text = console_text(lambda console: print_results(few, console), width=80)
    assert "±0" not in text
    assert " n/a" in text
    assert "×≷" in text
    assert "≷ undecided: too little was measured to know which is faster" in text
    table = console_text(
        lambda console: print_results(few, console, columns=["ci_low_ns", "median_ns"]), width=80
    )
    assert "n/a" in table


NAME = "matmul_8x8x8_f32t_f32t_f32t"


def test_reasons_that_differ_in_numbers_and_names_are_one_group(make_record):
    def failed(configuration, reason, **fields):
        fields = {"outcome": Outcome.WRONG, "stage": Stage.VERIFY, **fields}
        return make_record(NAME, configuration, reason=reason, **fields)

    records = [
        failed("tile32", "values: 12 of 64 elements are wrong; first at [0, 1]: got -1.5e-3"),
        failed("tile64", f"{NAME}_tile64: values: 7 of 64 elements are wrong; first at [3, 1]: "
                         "got 2"),
        failed("tile128", "values: 12 of 64 elements are NaN"),
        failed("tile256", "values: 12 of 64 elements are NaN", provider="iree"),
        failed("tile512", "values: 12 of 64 elements are NaN", outcome=Outcome.CRASH),
        make_record(NAME),
        make_record(NAME, "skipped", outcome=Outcome.SKIPPED, reason="slow", stage=Stage.BUILD),
    ]  # fmt: skip
    groups = group_failures(records)
    assert [[r.configuration for r in group.records] for group in groups] == [
        ["tile32", "tile64"], ["tile128"], ["tile256"], ["tile512"]]  # fmt: skip
    assert (groups[0].first, groups[0].others) == (records[0], 1)
