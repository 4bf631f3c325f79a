from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

import pytest

from gemmetry.dispatches.show import (
    EXCERPT_LINES,
    machine_code_excerpt,
    matching_records,
    show_dispatch,
    source_excerpt,
    why_line,
)
from gemmetry.domain.errors import EmptySelectionError, Outcome, RequestError
from gemmetry.domain.record import BuildFacts, EnergyFacts, Telemetry, TraceFacts

EXPECTED = Path(__file__).parents[1] / "expected"
WRONG = "matmul_512x512x512_f32t_f32t_f32t_wrong"


def test_a_wrong_dispatch_is_explained(result_set, console_text):
    text = console_text(lambda c: show_dispatch(result_set, WRONG, c))
    assert text == (EXPECTED / "show_wrong.txt").read_text(encoding="utf-8")


def test_all_facts_of_a_measured_dispatch_are_shown(result_set, console_text):
    name = "iree:matmul_512x512x512_f32t_f32t_f32t_tile_64x64_32"
    text = console_text(lambda c: show_dispatch(result_set, name, c))
    for message in ("median", "95 % interval", "60 samples in 3 rounds, 4 launches each",
                 "passed 2 checks values, repeat", "check red_zones not applicable: host",
                 "36.7 % of measured on this machine",
                 "why 36.7 % of the roofline · 0.64× the speed of iree tile_",
                 "stopped by interval", "first launch"):  # fmt: skip
        assert message in " ".join(text.split())
    histogram = [line for line in text.splitlines() if "█" in line]
    assert sum(int(line.split()[-1]) for line in histogram) == 60


@pytest.mark.parametrize(
    ("energy", "text"),
    [
        (
            EnergyFacts(energy_j=0.118, ci_low_j=0.117, ci_high_j=0.119, windows=6, window_s=2.01,
                        resolution=0.01, idle_power_w=76.0),
            "energy 118 mJ (95 % interval 117 mJ to 119 mJ), 0.0 GFLOP/J, 6 windows of at least "
            "2.0 s with a resolution of 1 %, idle 76 W",
        ),
        (EnergyFacts(reason="no counter"), "energy none: no counter"),
    ],
)  # fmt: skip
def test_energy_is_shown_with_its_resolution(result_set, make_record, console_text, energy, text):
    record = make_record("matmul_8x8x8_f32t_f32t_f32t")
    measurement = dataclasses.replace(record.measurement, energy=energy)
    record = dataclasses.replace(record, measurement=measurement)
    result_set = dataclasses.replace(result_set, records=[record])
    assert text in " ".join(console_text(lambda c: show_dispatch(result_set, "*", c)).split())


def test_a_recorded_dispatch_shows_folder_and_checksums(result_set, make_record, console_text):
    trace = TraceFacts(
        folder="traces_matmul/config_0007", files=("CPU_trace.json",), operators=20, kernels=5,
        input_sha256={"lhs": "aa", "rhs": "bb"}, output_sha256="cc",
    )  # fmt: skip
    record = make_record("matmul_8x8x8_f32t_f32t_f32t", gflops=None, trace=trace)
    result_set = dataclasses.replace(result_set, records=[record])
    text = " ".join(console_text(lambda c: show_dispatch(result_set, "*", c)).split())
    assert "Traces folder traces_matmul/config_0007 files CPU_trace.json" in text
    assert "operators 20 kernels 5" in text
    assert "sha256 of lhs aa sha256 of rhs bb sha256 of the result cc" in text


def test_each_command_is_on_one_line(result_set, console_text, make_record):
    record = make_record(
        "matmul_8x8x8_f32t_f32t_f32t",
        facts=BuildFacts(compile_command="iree-compile " + "--flag " * 30, run_command="run it"),
    )
    results = dataclasses.replace(result_set, records=[record])
    lines = console_text(lambda c: show_dispatch(results, "*", c)).splitlines()
    assert f"  {record.facts.compile_command.rstrip()}" in lines
    assert "  run it" in lines
    assert f"  {record.reproduce}" in lines


