from __future__ import annotations

from gemmetry.cli.options import COMPLETERS
from gemmetry.domain.specs.keys import KEYS


def test_completers_are_of_keys_and_offer_something():
    for name, complete in COMPLETERS.items():
        assert name in KEYS
        assert complete("")


def test_mutants_are_not_completed():
    for key in ("providers", "baseline"):
        assert "torch" in COMPLETERS[key]("")
        assert COMPLETERS[key]("mut") == []


def test_the_best_of_a_librarys_algorithms_is_a_baseline():
    assert COMPLETERS["baseline"]("cubl") == ["cublaslt", "cublaslt:best"]
    assert COMPLETERS["providers"]("cubl") == ["cublaslt"]


def test_lists_are_completed_at_their_end_without_repeats():
    assert COMPLETERS["dtypes"]("f32,f3") == []
    assert COMPLETERS["dtypes"]("f16,f3") == ["f16,f32"]
    assert COMPLETERS["verification_providers"]("") == ["numpy", "device"]
