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


def on_host(*, is_bug: bool) -> list[Mutant]:
    seen = [p for p in all_mutants() if not p.is_unseen]
    return [p for p in seen if p.carrier is Carrier.HOST and p.is_bug is is_bug]


def test_names_of_configurations_contain_number_slug_and_carrier() -> None:
    bug = Mutant(5, "k_tail_dropped", "", Carrier.HOST, "")
    right = Mutant(3, "stream_k", "", Carrier.CUDA, "", is_bug=False)
    assert bug.configuration == "m05_k_tail_dropped_host"
    assert right.configuration == "ok03_stream_k_cuda"


def test_every_number_of_the_list_has_a_mutant_on_the_host_or_has_a_reason() -> None:
    numbers = {item.number for item in on_host(is_bug=True)}
    assert numbers | set(WITHOUT_MUTANT) == set(range(1, max(numbers) + 1))
    assert numbers.isdisjoint(WITHOUT_MUTANT)
    right = {item.number for item in on_host(is_bug=False)}
    assert right == set(range(1, max(right) + 1))


def test_descriptions_are_phrases_that_need_no_other_row() -> None:
    for item in all_mutants():
        verb, _, rest = item.bug.partition(" ")
        assert re.fullmatch(r"[a-z]+s", verb), item.configuration  # "skips a partial tile"
        assert not rest.startswith("so "), item.configuration  # "does so with"
        assert not item.bug.endswith("."), item.configuration


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
        assert item.bug
        assert "\n" not in item.bug
        assert set(item.killed_by) <= CHECK_NAMES | set(Outcome)
        assert bool(item.killed_by) is (item.is_bug and not item.is_unseen)
        assert item.as_configuration().tile == item.tile
        found = {levels.get(name, "quick") for name in item.killed_by}
        if item.level != "paranoid" or not set(item.killed_by) <= TRY_MORE:
            assert (item.level == "paranoid") is (found == {"paranoid"})


def test_nothing_is_expected_of_an_unseen_kernel() -> None:
    unseen = {item.slug: item for item in all_mutants() if item.is_unseen}
    assert len(unseen) > 50
    assert not any(item.killed_by for item in unseen.values())
    assert unseen["fixed_point"].configuration == "u02_fixed_point_host"
    assert unseen["f64_sums"].configuration == "uok05_f64_sums_host"
