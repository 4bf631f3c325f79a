from __future__ import annotations

import numpy as np
import pytest
import rivals


def timing(median: float, spread: float, *, printed: float | None = None) -> rivals.Timing:
    samples = median + spread * np.linspace(-1, 1, 41)
    return rivals.Timing(tuple(samples), median - spread, median + spread, printed)


def test_rules_distinguish_slower_faster_and_neither() -> None:
    base, slower = timing(100.0, 0.5, printed=100.0), timing(102.0, 0.5, printed=102.0)
    for rule, decide in rivals.rules(base, 0.01).items():
        assert decide(base, slower) == 1, rule
        assert decide(slower, base) == -1, rule
        assert decide(base, base) == 0, rule


def test_rules_differ_in_what_they_need() -> None:
    base, slower = timing(100.0, 5.0), timing(102.0, 5.0)
    rules = rivals.rules(base, 0.01)
    assert "printed figures differ" not in rules
    for rule, decided in (("medians 0.01 apart", 1), ("spreads apart", 0), ("bootstrap", 0)):
        assert rules[rule](base, slower) == decided, rule


def test_torch_is_used_with_its_defaults_and_prints_fewer_digits() -> None:
    found = rivals.torch_benchmark(lambda: sum(range(2000)))
    assert found.low <= found.median <= found.high
    assert sum(found.samples) > 0
    assert found.printed == pytest.approx(found.median, rel=0.34)  # one digit at worst


def test_a_rule_that_says_slower_is_power_and_any_word_is_an_alarm() -> None:
    base, slower = timing(100.0, 0.5), timing(102.0, 0.5)
    found = [(base, slower), (slower, base), (base, base)]
    for shape, counted in (("8x8x8 f32", 2), ("8x8x8 f32, +2.00%", 1)):
        judged = rivals.judge("tool", shape, found, 0.1, 0.01)
        assert judged["spreads apart"].counted == counted