def test_machine_code_is_quoted_around_its_product(result_set, make_record, tmp_path, console_text):
    lines = [f"\tmov.b32 %r{i}, 0;" for i in range(100)]
    lines[70:74] = ["\tmma.sync.aligned.m16n8k16 {%r1};"] * 4
    (tmp_path / "a.ptx").write_text("\n".join(lines))
    facts = BuildFacts(
        assembly_path="a.ptx", tool_output_path="a.log", matrix_instruction="mma.sync"
    )
    record = make_record("matmul_8x8x8_f32t_f32t_f32t", facts=facts)
    results = dataclasses.replace(result_set, records=[record], path=str(tmp_path))
    text = console_text(lambda c: show_dispatch(results, "*", c), width=200)
    assert "  assembly, from line 55:\n        mov.b32 %r54, 0;\n" in text
    assert text.count("mma.sync.aligned") == 4
    assert "mov.b32 %r53," not in text
    assert str(tmp_path / "a.log") in text
    (tmp_path / "a.ptx").unlink()
    text = console_text(lambda c: show_dispatch(results, "*", c), width=200)
    assert f"the assembly cannot be read: {os.strerror(errno.ENOENT)}" in text


def test_source_is_quoted_from_the_experiment(result_set, make_record, tmp_path, console_text):
    (tmp_path / "gen").mkdir()
    (tmp_path / "gen" / "a.mlir").write_text("".join(f"line {i}\n" for i in range(100)))
    facts = BuildFacts(source_path="gen/a.mlir", assembly_path="gen/a.ptx", registers=64)
    record = make_record("matmul_8x8x8_f32t_f32t_f32t", facts=facts)
    results = dataclasses.replace(result_set, records=[record], path=str(tmp_path))
    text = console_text(lambda c: show_dispatch(results, "*", c), width=200)
    assert "line 23\n" in text
    assert "line 24\n" not in text
    assert str(tmp_path / "gen" / "a.ptx") in text
    assert "registers 64" in " ".join(text.split())
    (tmp_path / "gen" / "a.mlir").unlink()
    text = console_text(lambda c: show_dispatch(results, "*", c), width=200)
    assert f"the source cannot be read: {os.strerror(errno.ENOENT)}" in text


def test_output_tail_cannot_drive_the_terminal(result_set, console_text):
    text = console_text(lambda c: show_dispatch(result_set, "*crashes", c))
    assert "Fatal error \ufffd[31mred" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        (WRONG, 1),
        (f"user:{WRONG}", 1),
        ("*_tile_64x64_32", 22),
        ("provider=null", 2),
        ("re:crash|hang", 2),
        ("257x129x65", 27),
        ("*crashes,*hangs", 2),
        ("*null:*", 2),
        ("*iree*tile_64x64_32", 21),
    ],
)
def test_patterns(result_set, pattern, count):
    assert len(matching_records(result_set.records, pattern)) == count


def test_many_matches_are_listed_by_name(result_set, console_text):
    text = console_text(lambda c: show_dispatch(result_set, "257x129x65", c))
    assert text.startswith("27 dispatches match; name one of them:")
    assert "… and 7 more" in text
    assert "Verification" not in text


def test_no_match_suggests_the_nearest(result_set, console_text):
    with pytest.raises(EmptySelectionError, match=WRONG):
        console_text(lambda c: show_dispatch(result_set, WRONG.replace("wrong", "wrnog"), c))
    with pytest.raises(RequestError, match="regular expression"):
        console_text(lambda c: show_dispatch(result_set, "re:(", c))


_MLIR = """\
// matmul_8x8x8_f32t_f32t_f32t
func.func @matmul_8x8x8_f32t_f32t_f32t_default(
    %lhs: tensor<8x8xf32>) {
}

#config = #some.attribute
func.func @matmul_8x8x8_f32t_f32t_f32t_tile4x4(
    %lhs: tensor<8x8xf32>) {
  the body of tile4x4
}

func.func @matmul_8x8x8_f32t_f32t_f32t_tile4(
    %lhs: tensor<8x8xf32>) {
  the body of tile4
}
"""


@pytest.mark.parametrize(
    ("configuration", "first", "words"),
    [("default", 1, "@matmul_8x8x8_f32t_f32t_f32t_default("), ("tile4", 11, "body of tile4"),
     ("tile4x4", 5, "body of tile4x4")],
)  # fmt: skip
def test_an_excerpt_is_the_dispatchs_own_function(configuration, first, words):
    start, lines = source_excerpt(_MLIR, f"matmul_8x8x8_f32t_f32t_f32t_{configuration}")
    assert start == first
    assert lines[-1] == "}" and lines.count("}") == 1
    assert words in "\n".join(lines)


def test_a_source_without_the_name_is_given_from_its_start():
    assert source_excerpt("a\nb\n", "matmul") == (0, ["a", "b"])


