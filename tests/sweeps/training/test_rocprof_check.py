from __future__ import annotations

from pathlib import Path

import pytest

from gemmetry.domain.errors import RequestError, SpecError
from gemmetry.sweeps.rocprof_input import check_rocprof_input

SAMPLES = Path(__file__).parents[2] / "data" / "rocprof"

SHOWN_IN_THE_DOCUMENT = """
jobs:
  - {kernel_include_regex: "(gemm|Cijk_.*)", kernel_trace: true, stats: true,
     output_format: [json, csv], sys_trace: false, advanced_thread_trace: false}
"""


def written(tmp_path, text, name="x.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["input_kernel_filtering.yml", "input_multiplex.yml"])
def test_inputs_of_rocprofv3s_own_tests(name):
    assert check_rocprof_input(SAMPLES / name).notes == ()


def test_the_documents_input_is_accepted(tmp_path):
    found = check_rocprof_input(SAMPLES / "aorta_rocprof_cu_only.yaml")
    assert len(found.jobs) == 1
    [note] = found.notes
    assert "lacks GRBM_GUI_ACTIVE" in note
    assert "SQ_BUSY_CU_CYCLES, SQ_WAVE_CYCLES give no percentages" in note
    assert check_rocprof_input(written(tmp_path, SHOWN_IN_THE_DOCUMENT)).notes == ()
    as_json = written(tmp_path, '{"jobs": [{"pmc": ["SQ_WAVES"]}]}', "x.json")
    assert check_rocprof_input(as_json).jobs == ({"pmc": ["SQ_WAVES"]},)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("kernel_include_regx: x", "unknown key 'kernel_include_regx'.*kernel_include_regex"),
        ("kernel_trace: 1", "kernel_trace has to be true or false, not 1"),
        ("pmc: SQ_WAVES", "pmc has to be a list"),
        ("pmc_groups: [SQ_WAVES]", "a list of counters, not 'SQ_WAVES'"),
        ("kernel_include_regex: '(gemm'", "not a regular expression"),
        ("{pmc: [SQ_WAVES], pmc_groups: [[SQ_WAVES]]}", "both pmc and pmc_groups"),
        ("output_format: [xml]", "no output format 'xml'"),
        ("[]", "is not a mapping"),
    ],
)
def test_mistakes_are_named(job, message, tmp_path):
    path = written(tmp_path, f"jobs:\n  - {job}\n")
    with pytest.raises(SpecError, match=f"job 1.*{message}"):
        check_rocprof_input(path)


def test_what_this_version_does_not_know_or_what_may_be_misspelt_is_noted(tmp_path):
    path = written(tmp_path, "jobs: [{frobnicate: 1, pmc: [MY_COUNTER, SQ_WAVE], "
                             "kernel_include_regex: '[[:alpha:]]+'}]")  # fmt: skip
    unknown_key, counter, misspelt = check_rocprof_input(path).notes
    assert "frobnicate" in unknown_key and "MY_COUNTER" in counter
    assert "job 1: unknown counter" in misspelt and "SQ_WAVES" in misspelt


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [("jobs: [", "x.yaml", "cannot be read"), ("{}", "x.yaml", "no list of jobs"),
     ("jobs: []", "x.yaml", "no list of jobs"), ("jobs: [{}]", "x.conf", "has to end in"),
     (None, "none.yaml", r"none\.yaml")],
)  # fmt: skip
def test_files_that_rocprofv3_cannot_read(text, name, message, tmp_path):
    path = tmp_path / name if text is None else written(tmp_path, text, name)
    with pytest.raises(RequestError, match=message):
        check_rocprof_input(path)
