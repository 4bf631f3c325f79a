from __future__ import annotations

import pytest

from gemmetry.domain.operation import BF16, E4M3FNUZ, S8
from gemmetry.hardware import devices as clocks
from gemmetry.hardware.detect import CpuFacts
from gemmetry.hardware.devices import DEVICES, devices_of, find_device, highest_clock, rate_class


def _facts(vendor="AuthenticAMD", family=0x1A, model=2, **changes):
    values = {"clock_hz": 2.6e9, "clock_source": "TSC; boost may exceed", **changes}
    return CpuFacts(name="x", vendor=vendor, family=family, model=model, **values)


@pytest.mark.parametrize(("vendor", "family", "model", "ghz"), [
    # Naples, Rome, Matisse, Milan, Vermeer, Genoa, Bergamo, Raphael, Turin, Turin Dense ...
    ("AuthenticAMD", 0x17, 0x01, 4.4), ("AuthenticAMD", 0x17, 0x31, 4.5),
    ("AuthenticAMD", 0x17, 0x71, 4.7), ("AuthenticAMD", 0x19, 0x01, 4.1),
    ("AuthenticAMD", 0x19, 0x21, 5.0), ("AuthenticAMD", 0x19, 0x11, 4.4),
    ("AuthenticAMD", 0x19, 0xA0, 3.1), ("AuthenticAMD", 0x19, 0x61, 5.7),
    ("AuthenticAMD", 0x1A, 0x02, 5.0), ("AuthenticAMD", 0x1A, 0x11, 3.7),
    ("AuthenticAMD", 0x1A, 0x44, 5.7), ("GenuineIntel", 6, 0x55, 5.1),
    ("GenuineIntel", 6, 0x6A, 4.0), ("GenuineIntel", 6, 0x8F, 4.8),
    ("GenuineIntel", 6, 0xCF, 4.2), ("GenuineIntel", 6, 0xAD, 4.9),
    ("GenuineIntel", 6, 0x97, 6.2),
])  # fmt: skip
def test_a_virtual_machine_gets_the_fastest_product_of_its_kind(vendor, family, model, ghz):
    clock_hz, source = highest_clock(_facts(vendor, family, model)) or (0.0, "")
    assert clock_hz == ghz * 1e9
    assert source.startswith("upper bound: ")


def test_arm_shows_no_clock_and_is_found_by_its_part():
    facts = _facts("", 0, 0, arm_part=0xD40, clock_hz=None, clock_source="")
    assert highest_clock(facts) is not None
    assert "AWS Graviton3" in highest_clock(facts)[1]
    unknown = _facts("", 0, 0, arm_part=0xABC, clock_hz=None, clock_source="")
    assert highest_clock(unknown) is None


def test_a_higher_clock_of_the_system_goes_first():
    facts = _facts(clock_hz=5.2e9, clock_source="highest of cpufreq")
    assert highest_clock(facts) == (5.2e9, "highest of cpufreq")


@pytest.mark.parametrize("facts", [
    _facts("GenuineIntel", 19, 1), _facts(family=0x1B),
    _facts(clock_hz=4.1e9, clock_source="highest of cpufreq", clock_is_highest=True),
])  # fmt: skip
def test_an_unknown_kind_and_a_processors_own_turbo_keep_their_clock(facts):
    assert highest_clock(facts) == (facts.clock_hz, facts.clock_source)


def test_no_row_is_hidden_by_those_before_it():
    seen: dict[tuple[str, str], set[int]] = {}
    for row in clocks._BOOSTS:
        models = set(range(int(row["first_model"], 16), int(row["last_model"], 16) + 1))
        known = seen.setdefault((row["vendor"], row["family"]), set())
        assert models - known, row["product"]
        known |= models


@pytest.mark.parametrize(("product", "expected"), [
    ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"), ("A100-SXM4-40GB", "A100 SXM4 40GB"),
    ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"), ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
    ("NVIDIA H100 80GB HBM3", "H100 SXM5"), ("NVIDIA H100 PCIe", "H100 PCIe"),
    ("NVIDIA H100 NVL", "H100 NVL"), ("NVIDIA H200", "H200 SXM"),
    ("NVIDIA H200 NVL", "H200 NVL"), ("NVIDIA GH200 480GB", "GH200 96GB"),
    ("NVIDIA GH200 144G HBM3e", "GH200 144GB"), ("NVIDIA B200", "B200"),
    ("NVIDIA GB200", "GB200"), ("NVIDIA L40S", "L40S"), ("NVIDIA L4", "L4"),
    ("NVIDIA A10", "A10"), ("Tesla T4", "T4"), ("Tesla V100-SXM2-16GB", "V100 SXM2"),
    ("Tesla V100-PCIE-32GB", "V100 PCIe"), ("NVIDIA GeForce RTX 3090", "RTX 3090"),
    ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("NVIDIA GeForce RTX 5090", "RTX 5090"),
    ("AMD Instinct MI210", "MI210"), ("AMD Instinct MI250X", "MI250X (one die)"),
    ("AMD INSTINCT MI250 (MCM) OAM AC MBA", "MI250 (one die)"),
    ("AMD Instinct MI300X", "MI300X"), ("AMD Instinct MI300X OAM", "MI300X"),
    ("AMD Instinct MI325X", "MI325X"), ("AMD Instinct MI355X", "MI355X"),
])  # fmt: skip
def test_drivers_names_are_found(product, expected):
    assert find_device(product).name == expected


