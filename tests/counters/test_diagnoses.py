"""What is found in synthetic launches, one for each case of ``data/counters/diagnoses.json``, and
what holds for all launches.

``GEMMETRY_GOLDEN=1`` writes what is found today into the cases; the difference of the file shows
what changed.
"""

from __future__ import annotations

import json
import math
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.counters.collector import read_counters
from gemmetry.counters.document import launch_document
from gemmetry.counters.facts import MEMORY, REASONS, SECTION_MARKS, SM, SUFFIX, TOTAL, metric_of
from gemmetry.counters.gates import diagnose
from gemmetry.counters.model import HIGH, MEDIUM
from gemmetry.counters.work import GemmWork
from gemmetry.domain.operation import BF16, DTYPES
from gemmetry.formats.counters.launches import StallSamples

DATA = Path(__file__).parents[1] / "data" / "counters"
GOLDEN = DATA / "diagnoses.json"
KNOWN = json.loads(GOLDEN.read_text("utf-8"))
CASES = {one["case"]: one for one in KNOWN["cases"]}
CONFIDENT = (
    "tensor", "dram", "near", "near but waiting", "near and waiting", "naive", "issue", "latency",
    "gmma", "tail", "overhead", "one", "few warps", "spills",
)  # fmt: skip
"""Cases from which metrics are taken away."""


def _values(case, synthetic):
    bases = {"nvidia": synthetic.metrics(), "amd": KNOWN["amd"], "nothing": {}}
    values = {**bases[case.get("base", "nvidia")], **case.get("set", {})}
    return {name: value for name, value in values.items() if name not in case.get("unset", ())}


def _outcome(case, synthetic):
    info = dict(case.get("info", {}))
    info["samples"] = tuple(StallSamples(*one) for one in case.get("samples", ()))
    launch = synthetic.launch(_values(case, synthetic), case.get("name", "my_kernel"), **info)
    work = {key: DTYPES.get(one, one) if isinstance(one, str) else one
            for key, one in case.get("work", {}).items()}  # fmt: skip
    found = diagnose(launch, GemmWork(**work) if work else None)
    evidence = [one.evidence[0].value for one in found.findings[:1] if one.evidence]
    return {
        "verdict": f"{found.verdict.id} {found.verdict.confidence}",
        "findings": [" ".join(filter(None, (one.id, one.confidence, one.ceiling)))
                     for one in found.findings],
        "claim": found.verdict.claim,
        "suppressed": [one.id for one in found.suppressed],
        "work": [one.verdict for one in found.work_check],
        "collect": found.findings[0].collect,
        "evidence": [float(f"{value:.5g}") for value in evidence],
    }  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_synthetic_launch(name, counter_launches):
    found = _outcome(CASES[name], counter_launches)
    if os.environ.get("GEMMETRY_GOLDEN"):
        CASES[name]["found"] = found
        rows = (json.dumps(one, ensure_ascii=False) for one in KNOWN["cases"])
        head = f'{{"amd": {json.dumps(KNOWN["amd"])},\n "cases": [\n  '
        GOLDEN.write_text(head + ",\n  ".join(rows) + "\n ]}\n", "utf-8")
    assert found == CASES[name]["found"]


@pytest.fixture(scope="module")
def h200():
    return read_counters(DATA / "h200_cublas_bf16_4096_raw.csv.gz")[0]


def test_the_near_perfect_kernel_is_at_the_tensor_roof_without_the_shape_as_well(h200):
    """The diagnosis with its shape is in ``data/outputs/counters_diagnosis.txt``."""
    assert [one.id for one in diagnose(h200).findings] == ["tensor_roof", "low_clock"]


def test_a_report_in_which_every_number_is_zero_gives_no_verdict(h200):
    zeros = {name: np.zeros_like(column) for name, column in h200.table.values.items()}
    found = diagnose(replace(h200.table, values=zeros)[0])
    assert [one.id for one in found.findings] == ["cannot_tell"]


def test_a_busy_unit_that_is_not_listed(counter_launches):
    values = counter_launches.metrics()
    values["sm__new_pipe_cycles_active" + SUFFIX] = values[SM] = 91.0
    launch = counter_launches.launch(values)
    assert diagnose(launch).verdict.id == "cannot_tell"
    launch.table.texts["breakdown:" + SM] = ["sm__new_pipe_cycles_active" + SUFFIX]
    assert diagnose(launch).verdict.id == "other_roof"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), count=st.sampled_from([1, 20, 200, 1500]))
