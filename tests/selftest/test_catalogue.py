from __future__ import annotations

import re

from gemmetry.domain.dispatch import parse_operation, split_dispatch_name
from gemmetry.domain.errors import Outcome
from gemmetry.domain.operation import operation_name
from gemmetry.selftest.provider import (
    WITHOUT_MUTANT,
    Carrier,
    Mutant,
    all_mutants,
    mutants_by_configuration,
    signature_of,
)
from gemmetry.verification.protocol import CHECKS

CHECK_NAMES = {check.run.__name__.removeprefix("check_") for check in CHECKS}
CHECK_NAMES |= {"form", "after_timing", "timing_sanity"}
TRY_MORE = {"tail_shapes", "long_axes", "many_calls", "under_load"}
"""Checks that try more at level paranoid than at standard, or on a CPU only there."""


def test_names_of_configurations_contain_number_slug_and_carrier() -> None:
    bug = Mutant(5, "k_tail_dropped", "", Carrier.HOST, "")
    right = Mutant(3, "stream_k", "", Carrier.CUDA, "", is_bug=False)
    names = (bug.configuration, right.configuration)
    assert names == ("m05_k_tail_dropped_host", "ok03_stream_k_cuda")
    unseen = {item.configuration for item in all_mutants() if item.is_unseen}
    assert len(unseen) > 50
    assert {"u02_fixed_point_host", "uok05_f64_sums_host"} <= unseen


def test_every_number_of_the_list_has_a_mutant_on_the_host_or_has_a_reason() -> None:
    seen = [one for one in all_mutants() if one.carrier is Carrier.HOST and not one.is_unseen]
    numbers, right = ({one.number for one in seen if one.is_bug is bug} for bug in (True, False))
    assert numbers | set(WITHOUT_MUTANT) == set(range(1, max(numbers) + 1))
    assert numbers.isdisjoint(WITHOUT_MUTANT)
    assert right == set(range(1, max(right) + 1))


def test_every_kind_of_factor_has_mutants() -> None:
    signatures = [parse_operation(item.operation).signature for item in all_mutants()]
    scalings = {str(one.scaling) for one in signatures if one.blocks}
    assert scalings >= {"vs32_e8m0", "vs16_e4m3", "vs1x128", "vs1x128_vs128x128"}


def test_every_kernel_is_described_completely() -> None:
    assert len(mutants_by_configuration()) == len(all_mutants())
    levels = {check.run.__name__.removeprefix("check_"): check.level for check in CHECKS}
    for item in all_mutants():
        operation = parse_operation(item.operation)
        assert operation_name(operation) == item.operation
        assert signature_of(item.operation) == operation.signature
        name = f"{item.operation}_{item.configuration}"
        assert split_dispatch_name(name) == (operation, item.configuration)
        assert re.fullmatch(r"[a-z0-9_]+", item.slug)
        # A phrase that needs no other row, such as "skips a partial tile", not "does so with".
        assert re.fullmatch(r"[a-z]+s (?!so ).*[^.]", item.bug), item.configuration
        assert set(item.killed_by) <= CHECK_NAMES | set(Outcome)
        assert bool(item.killed_by) is (item.is_bug and not item.is_unseen)
        assert item.as_configuration().tile == item.tile
        found = {levels.get(name, "quick") for name in item.killed_by}
        if item.level != "paranoid" or not set(item.killed_by) <= TRY_MORE:
            assert (item.level == "paranoid") is (found == {"paranoid"})
