"""The grammar of kernel names: a table of real names, and what must hold for any text."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.operation import DTYPES
from gemmetry.traces.names import (
    GEMM_KINDS,
    KernelKind,
    KernelName,
    classify,
    is_communication,
    is_gemm,
)

DATA = Path(__file__).parents[4] / "shared" / "data"
ROCPROFV3 = DATA / "traces/rocprofv3/mi350x_908_firsthalf_results.json.gz"
OTHER_FORMATS = {"e2m1", "u8", "s64", "u64", "u32", "c64", "c128"}


def _rows(table: str) -> Iterator[list[str]]:
    lines = Path(__file__).with_name(table).read_text().splitlines()
    return csv.reader((line for line in lines if line[0] != "#"), delimiter="\t",
                      quoting=csv.QUOTE_NONE)  # fmt: skip


def _table() -> list[tuple[str, dict[str, str]]]:
    rows = _rows("names.tsv")
    return [(name, dict(part.split("=") for part in facts.split())) for _, facts, name in rows]


def _facts_of(found: KernelName) -> dict[str, str]:
    """Everything but the short name, as the table writes it."""
    fields: dict[str, Any] = {
        field.name: getattr(found, field.name)
        for field in dataclasses.fields(found)
        if field.name != "short"
    }
    return {
        name: "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in fields.items()
        if value is not None
    }


def test_table_of_real_names() -> None:
    for name, expected in _table():
        facts = classify(name)
        assert _facts_of(facts) == expected, name
        # They examine less of the name and must have the same result.
        assert is_gemm(name) == (facts.kind in GEMM_KINDS), name
        assert is_communication(name) == (facts.kind is KernelKind.COLLECTIVE), name


def test_the_table_covers_every_kind_and_the_families() -> None:
    rows = [expected for _, expected in _table()]
    assert len(rows) >= 250
    assert frozenset({"gemm", "gemv", "gemm_reduction"}) == GEMM_KINDS
    assert {row["kind"] for row in rows} == set(KernelKind)
    families = Counter(row["family"] for row in rows)
    assert families.keys() >= {
        "cublas", "cublaslt", "nvjet", "cutlass2", "cutlass3", "xmma", "triton", "trtllm",
        "hipblaslt", "tensile", "rocblas", "ck", "aiter", "miopen", "cudnn", "deep_gemm",
        "flash_attention", "aotriton", "pytorch", "nccl", "rccl", "msccl", "deepep", "nvshmem",
        "mscclpp", "flashinfer", "vllm", "sglang", "iree", "cub", "rocprim", "fbgemm", "apex",
    }  # fmt: skip


def test_formats_have_the_names_of_the_domain() -> None:
    for name, _ in _table():
        found = classify(name)
        for dtype in (found.dtype, found.result_dtype, found.accumulator):
            assert dtype is None or dtype in DTYPES or dtype in OTHER_FORMATS, (name, dtype)


def test_short_names() -> None:
    shortened = dict(_rows("short_names.tsv"))
    shortened |= {"x" * 80: "x" * 59 + "…", "a\nb\tc": "a b c", "": ""}
    assert {name: classify(name).short for name in shortened} == shortened


PIECES = """
    Cijk_Alik_Bljk_ BBS_BH_ MT64x32x256 nvjet_ sm90_ tst_ 256x128_ 64x4_ _NNT sm80_xmma_ gemm_
    f32f32_ cutlass_ 80_tensorop_ cutlass3x_ s1688gemm_ volta_ sgemm_ 128x64_ nn tn ncclDevKernel_
    AllReduce _Sum_ f32 RING_LL mscclKernel_ triton_red_ triton_tem_ mm _ZN 2at 6native IfE Li4E
    LNS_ St5array < > ( ) { } :: , at::native:: cutlass::device_kernel Mainloop cute::tuple<
    cute::C<128> ck:: ck_tile::kentry< RowMajor GemmSpecialization) 0 9999 Memcpy .kd matmul_ogs_
    BLOCK_M_64 bmm_E4m3_ deep_gemm:: gemv dot_kernel cublas void"""
ODD = [" ", "\n", "\0", "é", "\ud800", "(anonymous namespace)::", "<script>", "=1+1"]
FRAGMENTS = st.sampled_from([*PIECES.split(), *ODD])
ANY_NAME = st.one_of(st.text(max_size=80), st.lists(FRAGMENTS, max_size=25).map("".join))


@settings(deadline=None, max_examples=150)
@given(ANY_NAME)
def test_any_text_has_a_short_name_that_stays(name: str) -> None:
    found = classify(name)
    assert len(found.short) <= 60
    assert found.short.isprintable()
    again = classify(found.short)
    assert again.short == found.short
    assert again == classify(again.short)


@settings(deadline=None, max_examples=20)
@given(st.lists(FRAGMENTS, min_size=1, max_size=4).map("".join), st.text(max_size=6))
def test_a_megabyte_is_taken_in_bounded_time(fragment: str, end: str) -> None:
    name = fragment * ((1 << 20) // len(fragment)) + end
    before = time.process_time()
    found = classify(name)
    # 15 ms was the worst of 1600 hostile names of this size; quadratic work takes minutes.
    assert time.process_time() - before < 2
    assert len(found.short) <= 60


def test_mangled_and_demangled_names_are_classified_alike() -> None:
    if not ROCPROFV3.is_file():
        pytest.skip("no rocprofv3 trace next to this checkout")
    processes = json.loads(gzip.decompress(ROCPROFV3.read_bytes()))["rocprofiler-sdk-tool"]
    pairs = {
        (symbol["kernel_name"], symbol["formatted_kernel_name"])
        for process in processes
        for symbol in process["kernel_symbols"]
        if symbol["kernel_name"].startswith("_Z")
    }
    assert len(pairs) > 4000
    different = [
        pair
        for pair in sorted(pairs)[::4]
        if dataclasses.astuple(classify(pair[0])) != dataclasses.astuple(classify(pair[1]))
    ]
    assert not different, different[:3]
