"""Every key of a spec: its panel, its form on the command line, its other names, its text. Those
of a run's settings follow from their declarations in ``domain/settings.py``.

The model's JSON schema, the command line's options, shell completion and the documents' tables
all read this table. Standard library only, because ``--help`` imports it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmetry.domain.settings import Form, Key, RunSettings, declarations

WHAT = "What is computed"
GRID = "Grid settings"
EXAMPLE = "Options of CUTLASS' block-scaled example"
WHO = "What computes it, and where"
HOW = "How it is run"
RESULTS = "Results"
PANELS = (WHAT, WHO, HOW, RESULTS, GRID, EXAMPLE)

_T, _L, _F = Form.TEXT, Form.LIST, Form.FLAG

SETTINGS = tuple(
    replace(key, name=key.name or field, panel=HOW, setting=field)
    for field, key in declarations(RunSettings).items()
)
"""The keys that set a field of :class:`RunSettings` each."""

_ROWS = (
    Key("operation_kind", WHAT, _L, "Kinds of operation: matmul, batch_matmul, matmul_splitk, "
        "conv2d, all.", ("op_kind",), metavar="KIND", unset="matmul, or the kind that fits the "
            "shapes"),
    Key("problem_m", WHAT, _L, "Sizes of M: numbers such as 256, ranges such as 64:1024:128 "
        "(without the end) and log2:64:8192 (with the end), or lists of them.", metavar="SIZES"),
    Key("problem_n", WHAT, _L, "Sizes of N.", metavar="SIZES"),
    Key("problem_k", WHAT, _L, "Sizes of K.", metavar="SIZES"),
    Key("problem_b", WHAT, _L, "Batch sizes of a batch_matmul.", metavar="SIZES", unset="16"),
    Key("shapes", WHAT, _L, "Shapes MxNxK or BxMxNxK, presets (squares, llm, legacy, first), or "
        "files (.csv, .yaml, .txt, .log).", ("shape",), metavar="SHAPES",
        unset="the three of a first run"),
    Key("conv_shapes", WHAT, _L, "conv2d shapes NxHxWxC_RxSxF[_strideAxB][_padAxB].",
        metavar="SHAPES"),
    Key("dtypes", WHAT, _L, "Formats of A and B (f32, bf16, s8 ...), or of A, B and C as in "
        "f16:f16:f32.",
        ("dtype", "ab_dtype"), metavar="DTYPES", unset="f32, or bf16 on a GPU"),
    Key("result_dtype", WHAT, _L, "Formats of C if --dtypes does not give them.", ("c_dtype",),
        metavar="DTYPES",
        unset="that of A, except s32 for s8 and bf16 for fp8"),
    Key("accumulator", WHAT, _L, "Formats of the accumulator.", ("accumulators",),
        metavar="DTYPES", unset="f32, except f64 for f64 and s32 for s8"),
    Key("layouts", WHAT, _L, "Layouts of A and B: tt, tn, nt, nn (t: row-major, n: column-major).",
        ("layout",), metavar="PAIRS", unset="tt, or tn with factors of blocks"),
    Key("result_layout", WHAT, _T, "Layout of C: t or n.", metavar="LETTER", default="t"),
    Key("epilogues", WHAT, _L, "Fused steps joined by +: none, bias+relu, gelu, residual.",
        ("epilogue",), metavar="STEPS", unset="none"),
    Key("alpha", WHAT, _T, "Factor of the product.", metavar="NUMBER", default=1.0),
    Key("beta", WHAT, _T, "Factor of C, which is added to the "
        "product.", metavar="NUMBER", default=0.0),
    Key("scaling", WHAT, _T, "Dequantization factors of A and B: none, tensor (one each), row "
        "(one per row), or of blocks: vs32_e8m0 (MX formats), vs16_e4m3 (NVFP4), vs1x128, "
        "vs1x128_vs128x128 (fp8).", metavar="NAME", default="none"),
    Key("split_k_slices", WHAT, _L, "Numbers of slices of a matmul_splitk; those that do not "
        "divide K are left out.", ("iree_flow_split_matmul_reduction",), metavar="SIZES",
        unset="2, 4"),
    Key("providers", WHO, _L, "Providers: torch, numpy, iree, triton, cuda, null, user. "
        "Default: all that work on the device.", ("provider",), metavar="NAMES"),
    Key("kernel", WHO, _L, "Your own kernels, as file.py:function or "
        "file.cu:kernel; or a file of machine code (.cubin), or a folder of them.",
        metavar="FILE:FUNCTION", unset="none"),
    Key("device", WHO, _L, "Devices: cpu, cuda, cuda:1; cuda-sm_80 only compiles. Default: the "
        "first GPU, or the CPU if there is none.", ("iree_hal_target_backends",),
        metavar="DEVICE"),
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
    Key("default_config", WHO, _F, "Use only the configuration that leaves every choice to the "
        "provider.", default=False),
    *SETTINGS,
    Key("counters", RESULTS, _T, "Hardware counters to collect of each dispatch that is ok, in a "
        "process that does nothing else, on a GPU: quick, gemm or full; the option alone means "
        "gemm.",
        metavar="SET", unset="none", bare="gemm"),
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
    Key("format", RESULTS, _T, "What to print: table, block (the dispatch profiler's, also its "
        "columns in files), csv, md or none.", metavar="NAME", default="table"),
    Key("columns", RESULTS, _L, "Columns: gemmetry (all), summary, dispatch-profiler (the old "
        "CSV's), or names.", metavar="NAMES", unset="those of the format"),
    Key("baseline", RESULTS, _T, "Provider, or provider:configuration, with which the others are "
        "compared.", metavar="NAME", unset="a vendor's library, if one takes part"),
    Key("matrix_sizes", GRID, _L, "Sizes MxNxK, in YAML [m, n, k]; one number is a square.",
        metavar="SHAPES", unset="three squares if a switch below is on"),
    Key("precisions", GRID, _L, "Formats, as in fp32,fp16,bf16,int8.", metavar="DTYPES",
        unset="f32, f16, bf16, s8 if their search is on"),
    Key("batch_sizes", GRID, _L, "Batch sizes; 1 is a plain matmul.", metavar="SIZES",
        unset="1, 4, 16 if their search is on"),
    Key("transpose_a", GRID, _F, "Store A transposed (layout n).", unset="off"),
    Key("transpose_b", GRID, _F, "Store B transposed (layout n).", unset="off"),
    Key("enable_size_search", GRID, _F, "Use all matrix sizes, not only the first.",
        unset="on if a list is given"),
    Key("enable_precision_search", GRID, _F, "Use all precisions, not only the first.",
        unset="on if a list is given"),
    Key("enable_layout_search", GRID, _F, "Use all four layout pairs.", unset="off"),
    Key("enable_batch_search", GRID, _F, "Use all batch sizes, not only the first.",
        unset="on if a list is given"),
    Key("enable_rectangular", GRID, _F, "Include sizes that are not square.",
        unset="on if sizes are given"),
    Key("wait_steps", GRID, _T, "Launches before the warm-up, which are not measured either.",
        metavar="COUNT", default=0),
    Key("active_steps", GRID, _T, "Launches in each repeat.", metavar="COUNT",
        unset="as many as the clock requires"),
    Key("chakra_all_steps", GRID, _F, "Let the Chakra trace of `trace record` contain every launch "
        "of waiting, warm-up and all repeats, instead of those recorded in the first repeat.",
        default=False),
    Key("mnkl", EXAMPLE, _T, "Sizes M,N,K,L of a product; L above 1 is a batch.",
        metavar="M,N,K,L", unset="none"),
    Key("mma_tiler_mn", EXAMPLE, _T, "Sizes M,N of a tile: selects the configurations that have "
        "it.", metavar="M,N", unset="all"),
    Key("sf_dtype", EXAMPLE, _T, "Format of the scale factors of blocks: Float8E8M0FNU (e8m0), "
        "Float8E4M3FN (e4m3), Float32.", metavar="DTYPE", unset="none, or e8m0 with --sf-vec-size"),
    Key("sf_vec_size", EXAMPLE, _T, "Elements along K that share a scale factor.",
        metavar="COUNT", unset="none, or 16 with --sf-dtype"),
    Key("skip_ref_check", EXAMPLE, _F, "Do not verify.", default=False),
)  # fmt: skip

KEYS: dict[str, Key] = {key.name: key for key in _ROWS}

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
    Retired("--cluster-shape-mn", (), True,
            "no configuration here launches clusters of thread blocks"),
    Retired("--print-ir-after-all", ("--mlir-print-ir-after-all",), False,
            "`gemmetry show` gives the compile command; add --mlir-print-ir-after-all to it"),
)  # fmt: skip


def canonical_key(key: str) -> str:
    """``Batch-Size`` -> ``dispatch_repeat_count``: hyphens, capitals and aliases removed."""
    name = key.strip().lower().replace("-", "_")
    return ALIASES.get(name, name)
