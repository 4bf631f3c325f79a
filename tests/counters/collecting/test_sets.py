from __future__ import annotations

import pytest

from gemmetry.counters.catalogue import CAPABILITIES, concepts, expression_on, has_metric
from gemmetry.counters.tools import SETS, amd_counters_of, metrics_of, set_of
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.hardware.amd_counters import passes_of


def test_the_gemm_set_has_every_section_that_the_catalogue_names() -> None:
    assert {one.section for one in concepts()} - {""} == set(SETS["gemm"].sections)


@pytest.mark.parametrize("chip", [*dict.fromkeys(CAPABILITIES.values())])
def test_the_gemm_set_lists_what_no_section_collects(chip: str) -> None:
    listed = metrics_of(SETS["gemm"], chip)
    assert all(has_metric(chip, one) for one in listed)
    for one in concepts():
        expression = expression_on(chip, one)
        if not one.section and expression:
            assert any(metric in expression for metric in listed)


def test_on_an_unknown_chip_only_metrics_that_all_have_are_listed() -> None:
    listed = metrics_of(SETS["gemm"], None)
    assert listed
    for chip in CAPABILITIES.values():
        assert all(has_metric(chip, one) for one in listed)


def test_the_eight_metrics_of_the_document_exist_on_every_chip() -> None:
    assert len(SETS["document"].metrics) == 8
    assert len(metrics_of(SETS["document"], None)) == 8


def test_amd_sets_fit_into_passes_and_have_the_time() -> None:
    for chip in ("gfx90a", "gfx942", "gfx950"):
        quick, gemm = amd_counters_of("quick", chip), amd_counters_of("gemm", chip)
        assert set(quick) <= set(gemm)
        assert "GRBM_GUI_ACTIVE" in quick
        assert 1 <= len(passes_of(quick, chip)) < len(passes_of(gemm, chip))


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="'gem'"):
        set_of("gem")
    with pytest.raises(RequestError, match="NVIDIA"):
        amd_counters_of("document", "gfx942")
