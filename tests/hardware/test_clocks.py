from __future__ import annotations

import pytest

from gemmetry.hardware import devices as clocks
from gemmetry.hardware.detect import CpuFacts
from gemmetry.hardware.devices import highest_clock


def _facts(vendor="AuthenticAMD", family=0x1A, model=2, **changes):
    values = {"clock_hz": 2.6e9, "clock_source": "TSC; boost may exceed", **changes}
    return CpuFacts(name="x", vendor=vendor, family=family, model=model, **values)


@pytest.mark.parametrize(
    ("vendor", "family", "model", "ghz"),
    [
        ("AuthenticAMD", 0x17, 0x01, 4.4),  # Naples
        ("AuthenticAMD", 0x17, 0x31, 4.5),  # Rome
        ("AuthenticAMD", 0x17, 0x71, 4.7),  # Matisse
        ("AuthenticAMD", 0x19, 0x01, 4.1),  # Milan
        ("AuthenticAMD", 0x19, 0x21, 5.0),  # Vermeer
        ("AuthenticAMD", 0x19, 0x11, 4.4),  # Genoa
        ("AuthenticAMD", 0x19, 0xA0, 3.1),  # Bergamo
        ("AuthenticAMD", 0x19, 0x61, 5.7),  # Raphael
        ("AuthenticAMD", 0x1A, 0x02, 5.0),  # Turin
        ("AuthenticAMD", 0x1A, 0x11, 3.7),  # Turin Dense
        ("AuthenticAMD", 0x1A, 0x44, 5.7),  # Granite Ridge
        ("GenuineIntel", 6, 0x55, 5.1),
        ("GenuineIntel", 6, 0x6A, 4.0),
        ("GenuineIntel", 6, 0x8F, 4.8),
        ("GenuineIntel", 6, 0xCF, 4.2),
        ("GenuineIntel", 6, 0xAD, 4.9),
        ("GenuineIntel", 6, 0x97, 6.2),  # Alder Lake
    ],
)
def test_a_virtual_machine_gets_the_fastest_product_of_its_kind(vendor, family, model, ghz):
    clock_hz, source = highest_clock(_facts(vendor, family, model)) or (0.0, "")
    assert clock_hz == ghz * 1e9
    assert source.startswith("upper bound: the highest boost of ")
    assert source.endswith("; this machine may run slower")


def test_arm_shows_no_clock_and_is_found_by_its_part():
    facts = _facts("", 0, 0, arm_part=0xD40, clock_hz=None, clock_source="")
    assert highest_clock(facts) is not None
    assert "AWS Graviton3" in highest_clock(facts)[1]
    unknown = _facts("", 0, 0, arm_part=0xABC, clock_hz=None, clock_source="")
    assert highest_clock(unknown) is None


def test_a_higher_clock_of_the_system_goes_first():
    facts = _facts(clock_hz=5.2e9, clock_source="highest of cpufreq")
    assert highest_clock(facts) == (5.2e9, "highest of cpufreq")


def test_the_processors_own_turbo_is_closer_than_its_kinds():
    facts = _facts(clock_hz=4.1e9, clock_source="highest of cpufreq", clock_is_highest=True)
    assert highest_clock(facts) == (4.1e9, "highest of cpufreq")


@pytest.mark.parametrize("facts", [_facts("GenuineIntel", 19, 1), _facts(family=0x1B)])
def test_an_unknown_kind_keeps_the_remark(facts):
    assert highest_clock(facts) == (2.6e9, "TSC; boost may exceed")


def test_no_row_is_hidden_by_those_before_it():
    seen: dict[tuple[str, str], set[int]] = {}
    for row in clocks._BOOSTS:
        models = set(range(int(row["first_model"], 16), int(row["last_model"], 16) + 1))
        known = seen.setdefault((row["vendor"], row["family"]), set())
        assert models - known, row["product"]
        known |= models
