"""A rule is one function: what is in ``counters/rules`` is found and judged."""

from __future__ import annotations

import importlib
import sys

import pytest

from gemmetry.counters import rules
from gemmetry.counters.catalogue import concept_of
from gemmetry.counters.gates import diagnose
from gemmetry.counters.model import Gate, all_rules, verdicts

HOT = """
from gemmetry.counters.model import Claim, Gate, rule


@rule(
    gate=Gate.VALIDITY,
    verdicts={"too_hot": "the GPU is hot"},
    needs=(),
    threshold="90 degrees",
    threshold_source="a test",
)
def hot(facts):
    heat = facts.metric("gpu__temperature")
    if heat is not None and heat.value > 90:
        yield Claim(id="too_hot", claim="The GPU is hot", evidence=[heat], weight=1.0)
"""


@pytest.fixture
def _hot(tmp_path, monkeypatch):
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "hot.py").write_text(HOT)
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(folder)])
    importlib.invalidate_caches()
    all_rules.cache_clear()
    yield
    all_rules.cache_clear()
    sys.modules.pop(f"{rules.__name__}.hot", None)


@pytest.mark.usefixtures("_hot")
def test_a_file_in_the_folder_is_a_rule(counter_launches):
    values = {**counter_launches.metrics(), "gpu__temperature": 95.0}
    found = diagnose(counter_launches.launch(values))
    assert found.verdict.id == "too_hot"
    assert found.findings[0].threshold == "90 degrees"
    assert "too_hot" in verdicts()


def test_rules_are_judged_in_the_order_of_the_gates():
    gates = [rule.gate for rule in all_rules()]
    assert gates == sorted(gates)
    assert set(gates) == set(Gate)


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.judge.__name__)
def test_a_rule_declares_what_it_needs_and_where_its_threshold_comes_from(rule):
    assert rule.threshold and rule.threshold_source
    for name in rule.needs:
        assert concept_of(name).meaning