def test_no_value_of_a_counter_is_an_error(h200, seed, count):
    """Zeros, missing and absurd values in any of the report's 2,000 metrics."""
    chosen = random.Random(seed)
    values = [0.0, math.nan, math.inf, -1.0, 1e-300, 1e300]
    changed = {
        name: np.array([chosen.choice(values)])
        for name in chosen.sample(sorted(h200.metrics()), count)
    }
    table = replace(h200.table, values={**h200.table.values, **changed})
    document = launch_document(diagnose(table[0], GemmWork(m=64, n=64, k=64, lhs=BF16, rhs=BF16)))
    assert document["verdict"]["id"]


def test_a_summary_is_never_sure_of_what_the_whole_report_contradicts():
    for kind in ("severe", "mild"):
        names = (f"planted_{kind}_details.csv.gz", f"planted_{kind}.csv.gz")
        pages = [read_counters(DATA / "planted_h200" / name) for name in names]
        whole = {one.name: diagnose(one) for one in pages[1]}
        assert pages[0].sections
        for launch in pages[0]:
            found = diagnose(launch)
            assert all("zero" not in one.claim for one in found.findings)
            if found.verdict.id != "cannot_tell":
                _check_weaker(found.verdict, whole[launch.name].verdict, launch.name)
            # What was collected is exported, not collected again.
            asked = {f"--section {name}" for name in pages[0].sections}
            for one in found.findings:
                assert not asked & {f"--{part.strip()}" for part in one.collect.split("--")}


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(("dram", "naive", "latency", "near")), data=st.data())
def test_no_section_that_was_collected_is_named_again(counter_launches, name, data):
    marks = [one for names in SECTION_MARKS.values() for one in names]
    values = dict.fromkeys(marks, 20.0) | _values(CASES[name], counter_launches)
    rest = sorted(set(values) - set(marks))
    gone = data.draw(st.sets(st.sampled_from(rest), max_size=len(rest)))
    kept = {name: value for name, value in values.items() if name not in gone}
    found = diagnose(counter_launches.launch(kept, "my_gemm"))
    named = {word for one in found.findings for word in one.collect.split()}
    assert not named & set(SECTION_MARKS)


@pytest.mark.parametrize("name", CONFIDENT)
def test_removing_a_metric_never_gives_another_confident_verdict(name, counter_launches):
    """Also reasons for waits without which it is unclear whether they are a limit nearby."""
    values = _values(CASES[name], counter_launches)
    unclear = [metric_of(name) for name in ("selected", "not_selected", "wait")]
    every = [*([one] for one in values), *([unclear] if name[:4] == "near" else [])]
    _check_without(counter_launches, values, "my_kernel", every)


@settings(max_examples=100, deadline=None)
@given(name=st.sampled_from(CONFIDENT), data=st.data())
def test_removing_metrics_never_gives_another_confident_verdict(counter_launches, name, data):
    values = _values(CASES[name], counter_launches)
    gone = data.draw(st.sets(st.sampled_from(sorted(values)), max_size=len(values)))
    _check_without(counter_launches, values, "my_kernel", [gone])


def test_removing_a_metric_of_the_recorded_launch(h200, counter_launches):
    begins = ("launch__", "smsp__average", "sm__", "gpu__")
    kept = {name: value for name, value in h200.metrics().items()
            if name.endswith(SUFFIX) or name.startswith(begins)}  # fmt: skip
    units = [SM, MEMORY, TOTAL, "sm__pipe_tensor_cycles_active" + SUFFIX]
    gone = [[one] for one in (*units, *map(metric_of, REASONS))]
    _check_without(counter_launches, kept, h200.name, gone)


def _check_without(synthetic, values, name, every):
    whole = diagnose(synthetic.launch(values, name)).verdict
    assert whole.confidence in (HIGH, MEDIUM)
    for gone in every:
        rest = {key: value for key, value in values.items() if key not in gone}
        _check_weaker(diagnose(synthetic.launch(rest, name)).verdict, whole, gone)


def _check_weaker(found, whole, gone):
    if found.id not in (whole.id, "cannot_tell"):
        assert found.confidence not in (HIGH, MEDIUM), (found, gone)
