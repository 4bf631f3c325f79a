from __future__ import annotations

import subprocess
import sys

from gemmetry.cli.options import LEGACY_DEFAULTS
from gemmetry.cli.trace import DEFAULTS
from gemmetry.domain.contracts import ProviderTraits
from gemmetry.domain.dispatch import TargetKind, parse_target
from gemmetry.domain.specs.operations import legacy
from gemmetry.providers.base import (
    baseline_names,
    builtin_names,
    kernel_provider,
    legacy_provider,
    recording_provider,
    support_places,
    traits_of,
)


def test_what_others_know_of_a_provider_it_declares_itself() -> None:
    assert baseline_names(["iree", "numpy", "theirs", "torch"]) == ["torch", "numpy"]
    assert kernel_provider() == "user"
    assert recording_provider() == "torch"
    assert legacy_provider() == "iree"
    assert traits_of("theirs") == ProviderTraits()
    assert [name for name in builtin_names() if not traits_of(name).is_default] == [
        "mutant", "null", "user",
    ]  # fmt: skip
    colours = [traits_of(name).colour for name in builtin_names()]
    assert None not in colours
    assert len(set(colours)) == len(colours)


def test_help_names_the_providers_that_the_traits_name() -> None:
    assert LEGACY_DEFAULTS["providers"] == legacy_provider()
    assert LEGACY_DEFAULTS["device"] == legacy(legacy_provider()).device
    assert DEFAULTS["providers"] == recording_provider()


def test_the_support_matrix_shows_the_places_that_providers_declare() -> None:
    places = support_places()
    assert places[:2] == [("torch", "cpu"), ("numpy", "cpu")]
    assert ("triton", "cuda-sm_90") in places
    kinds = [parse_target(target).kind for _, target in places]
    assert kinds == sorted(kinds, key=list(TargetKind).index)
    assert {name for name, _ in places} == {
        n for n in builtin_names() if traits_of(n).support_targets
    }


def test_traits_are_known_before_a_provider_is_loaded() -> None:
    program = (
        "import sys; from gemmetry.providers.base import builtin_names, traits_of\n"
        "for name in builtin_names(): traits_of(name)\n"
        "sys.exit(any(name.endswith('.provider') or name == 'numpy' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=300).returncode == 0
