"""What every report shows of invented experiments: golden outputs, one file for each experiment."""

from __future__ import annotations

import dataclasses
import errno
import os

import pytest

from gemmetry.dispatches.page import render_html, render_notebook_table
from gemmetry.dispatches.results import format_block, to_csv, to_junit, to_markdown
from gemmetry.dispatches.show import show_dispatch
from gemmetry.dispatches.terminal import print_results
from gemmetry.domain.errors import Outcome, Stage, UnknownNameError, Verification
from gemmetry.domain.record import (
    BuildFacts,
    EnergyFacts,
    Environment,
    ResultSet,
    Telemetry,
    TraceFacts,
    Verdict,
)

pytest.importorskip("plotly")

NAME = "matmul_64x64x64_f32t_f32t_f32t"
LIKE_IREE = "matmul_3456x1024x2048_f16t_f16t_f16t"


def _wide(make, share, provider):
    ns = make(NAME).measurement.median_ns
    wide = {"ci_low_ns": ns * (1 - share), "ci_high_ns": ns * (1 + share)}
    return make(NAME, provider=provider, measured=wide)


def _both(make, **fields):
    return [make(NAME, provider=one, gflops=50.0, **fields) for one in ("torch", "numpy")]


def _failed(make, **fields):
    return make(NAME, **{"outcome": Outcome.COMPILE_ERROR, "stage": Stage.COMPILE, **fields})