def test_show_prints_the_requested_function(result_set, make_record, tmp_path, console_text):
    facts = BuildFacts(source_path="a.mlir")
    record = make_record("matmul_8x8x8_f32t_f32t_f32t", facts=facts)
    (tmp_path / "a.mlir").write_text(
        "func.func @other(\n  other body\n}\n"
        + "//\n" * 40
        + f"func.func @{record.dispatch}(\n  own body\n}}\n"
    )
    results = dataclasses.replace(result_set, records=[record], path=str(tmp_path))
    text = console_text(lambda c: show_dispatch(results, "*", c), width=200)
    assert "own body" in text and "from line 44:" in text
    assert "other body" not in text


def test_a_wrong_dispatch_shows_map_evidence_and_what_could_not_apply(
    failed_result_set, console_text
):
    text = console_text(lambda c: show_dispatch(failed_result_set, "*", c))
    assert max(len(line) for line in text.splitlines() if "gemmetry " not in line) <= 80
    assert "    ....\n    ###1\n" in text
    words = " ".join(text.split())
    assert "check written not applicable: the provider allocates its own output" in words
    assert "check integers failed: 9 elements are wrong" in words
    assert "passed 1 check form" in words
    assert "inputs, output, why run/artifacts/failures/cpu/torch/bad" in words


def test_names_are_listed_where_none_is_near(result_set):
    with pytest.raises(EmptySelectionError) as raised:
        matching_records(result_set.records, "zzzzzzzz")
    first = result_set.records[0]
    assert f"There are {first.provider}:{first.dispatch}, " in raised.value.hint
    assert "and others" in raised.value.hint


PRODUCT = "matmul_64x64x64_f32t_f32t_f32t"


def test_everything_that_is_known_is_in_the_line(make_record):
    facts = BuildFacts(matrix_instruction="wgmma", spill_bytes=128, compiled_for="sm_80")
    record = make_record(PRODUCT, "tile", gflops=90.0, facts=facts)
    telemetry = Telemetry(sm_clock_hz=1.98e9, throttle_reasons=("sw_power_cap",))
    m = dataclasses.replace(record.measurement, telemetry=telemetry)
    record = dataclasses.replace(record, measurement=m, roofline_fraction=0.5)
    best = make_record(PRODUCT, "other", gflops=180.0, facts=BuildFacts(matrix_instruction="none"))
    assert why_line(record, best) == (
        "wgmma (the fastest here: no multiply instruction found) · compiled for sm_80 · 128 B "
        "spilled per thread · 50 % of the roofline · at 1980 MHz · throttled: sw_power_cap · 0.50× "
        "the speed of torch other, the fastest here"
    )


def test_the_fastest_is_not_compared_with_itself(make_record):
    record = make_record(PRODUCT, facts=BuildFacts(matrix_instruction="wgmma", spill_bytes=0))
    assert why_line(record, record).startswith("wgmma · no spills · ")
    assert "fastest" not in why_line(record, record)


def test_without_a_time_there_is_nothing_to_explain(make_record):
    assert why_line(make_record(PRODUCT, outcome=Outcome.CRASH, reason="no"), None) == ""


def text_with(word: str, *at: int, lines: int = 100) -> str:
    return "\n".join(f"\t{word} {i}" if i in at else f"\tmov {i}" for i in range(lines))


def test_the_densest_part_is_shown():
    text = text_with("wgmma.mma_async", 3, 50, 52, 54)
    start, lines = machine_code_excerpt(text, "wgmma")
    assert len(lines) == EXCERPT_LINES
    assert sum("wgmma" in line for line in lines) == 3
    assert lines[0] == f"\tmov {start}"


def test_the_kind_of_register_is_not_looked_for():
    assert machine_code_excerpt("\tvfmadd231ps (%rax), %zmm1, %zmm2", "vfmadd231ps zmm") == (
        0, ["\tvfmadd231ps (%rax), %zmm1, %zmm2"],
    )  # fmt: skip


def test_without_a_matrix_instruction_plain_products_are_looked_for():
    start, lines = machine_code_excerpt(text_with("fma.rn.f32", 60, 61), "none")
    assert start <= 60 and "\tfma.rn.f32 61" in lines
    assert machine_code_excerpt(text_with("fma.rn.f32", 5), None)[1]


def test_what_does_not_occur_is_not_shown():
    assert machine_code_excerpt("\tret", "wgmma") == (0, [])
    assert machine_code_excerpt("", "wgmma") == (0, [])
