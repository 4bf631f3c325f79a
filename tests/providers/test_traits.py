from __future__ import annotations

import subprocess
import sys

from gemmetry.domain.contracts import ProviderTraits
from gemmetry.providers.traits import (
    baseline_names,
    builtin_names,
    kernel_provider,
    recording_provider,
    traits_of,
)


def test_what_others_know_of_a_provider_it_declares_itself() -> None:
    assert baseline_names(["iree", "numpy", "theirs", "torch"]) == ["torch", "numpy"]
    assert kernel_provider() == "user"
    assert recording_provider() == "torch"
    assert traits_of("theirs") == ProviderTraits()
    assert [name for name in builtin_names() if not traits_of(name).is_default] == [
        "mutant", "null", "user",
    ]  # fmt: skip
    colours = [traits_of(name).colour for name in builtin_names()]
    assert None not in colours
    assert len(set(colours)) == len(colours)


def test_traits_are_known_before_a_provider_is_loaded() -> None:
    program = (
        "import sys; from gemmetry.providers.traits import traits_of; traits_of('iree');"
        "sys.exit('gemmetry.providers.iree_provider.provider' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=300).returncode == 0