@pytest.mark.parametrize("product", [
    "", "NVIDIA", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 3090 Ti", "NVIDIA H200 MIG 1g.18gb", "NVIDIA A100-SXM-64GB",
    "NVIDIA A10G", "NVIDIA L40", "NVIDIA H100", "NVIDIA A100", "AMD Instinct MI250X/MI250",
    "AMD Radeon RX 7900 XTX", "NVIDIA GH200",
])  # fmt: skip
def test_another_product_is_not_taken_for_one_of_the_table(product):
    assert find_device(product) is None


def test_every_row_is_found_by_its_own_words_and_no_other():
    for spec in DEVICES:
        assert all(find_device(" ".join(sorted(tokens))) is spec for tokens in spec.tokens)


# units, f32 FLOP per clock and unit, clock in MHz: (vector f32) and (f16 matrix), from the
# architecture whitepapers; independent of the printed peaks that the table holds.
FORMULAS = {
    "V100 SXM2": (80, 1530, 128, 1024), "T4": (40, 1590, 128, 1024),
    "A100 SXM4 80GB": (108, 1410, 128, 2048), "A10": (72, 1695, 256, 1024),
    "RTX 3090": (82, 1695, 256, 512), "RTX 4090": (128, 2520, 256, 512),
    "RTX 5090": (170, 2407, 256, 512), "L4": (58, 2040, 256, 1024), "L40S": (142, 2520, 256, 1024),
    "MI210": (104, 1700, 256, 1024), "MI250X (one die)": (110, 1700, 256, 1024),
    "MI250 (one die)": (104, 1700, 256, 1024), "MI300A": (228, 2100, 256, 2048),
    "MI300X": (304, 2100, 256, 2048), "MI325X": (304, 2100, 256, 2048),
    # Hopper's peaks assume a lower clock for matrix instructions.
    "H100 SXM5": (132, 1980, 256, 4096, 1830), "H100 PCIe": (114, 1755, 256, 4096, 1620),
    "H200 SXM": (132, 1980, 256, 4096, 1830),
    "MI350X": (256, 2200, 256, 4096), "MI355X": (256, 2400, 256, 4096),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_peaks_are_units_times_operations_times_clock(name):
    units, megahertz, f32_per_clock, f16_per_clock, *matrix_megahertz = FORMULAS[name]
    peaks = next(spec.peaks for spec in DEVICES if spec.name == name)
    f16_megahertz = (matrix_megahertz or [megahertz])[0]
    assert peaks["f32"] == pytest.approx(units * f32_per_clock * megahertz * 1e6, rel=0.015)
    assert peaks["f16"] == pytest.approx(units * f16_per_clock * f16_megahertz * 1e6, rel=0.015)


LINKS = {
    "V100 SXM2": (6, 25), "A100 SXM4 80GB": (12, 25), "H100 SXM5": (18, 25), "H200 SXM": (18, 25),
    "GH200 144GB": (18, 25), "B200": (18, 50), "GB200": (18, 50), "MI300X": (7, 64),
    "MI325X": (7, 64), "MI350X": (7, 76.8), "MI355X": (7, 76.8),
}  # fmt: skip


def test_links_are_their_number_times_the_rate_of_one_direction():
    alike = {"A100 SXM4 40GB": "A100 SXM4 80GB", "GH200 96GB": "GH200 144GB"}
    for spec in DEVICES:
        links, gb_per_s = LINKS.get(alike.get(spec.name, spec.name), (0, 0))
        assert (spec.link_bytes_per_s or 0) == pytest.approx(links * gb_per_s * 1e9), spec.name


@pytest.mark.parametrize("spec", DEVICES, ids=lambda spec: spec.name)
def test_rows_are_plausible_and_dense(spec):
    peaks = spec.peaks
    assert spec.source
    assert spec.l2_bytes >= 4 * 2**20
    assert 0.2e12 < spec.bandwidth_bytes_per_s < 10e12
    assert set(peaks) <= {"f64", "f32", "tf32", "f16", "bf16", "fp8", "s8"}
    assert peaks["f16"] > peaks["f32"]
    assert peaks.get("bf16", peaks["f16"]) == peaks["f16"]
    if "tf32" in peaks:
        assert peaks["tf32"] == pytest.approx(peaks["f16"] / 2, rel=0.01)
    if "fp8" in peaks:  # "with sparsity" by mistake would be four times
        assert peaks["fp8"] == pytest.approx(2 * peaks["f16"], rel=0.01)
    assert all(spec.peaks[key] < value for key, value in spec.narrow_accumulator_peaks.items())


def test_architectures_with_suffixes_have_the_rows_of_the_plain_one():
    assert {spec.name for spec in devices_of("gfx950")} == {"MI350X", "MI355X"}
    assert devices_of("sm_90a") == devices_of("sm_90") != ()
    assert devices_of("gfx90a:sramecc+:xnack-") == devices_of("gfx90a") != ()
    assert devices_of("sm_1") == devices_of("") == ()


def test_rate_classes():
    assert [rate_class(dtype) for dtype in (BF16, E4M3FNUZ, S8)] == ["bf16", "fp8", "s8"]
