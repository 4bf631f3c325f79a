from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.formats.events import LARGEST_NS, nanoseconds

PLAIN = st.decimals(min_value=-(10**15), max_value=10**15, places=3, allow_nan=False).map(str)
SHORT = st.decimals(min_value=-(10**12), max_value=10**12, places=1, allow_nan=False).map(str)
WHOLE = st.integers(-(10**15), 10**15).map(str)
LONG = st.decimals(min_value=-(10**14), max_value=10**14, places=7, allow_nan=False).map(str)
SCIENTIFIC = st.floats(min_value=-1e15, max_value=1e15, allow_nan=False).map(repr)


def exact(text: str) -> int:
    return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_EVEN))


@given(
    st.one_of(
        st.lists(PLAIN, max_size=20),
        st.lists(SHORT, max_size=20),
        st.lists(WHOLE, max_size=20),
        st.lists(st.one_of(PLAIN, SHORT, WHOLE, LONG, SCIENTIFIC), max_size=20),
    )
)
@settings(deadline=None, max_examples=100)
def test_equals_decimal_arithmetic(texts):
    values, bad = nanoseconds([text.encode() for text in texts])
    assert bad == []
    assert values.dtype == np.int64
    assert values.tolist() == [exact(text) for text in texts]


@pytest.mark.parametrize(
    "text", [b"", b"null", b"NaN", b'"NaN"', b"Infinity", b"1e300", b"[1]", b"1.2.3", b"\xff", b"x"]
)
def test_what_is_no_time_is_named_by_its_place(text):
    values, bad = nanoseconds([b"1.5", text, b"2"])
    assert bad == [1]
    assert values.tolist() == [1500, 0, 2000]


def test_quoted_numbers_are_taken_and_the_largest_is_bounded():
    # Neighbouring float64 numbers in the times of today's traces are 0.00098 µs apart.
    values, _ = nanoseconds([b"4453675912345.679", b"4453675912345.680"])
    assert values.tolist() == [4453675912345679, 4453675912345680]
    assert nanoseconds([b'"12.5"'])[0].tolist() == [12500]
    assert nanoseconds([str(LARGEST_NS // 1000 + 1).encode()])[1] == [0]
    assert nanoseconds([])[0].tolist() == []