def _reasons(make):
    wrong = {"outcome": Outcome.WRONG, "stage": Stage.VERIFY}
    nan = "values: 12 of 64 elements are NaN"
    words = ["alpha"[: i % 5 + 1] * (i // 5 + 1) for i in range(22)]
    return [
        *(_failed(make, configuration=f"c{i}", reason=f"needs {i} registers") for i in range(10)),
        _failed(make, configuration="t32", reason="12 are wrong at [0, 1]: got -1.5e-3", **wrong),
        _failed(make, configuration="t64", reason=f"{NAME}_t64: 7 are wrong at [3, 1]: got 2",
                **wrong),
        _failed(make, configuration="t128", reason=nan, **wrong),
        _failed(make, configuration="t256", reason=nan, provider="iree", **wrong),
        _failed(make, configuration="t512", reason=nan, outcome=Outcome.CRASH),
        *(_failed(make, configuration=f"w{i}", reason=one, **wrong) for i, one in enumerate(words)),
    ]  # fmt: skip


def _unapplied(make):
    checks = {"values": "passed", "written": "not applicable: the provider allocates it",
              "tail_shapes": "not applicable: this configuration",
              "nan_spreads": "not applicable: integers have no rounding, no NaN and no infinity",
              "bits": "property: differ", "calls": "incomplete: too slow"}  # fmt: skip
    verdict = Verdict(status=Verification.PASSED, checks=checks, refused_shapes=3)
    return [make(NAME, f"c{i}", verdict=verdict) for i in range(3)]


def _facts(make):
    facts = BuildFacts(matrix_instruction="vfmadd231ps ymm", spill_bytes=0, registers=64,
                       compile_command="iree-compile " + "--flag " * 30,
                       run_command="run it")  # fmt: skip
    energy = EnergyFacts(energy_j=0.118, ci_low_j=0.117, ci_high_j=0.119, windows=6, window_s=2.01,
                         resolution=0.01, idle_power_w=76.0)  # fmt: skip
    telemetry = Telemetry(sm_clock_hz=1.98e9, throttle_reasons=("sw_power_cap",))
    best = BuildFacts(matrix_instruction="none", spill_bytes=128, compiled_for="sm_80")
    slow = make(NAME, facts=facts, gflops=90.0, measured={"telemetry": telemetry})
    fast = make(NAME, "tile", provider="iree", facts=best, gflops=180.0,
                measured={"energy": energy})  # fmt: skip
    return [dataclasses.replace(slow, roofline_fraction=0.5), fast]


def _marks(make):
    drift, modes = "drift: slower", "two modes: 1 ms and 2 ms"
    marks = [(drift,), (drift, modes), (modes,), ()]
    return [*(make(NAME, f"c{i}", provider="iree", marks=m) for i, m in enumerate(marks)),
            make(NAME, marks=("noisy: interval ±98 %", "busy: load 3"))]  # fmt: skip


def _common(make):
    marks = [("busy: others",)] * 11 + [("busy: others", "drift: slower")]
    return [make(NAME, f"c{i}", marks=m) for i, m in enumerate(marks)]


def _speeds(make, **providers):
    """Of square products, as many as there are speeds; None: not measured."""
    name = "matmul_{0}x{0}x64_f32t_f32t_f32t".format
    return [make(name(64 << place), provider=provider, gflops=speed)
            for provider, row in providers.items()
            for place, speed in enumerate(row) if speed]  # fmt: skip


def _devices(make):
    return [make(NAME, target="cuda-sm_90", device=f"cuda:{i}") for i in (0, 1)] + [make(NAME)]


def _kinds(make):
    trace = TraceFacts(
        folder="traces_matmul/config_0007", files=("CPU_trace.json",), operators=20, kernels=5,
        input_sha256={"lhs": "aa", "rhs": "bb"}, output_sha256="cc",
    )  # fmt: skip
    return [make(NAME, gflops=None, trace=trace),
            make("matmul_8x8x8_e4m3t_e5m2n_bf16t_scalerow_alpha0p5_beta1_bias_relu"),
            make("conv2d_1x58x58x64_3x3x128_stride2x2_pad1x1_f32nhwc_f32hwcf_f32nhwc"),
            make("batch_matmul_2x3x4x5_f32t_f32n_f32t"), make("matmul_8x8x8_f16t_f16t_f16t_accf16"),
            make(NAME, tags={"a|b": "<script>x</script> `c` *d*\n| e"})]  # fmt: skip


ONE_SAMPLE = {"ci_low_ns": None, "ci_high_ns": None, "sample_count": 1}
HOSTILE = "\x1b]0;title\x07[bold]not bold[/bold] [/nothing] a\x00b\ufffe \ud800 <&>"
MIXED = [5000.0, 5200.0, 4900.0] * 20
MEMORY = Environment(memory_bytes=33_711_083_520, device_memory_bytes=(85_520_809_984, None))
CASES = {
    "marks": (_marks, {"path": "my runs/a"}),
    "common_marks": (_common, {}),
    "intervals": (
        lambda make: [_wide(make, share, f"p{share}") for share in (0.0996, 1.5, 12.0)], {}),
    "one_sample": (
        lambda make: _both(make, measured=ONE_SAMPLE),
        {"samples": lambda _: [5000.0]}),
    "no_difference": (_both, {"samples": lambda _: MIXED}),
    "devices": (_devices, {"environments": {"a1": MEMORY, "b2": Environment(hostname="x")}}),
    "reasons": (_reasons, {}),
    "hostile": (
        lambda make: [_failed(make, outcome=Outcome.CRASH, reason=HOSTILE, output_tail="tail",
                              stage=Stage.BUILD)], {}),
    "unapplied": (_unapplied, {}),
    "facts": (_facts, {}),
    "kinds": (_kinds, {}),
    # A card compares providers where all measured; who measured too little is named.
    "some_in_common": (
        lambda make: _speeds(make, torch=(100, 100, 100), iree=(400, 100, None)), {}),
    "left_out": (lambda make: _speeds(make, torch=[100] * 4, iree=[200] * 4, numpy=(50,)), {}),
    "no_library": (lambda make: _speeds(make, triton=(100, 100), iree=(200, 200)), {}),
    "nothing": (lambda make: [], {}),
}  # fmt: skip


@pytest.fixture
def texts_of(console_text, page_text, page_data, dumped):
    """Everything that is shown of results."""

    def texts(results, baseline=None):
        page = render_html(results, baseline=baseline)
        data = page_data(page)
        figures = {kind: found for kind, found in data["figures"].items() if kind != "samples"}
        return (
            console_text(lambda console: print_results(results, console, baseline=baseline)),
            to_markdown(results),
            to_junit(results).decode(),
            page_text(page),
            page_text(render_notebook_table(results)),
            dumped(data["palette"]["places"], *data["derived"]),
            *(kind + dumped(*found) for kind, found in figures.items()),
            format_block(results.records),
            to_csv(results, ["dispatch-profiler"]),
        )

    return texts


@pytest.fixture
def show(console_text):
    """What ``gemmetry show`` prints of the dispatches that a pattern matches."""

    def run(results, pattern="*", width=80):
        return console_text(lambda console: show_dispatch(results, pattern, console), width)

    return run


@pytest.mark.parametrize("case", CASES)
def test_an_experiment(case, make_record, texts_of, show, golden):
    records, fields = CASES[case]
    results = ResultSet(title=case, records=records(make_record), **fields)
    shown = [show(results, f"{one.provider}:{one.dispatch}") for one in results.records[:2]]
    golden(f"report_{case}", "\f\n".join([*texts_of(results), *shown]))


@pytest.mark.parametrize("baseline", [None, "iree", "iree:default", "cublaslt:best"])
def test_baselines(baseline, small_result_set, make_record, texts_of, golden):
    tried = BuildFacts(algorithms_tried=8)
    more = [
        make_record(LIKE_IREE, provider="iree", gflops=120_000.0),
        make_record(LIKE_IREE, "best", provider="cublaslt", gflops=1e5, facts=tried),
    ]
    results = dataclasses.replace(small_result_set, records=[*small_result_set.records, *more])
    name = f"report_baseline_{baseline}".replace(":", "_")
    golden(name, "\f\n".join(texts_of(results, baseline)))
    for wrong in ("iree:defaut", "torhc"):
        with pytest.raises(UnknownNameError, match=r"default|torch"):
            texts_of(results, wrong)


def test_a_wrong_dispatch(failed_result_set, result_set, texts_of, show, golden):
    wrong = show(result_set, "matmul_512x512x512_f32t_f32t_f32t_wrong")
    parts = [*texts_of(failed_result_set), show(failed_result_set), wrong,
             show(result_set, "257x129x65"), show(result_set, "*crashes"),
             show(result_set, "iree:matmul_512x512x512_f32t_f32t_f32t_tile_64x64_32")]  # fmt: skip
    golden("report_wrong", "\f\n".join(parts))


def test_files_are_quoted(result_set, make_record, tmp_path, show, golden):
    """The part of the machine code with most products, and the dispatch's own function."""
    lines = [f"\tmov.b32 %r{i}, 0;" for i in range(100)]
    lines[70:74] = ["\tmma.sync.aligned.m16n8k16 {%r1};"] * 4
    (tmp_path / "a.ptx").write_text("\n".join(lines))
    record = make_record(NAME, facts=BuildFacts(
        assembly_path="a.ptx", tool_output_path="a.log", matrix_instruction="mma.sync",
        source_path="a.mlir", registers=64,
    ))  # fmt: skip
    source = "".join(f"line {i}\n" for i in range(40))
    results = dataclasses.replace(result_set, records=[record], path=str(tmp_path))
    texts = []
    for text in (source, f"func.func @other(\n  other\n}}\n{source}\nfunc.func "
                         f"@{record.dispatch}(\n  own body\n}}\n"):  # fmt: skip
        (tmp_path / "a.mlir").write_text(text)
        texts.append(show(results, width=200))
    for name in ("a.ptx", "a.mlir"):
        (tmp_path / name).unlink()
    texts.append(show(results, width=200))
    text = "\f\n".join(texts).replace(str(tmp_path), "{here}")
    golden("show_files", text.replace(os.strerror(errno.ENOENT), "{no such file}"))
