"""Every key of a spec, once: its panel, its form on the command line, its other names, its text.

The model's JSON schema, the command line's options, shell completion and the documents' tables
all read this table. Standard library only, because ``--help`` imports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gemmetry.domain.settings import RunSettings


class Form(StrEnum):
    """How a key is written as an option."""

    TEXT = "text"
    """One value."""
    LIST = "list"
    """Comma- or space-separated values, or the option several times."""
    FLAG = "flag"
    """``--key``, ``--key=true``, ``--no-key``."""
    SPEC_ONLY = "spec only"
    """A mapping: in a file, or with ``--set key.part=value``."""


class Effect(StrEnum):
    """What a setting of a run can change."""

    OUTCOME = "outcome"
    TIMING = "timing"
    """How a dispatch is timed, and no verdict of verification."""
    NOTHING = "nothing"
    """That is stored of a dispatch."""


_SETTINGS = RunSettings()


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a spec."""

    name: str
    panel: str
    form: Form
    text: str
    aliases: tuple[str, ...] = ()
    short: str = ""
    metavar: str = ""
    default: Any = None
    """Its value where nothing is given; of a list that is None here, nothing."""
    unset: str = ""
    """What a value that is nothing means, unless the text says it."""
    setting: str = ""
    """The field of :class:`RunSettings` that it sets, if any."""
    effect: Effect = Effect.OUTCOME
    """What that setting can change, which decides where the command that repeats a dispatch names
    it."""

    @property
    def value(self) -> Any:
        """Its value where nothing is given."""
        return () if self.default is None and self.form is Form.LIST else self.default

    def help(self, own: Any = None) -> str:
        """What its option does, and the default: `own` where a command has another."""
        if plain(own):
            return f"{self.text.partition(' Default: ')[0]} Default: {plain(own)}."
        default = self.unset or plain(self.default)
        return f"{self.text} Default: {default}." if default else self.text

    @property
    def option(self) -> str:
        """``--problem-m``."""
        return f"--{self.name.replace('_', '-')}"


