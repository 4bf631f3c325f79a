from __future__ import annotations

import random
import typing

import msgspec
import pytest

from gemmetry.engine.agents.messages import Challenge, Proof, ToAgent, ToDriver, Welcome, with_mac

_KINDS = [(kind, union) for union in (ToAgent, ToDriver) for kind in typing.get_args(union)]


@pytest.mark.parametrize(("kind", "union"), _KINDS, ids=lambda one: getattr(one, "__name__", ""))
def test_every_message_is_read_by_its_side(some_value, kind, union):
    message = some_value(kind, random.Random(kind.__name__))
    data = msgspec.msgpack.encode(message)
    found = msgspec.msgpack.decode(data, type=union)
    assert type(found) is kind
    assert msgspec.msgpack.encode(found) == data


def test_what_is_sent_before_trust_never_changes_its_order():
    """Another version could not be refused by name otherwise."""
    assert Challenge.__struct_fields__ == ("nonce",)
    assert Proof.__struct_fields__ == ("nonce", "mac", "version", "name", "host", "python")
    assert Welcome.__struct_fields__[:2] == ("mac", "version")


def test_a_proof_changes_nothing_else_of_a_welcome():
    welcome = Welcome(b"", "1.0", providers=(("null", {"devices": 2}),), threads=3)
    found = with_mac(welcome, b"proof")
    assert (found.mac, with_mac(found, b"")) == (b"proof", welcome)
