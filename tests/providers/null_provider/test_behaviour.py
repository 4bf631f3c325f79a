from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.names import parse_operation, split_dispatch_name
from gemmetry.providers.null_provider.provider import Behaviour, BehaviourKind, parse_behaviour

NAME = "matmul_16x12x8_f32t_f32t_f32t"
OPERATION = parse_operation(NAME)


@given(st.sampled_from(list(BehaviourKind)), st.floats(0, 1e6))
@settings(deadline=None)
def test_names_of_behaviours_parse_back(kind, value):
    behaviour = Behaviour(kind, value)
    parsed = parse_behaviour(behaviour.name)
    if parsed is not None:
        assert parsed == behaviour
        assert parsed.name == behaviour.name
    else:
        assert kind not in (BehaviourKind.SLOW, BehaviourKind.FACTOR, BehaviourKind.NOISY)


@given(st.text(max_size=30))
@settings(deadline=None)
def test_whatever_parses_prints_back(text):
    behaviour = parse_behaviour(text)
    assert behaviour is None or behaviour.name == text


@pytest.mark.parametrize(
    ("name", "behaviour"),
    [
        ("default", Behaviour()),
        ("slow_50", Behaviour(BehaviourKind.SLOW, 50)),
        ("factor_0p25", Behaviour(BehaviourKind.FACTOR, 0.25)),
        ("exit", Behaviour(BehaviourKind.EXIT, 1)),
        ("exit_0", Behaviour(BehaviourKind.EXIT, 0)),
        ("device_lost_7", Behaviour(BehaviourKind.DEVICE_LOST, 7)),
        ("hang_compile", Behaviour(BehaviourKind.HANG_COMPILE)),
        ("slow", None),
        ("slow_m5", None),
        ("slow_5p0", None),
        ("exit_1", None),
        ("exit_1p5", None),
        ("wrong_3", None),
        ("slow_５", None),
        ("tile_config_128x128_32x5", None),
    ],
)
def test_golden_behaviours(name, behaviour):
    assert parse_behaviour(name) == behaviour


@pytest.mark.parametrize("kind", list(BehaviourKind))
def test_no_behaviour_begins_with_a_modifier(kind):
    name = f"{NAME}_{kind}_1"
    assert split_dispatch_name(name) == (OPERATION, f"{kind}_1")