def plain(value: Any) -> str:
    """A default as it is shown: on, off, a number, a list; "" for nothing."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value in (None, {}) else str(value)


WHAT = "What is computed"
GRID = "Grid settings (of the grid tracing document)"
WHO = "What computes it, and where"
HOW = "How it is run"
RESULTS = "Results"
PANELS = (WHAT, WHO, HOW, RESULTS, GRID)

_T, _L, _F = Form.TEXT, Form.LIST, Form.FLAG
_TIMING, _NOTHING = Effect.TIMING, Effect.NOTHING


def _of(setting: str, effect: Effect = Effect.OUTCOME) -> dict[str, Any]:
    """That a key sets the field `setting` of a run, and has its default."""
    default = getattr(_SETTINGS, setting)
    return {"setting": setting, "effect": effect, "default": None if default == () else default}


_ROWS = (
    Key("operation_kind", WHAT, _L, "Kinds of operation: matmul, batch_matmul, matmul_splitk, "
        "conv2d, all.", ("op_kind",), metavar="KIND", unset="matmul, or the kind that the shapes "
            "are for"),
    Key("problem_m", WHAT, _L, "Sizes of M: 256, 64:1024:128 (end excluded), log2:64:8192 "
        "(included), lists.", metavar="SIZES"),
    Key("problem_n", WHAT, _L, "Sizes of N.", metavar="SIZES"),
    Key("problem_k", WHAT, _L, "Sizes of K.", metavar="SIZES"),
    Key("problem_b", WHAT, _L, "Batches of a batch_matmul.", metavar="SIZES", unset="16"),
    Key("shapes", WHAT, _L, "Shapes MxNxK or BxMxNxK, presets (squares, llm, legacy, first), or "
        "files (.csv, .yaml, .txt).", ("shape",), metavar="SHAPES", unset="the three of a first "
            "run"),
    Key("conv_shapes", WHAT, _L, "conv2d shapes NxHxWxC_RxSxF[_strideAxB][_padAxB].",
        metavar="SHAPES"),
    Key("dtypes", WHAT, _L, "Formats of A and B (f32, bf16, s8 ...), or of A, B and C as in "
        "f16:f16:f32.",
        ("dtype",), metavar="DTYPES", unset="f32, on a GPU bf16"),
    Key("result_dtype", WHAT, _L, "Formats of C if --dtypes does not give them.", metavar="DTYPES",
        unset="that of A, s32 for s8, bf16 for fp8"),
    Key("accumulator", WHAT, _L, "Formats of the accumulator.", ("accumulators",),
        metavar="DTYPES", unset="f32, f64 for f64, s32 for s8"),
    Key("layouts", WHAT, _L, "Layouts of A and B: tt, tn, nt, nn (t row-major, n column-major).",
        ("layout",), metavar="PAIRS", unset="tt"),
    Key("result_layout", WHAT, _T, "Layout of C: t or n.", metavar="LETTER", default="t"),
    Key("epilogues", WHAT, _L, "Fused steps joined by +: none, bias+relu, gelu, residual.",
        ("epilogue",), metavar="STEPS", unset="none"),
    Key("alpha", WHAT, _T, "Factor of the product.", metavar="NUMBER", default=1.0),
    Key("beta", WHAT, _T, "Factor of C, which is added to the "
        "product.", metavar="NUMBER", default=0.0),
    Key("scaling", WHAT, _T, "Dequantising factors of A and B: none, tensor or row.",
        metavar="NAME", default="none"),
    Key("split_k_slices", WHAT, _L, "Slices of a matmul_splitk; those that do not divide K are "
        "left out.", ("iree_flow_split_matmul_reduction",), metavar="SIZES", unset="2, 4"),
    Key("providers", WHO, _L, "Providers: torch, numpy, iree, triton, null, user. Default: all "
        "that work on the device.", ("provider",), metavar="NAMES"),
    Key("kernel", WHO, _L, "Your own kernels, as file.py:function.", metavar="FILE:FUNCTION",
        unset="none"),
    Key("device", WHO, _L, "Devices: cpu, cuda, cuda:1; cuda-sm_80 only compiles. Default: the "
        "first GPU, else the CPU.", ("devices", "iree_hal_target_backends"), metavar="DEVICE"),
    Key("cuda_arch", WHO, _T, "Architecture to compile for, in generate and compile, and with "
        "--device cuda on a machine without such a device.",
        ("iree_hal_cuda_llvm_target_arch",), metavar="sm_XX", unset="the device's"),
    Key("iree_bin_dir", WHO, _T, "Folder of IREE's tools. Default: those of the installed package.",
        metavar="DIR"),
    Key("dispatches", WHO, _L, "Dispatches to include: globs on the name, re:REGEX, key=value, "
        "or full names, whose operations are "
        "added.", ("dispatch",), metavar="PATTERNS", unset="all"),
    Key("exclude", WHO, _L, "Dispatches to exclude, by the same patterns.", metavar="PATTERNS",
        unset="none"),
    Key("default_config", WHO, _F, "Only the configuration that leaves every choice to the "
        "provider.", default=False),
    Key("verification_enabled", HOW, _F, "Verify each dispatch before it is timed.",
        **_of("verify")),
    Key("verification_providers", HOW, _L, "What computes the reference: numpy, or device (in "
        "float64 on the device).", metavar="NAMES", **_of("verification_providers")),
    Key("verification_level", HOW, _T, "How many checks verification runs: quick, standard or "
        "paranoid.",
        metavar="NAME", **_of("verification_level")),
    Key("sanitizers", HOW, _L, "Tools of compute-sanitizer to run each verified CUDA dispatch "
        "under: memcheck, racecheck, synccheck, initcheck, all.", metavar="TOOLS", unset="none",
        **_of("sanitizers")),
    Key("judge_rivals", HOW, Form.SPEC_ONLY, "Also record what the checks of other harnesses "
        "would have concluded about each result (the self-test does).",
        **_of("judge_rivals", _TIMING)),
    Key("profiling_enabled", HOW, _F, "Measure.", ("benchmark",), **_of("measure", _TIMING)),
    Key("benchmark_repetitions", HOW, _T, "Take exactly this many samples. Default: until the "
        "interval is narrow enough.", ("repeat_count",), metavar="COUNT",
        **_of("repetitions", _TIMING)),
    Key("dispatch_repeat_count", HOW, _T, "Launches timed as one sample. Default: as many as the "
        "clock requires.", ("batch_size", "iree_hal_benchmark_dispatch_repeat_count"),
        metavar="COUNT", **_of("launches_per_sample", _TIMING)),
    Key("warmup_iterations", HOW, _T, "Launches before sampling.", metavar="COUNT",
        **_of("warmup_iterations", _TIMING)),
    Key("warmup_time", HOW, _T, "Continuous load before sampling: 1s, 500ms. Default: none (see "
        "--regime sustained).", metavar="TIME", setting="warmup_s", effect=_TIMING),
    Key("min_samples", HOW, _T, "Minimum number of samples, however long they take. Default: 10, "
        "or fewer if --time-budget ends first.", metavar="COUNT", **_of("min_samples", _TIMING)),
    Key("max_samples", HOW, _T, "Most samples.", metavar="COUNT", **_of("max_samples", _TIMING)),
    Key("processes", HOW, _T, "Worker processes that share the rounds of a dispatch, 12 at "
        "most; 0: 3 on a GPU, 1 elsewhere.", metavar="COUNT", **_of("processes", _TIMING)),
    Key("time_budget", HOW, _T, "Sampling time of one dispatch: 2s, 500ms.", metavar="TIME",
        **_of("time_budget_s", _TIMING)),
    Key("interval_width", HOW, _T, "Target for the relative half-width of the median's 95 % "
        "interval. "
        "Default: 0.005 on a GPU, 0.02 on a CPU.", metavar="FRACTION",
        **_of("interval_width", _TIMING)),
    Key("max_seconds_per_launch", HOW, _T, "Skip a dispatch if one launch takes longer than this.",
        metavar="TIME", **_of("max_seconds_per_launch")),
    Key("deadlines", HOW, Form.SPEC_ONLY, "Seconds that a stage may take, as in {compile: 300}.",
        default={}, setting="deadlines_s"),
    Key("regime", HOW, _T, "Thermal regime: burst or sustained.", metavar="NAME",
        **_of("regime", _TIMING)),
    Key("timing_method", HOW, _T, "How a GPU is timed: graph (replays of captured graphs), events, "
        "or auto, which takes graphs for short launches.", metavar="NAME",
        **_of("timing_method", _TIMING)),
    Key("cold_cache", HOW, _F, "Rotate through copies of the inputs so that no cache holds "
        "them.", **_of("cold_cache", _TIMING)),
    Key("distribution", HOW, _T, "Distribution of the inputs: offset_uniform, uniform, "
        "uniform_signed, normal, integers, zeros.", metavar="NAME", **_of("distribution")),
    Key("seed", HOW, _T, "Seed of the inputs.", ("random_seed",), metavar="NUMBER", **_of("seed")),
    Key("threads", HOW, _T, "CPU threads of a provider; 0: all.", metavar="COUNT",
        **_of("threads")),
    Key("jobs", HOW, _T, "Parallel compiles; 0 or -1: one per processor.", ("num_cpu",), "-j",
        metavar="COUNT", **_of("jobs", _NOTHING)),
    Key("memory_budget", HOW, _T, "Device memory for executables kept warm: 2GiB; 0: half of "
        "what is free.", metavar="BYTES", **_of("memory_budget_bytes")),
    Key("force_compile", HOW, _F, "Compile again even if the output exists.",
        **_of("force_compile", _NOTHING)),
    Key("save_cmds", HOW, _F, "Keep the compile and run commands with their output as files.",
        ("save_commands",), **_of("save_commands", _NOTHING)),
    Key("tags", HOW, _L, "Extra columns in front of the others: column:value,...",
        metavar="COLUMN:VALUE", unset="none", **_of("tags", _NOTHING)),
    Key("name", RESULTS, _T, "Name of the experiment.", metavar="NAME", default="profile"),
    Key("experiment", RESULTS, _T, "Folder of the experiment. Default: "
        "gemmetry-out/<name>-<hash of the plan>.", metavar="DIR"),
    Key("generated_dir", RESULTS, _T, "Folder under which generated/ is written. Default: the "
        "experiment's.", metavar="DIR"),
    Key("output", RESULTS, _L, "Files to write; the suffix picks csv, json, parquet, xlsx, md, "
        "html, xml (JUnit), png, svg.", (), "-o", metavar="FILE", unset="none"),
    Key("append", RESULTS, _F, "Add to the CSV files of --output instead of replacing them.",
        default=False),
    Key("html", RESULTS, _T, "Path of the HTML report. Default: report.html in the "
        "experiment.", metavar="FILE"),
    Key("format", RESULTS, _T, "What to print: table, block (the dispatch profiler's), csv, md "
        "or none.", metavar="NAME", default="table"),
    Key("columns", RESULTS, _L, "Columns: gemmetry (all), summary, dispatch-profiler (the old "
        "CSV's), or names.", metavar="NAMES", unset="those of the format"),
    Key("baseline", RESULTS, _T, "Provider, or provider:configuration, that the others are "
        "compared with.", metavar="NAME", unset="a vendor's library, if one takes part"),
    Key("matrix_sizes", GRID, _L, "Sizes MxNxK, in YAML [m, n, k]; one number is a square.",
        metavar="SHAPES", unset="three squares where a switch below is on"),
    Key("precisions", GRID, _L, "Formats, as in fp32,fp16,bf16,int8.", metavar="DTYPES",
        unset="f32, f16, bf16, s8 where their search is on"),
    Key("batch_sizes", GRID, _L, "Batches; 1 is a plain matmul.", metavar="SIZES",
        unset="1, 4, 16 where their search is on"),
    Key("transpose_a", GRID, _F, "A is stored transposed (layout n).", unset="off"),
    Key("transpose_b", GRID, _F, "B is stored transposed (layout n).", unset="off"),
    Key("enable_size_search", GRID, _F, "All matrix sizes; off: the first only.",
        unset="on for a list that is given"),
    Key("enable_precision_search", GRID, _F, "All precisions; off: the first only.",
        unset="on for a list that is given"),
    Key("enable_layout_search", GRID, _F, "All four layout pairs.", unset="off"),
    Key("enable_batch_search", GRID, _F, "All batch sizes; off: the first only.",
        unset="on for a list that is given"),
    Key("enable_rectangular", GRID, _F, "Also sizes that are not square; off: leave them out.",
        unset="on for sizes that are given"),
    Key("wait_steps", GRID, _T, "Launches before the warm-up, not measured either.",
        metavar="COUNT", default=0),
    Key("active_steps", GRID, _T, "Launches in each repeat.", metavar="COUNT",
        unset="as the clock needs"),
    Key("chakra_all_steps", GRID, _F, "`trace record`: the Chakra trace contains every launch of "
        "waiting, warm-up and all repeats; off: those recorded in the first repeat.",
        default=False),
)  # fmt: skip

KEYS: dict[str, Key] = {key.name: key for key in _ROWS}

SETTINGS = tuple(key for key in _ROWS if key.setting)
"""The keys that set a field of :class:`RunSettings` each."""

ALIASES: dict[str, str] = {alias: key.name for key in _ROWS for alias in key.aliases}
"""Other names of keys -> the key: the dispatch profiler's options, the grid's settings."""


@dataclass(frozen=True, slots=True)
class Retired:
    """An option of the dispatch profiler that is accepted and does nothing, and why."""

    option: str
    aliases: tuple[str, ...]
    takes_value: bool
    reason: str


RETIRED = (
    Retired("--build-dir", (), True,
            "IREE's tools come from the installed package, or from --iree-bin-dir"),
    Retired("--mlir-dialect", (), True, "linalg is the only dialect that is generated"),
    Retired("--use-mma-sync", ("--iree-codegen-llvmgpu-use-mma-sync",), False,
            "today's IREE takes the instruction from the configuration"),
    Retired("--use-wmma", ("--iree-codegen-llvmgpu-use-wmma",), False,
            "today's IREE takes the instruction from the configuration"),
    Retired("--print-ir-after-all", ("--mlir-print-ir-after-all",), False,
            "`gemmetry show` gives the compile command; add --mlir-print-ir-after-all to it"),
)  # fmt: skip


def canonical_key(key: str) -> str:
    """``Batch-Size`` -> ``dispatch_repeat_count``: hyphens, capitals and aliases removed."""
    name = key.strip().lower().replace("-", "_")
    return ALIASES.get(name, name)
