from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from gemmetry.domain.errors import RequestError
from gemmetry.sweeps.rocprof_input import (
    PRESETS,
    check_rocprof_input,
    exact_regex,
    kernel_names,
    make_rocprof_input,
    write_rocprof_input,
)

SCHEMA = Path(__file__).parents[2] / "data" / "rocprof" / "rocprofv3_input_schema.json"
CIJK = "Cijk_Ailk_Bljk_BBS_BH_Bias_MT256x256x64_MI16x16x1_SN_LDSB1"
CPP = "void gemm<float, 4, (ck::Kind)1>(float*, int[2], std::array<char*, 1ul>&)"

TYPES = {"array": list, "string": str, "boolean": bool, "integer": int, "object": dict}


def fits(document: object, schema: dict) -> bool:
    """Whether `document` is of the types that a JSON schema states; its keys must be known."""
    if not isinstance(document, TYPES[schema["type"]]):
        return False
    if isinstance(document, list):
        return all(fits(one, schema["items"]) for one in document) if "items" in schema else True
    if isinstance(document, dict):
        known = schema["properties"]
        return all(key in known and fits(value, known[key]) for key, value in document.items())
    return True


@pytest.mark.parametrize(("preset", "jobs"), [("trace", 1), ("utilization", 1), ("gemm", 2)])
def test_what_is_written_fits_rocprofv3s_schema(preset, jobs, tmp_path):
    made = make_rocprof_input([CIJK, CPP], PRESETS[preset], chip="gfx942")
    path, names = write_rocprof_input(made, [CIJK, CPP], tmp_path / "new" / "top.yaml")
    document = yaml.safe_load(path.read_text())
    assert fits(document, json.loads(SCHEMA.read_text()))
    assert len(document["jobs"]) == jobs
    for job in document["jobs"]:
        assert "%env{RANK}%" in job["output_file"], "each rank has its files"
        counters = job.get("pmc", ())
        assert "GRBM_GUI_ACTIVE" in counters or "SQ_BUSY_CU_CYCLES" not in counters
    assert check_rocprof_input(path).notes == ()
    assert names.name == "top_kernel_list.txt"
    assert names.read_text().splitlines() == [CIJK, CPP]
    assert "&id" not in path.read_text()  # Aliases of YAML, which readers of it do not expect.


def test_names_are_matched_exactly():
    pattern = re.compile(exact_regex([CIJK, CPP, CIJK]))
    assert pattern.search(CIJK)
    assert pattern.search(CPP)
    for other in (CIJK + "_GSU4", "x" + CIJK, CPP[5:], CPP.replace("4", "5"), "gemm", ""):
        assert not pattern.search(other)
    assert not re.search(exact_regex(["a.b"]), "axb")
    single = exact_regex(["gemm"])
    assert re.search(single, "gemm") and not re.search(single, "gemm2")


def test_a_shortened_name_is_matched_by_its_beginning():
    shortened = f"{CPP}… [20000 characters, 0123456789abcdef]"
    pattern = re.compile(exact_regex([CIJK, shortened]))
    assert pattern.search(CPP + "::more")
    assert pattern.search(CIJK) and not pattern.search(CIJK + "2")


def table(path, column, *names):
    path.write_text("\n".join([f"threads,{column}", *(f'256,"{name}"' for name in names)]))
    return path


@pytest.mark.parametrize("column", ["kernel_name", "kernel", "Kernel_Name"])
def test_the_kernels_of_a_table(column, tmp_path):
    path = table(tmp_path / "t.csv", column, CIJK + ".kd", CPP, "Memset (Device)", CIJK, "",
                 "aten::mm")  # fmt: skip
    assert kernel_names(path) == [CIJK, CPP]


@pytest.mark.parametrize(
    ("column", "name", "words"),
    [("op", CIJK, "no column of kernel names"),
     ("kernel_name", "Memset (Device)", "names no kernel"), (None, "", r"none\.csv")],
)  # fmt: skip
def test_tables_without_kernels(column, name, words, tmp_path):
    path = tmp_path / "none.csv"
    with pytest.raises(RequestError, match=words):
        kernel_names(table(path, column, name) if column else path)


def test_names_that_are_too_long_for_rocprofv3():
    with pytest.raises(RequestError, match="20 kernels") as error:
        make_rocprof_input([f"{number}{'x' * 9000}" for number in range(20)], ())
    assert "--top-k" in error.value.hint


def test_the_name_of_the_file_decides_whether_rocprofv3_reads_it(tmp_path):
    with pytest.raises(RequestError, match=r"x\.txt"):
        write_rocprof_input(make_rocprof_input([CIJK], ()), [CIJK], tmp_path / "x.txt")
