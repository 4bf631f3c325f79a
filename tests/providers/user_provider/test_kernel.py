from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmetry.domain.dispatch import parse_operation, split_dispatch_name
from gemmetry.domain.errors import RequestError, UnknownNameError
from gemmetry.domain.record import Trait
from gemmetry.providers.user_provider.kernel import (
    configuration_name,
    import_file,
    load_kernel,
    name_configurations,
)

NAME = "matmul_17x13x11_f32t_f32t_f32t"


@pytest.mark.parametrize(
    ("source", "arrays"),
    [
        ("def f(a, b): ...", "numpy"),
        ("import numpy as np\ndef f(a, b): ...", "numpy"),
        ("import torch as t\ndef f(a, b): ...", "torch"),
        ("import torch\nBACKEND = 'numpy'\ndef f(a, b): ...", "numpy"),
        ("import torch, numpy as np\ndef f(a: np.ndarray, b): ...", "numpy"),
        ("def f(a: 'torch.Tensor', b): ...", "torch"),
    ],
)
def test_arrays_are_decided_by_the_module(tmp_path, source, arrays):
    pytest.importorskip("torch")
    path = tmp_path / "arrays.py"
    path.write_text(source)
    assert load_kernel(f"{path}:f").arrays == arrays
    assert load_kernel(f"{path}:f", arrays="numpy").arrays == "numpy"


@pytest.mark.parametrize("text", ["my_gemm.py", "my_gemm.py:", "k.py:1x", "", "nowhere/x.py:f"])
def test_a_kernel_needs_file_and_function(text):
    with pytest.raises(RequestError, match="no kernel file" if ":f" in text else "does not name"):
        load_kernel(text)


def test_a_module_may_declare_its_arithmetic(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("DECLARES = ['nondeterministic', 'normwise']\ndef f(a, b): ...\n")
    assert load_kernel(f"{path}:f").declared == (Trait.NONDETERMINISTIC, Trait.NORMWISE)
    path.write_text("DECLARES = 'normwize'\ndef f(a, b): ...\n")
    with pytest.raises(UnknownNameError, match="Did you mean normwise"):
        load_kernel(f"{path}:f")


def test_a_missing_function_suggests_the_nearest(tmp_path):
    path = tmp_path / "k.py"
    path.write_text("def blocked(a, b): ...\ndef _key(a): ...\nSIZE = 3\n")
    for name, hint in (("bloked", "Did you mean blocked"), ("zzz", "Known: blocked")):
        with pytest.raises(UnknownNameError) as raised:
            load_kernel(f"{path}:{name}")
        assert hint in str(raised.value) + raised.value.hint
        assert "_key" not in raised.value.hint
    with pytest.raises(RequestError, match=r"'SIZE' in .*k\.py is .*int"):
        load_kernel(f"{path}:SIZE")
    path.rename(tmp_path / "k.cu")
    with pytest.raises(RequestError, match="not a Python file"):
        import_file(tmp_path / "k.cu")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("x = 1\ny = 1 / 0", r"ZeroDivisionError: .*\(broken.py line 2\)"),
        ("def f(a, b:\n", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Own(Exception): ...\nraise Own('boom')", r"Own: boom \(broken.py line 2\)"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(tmp_path, source, words):
    path = tmp_path / "broken.py"
    path.write_text(source)
    before, modules = list(sys.path), set(sys.modules)
    with pytest.raises(RequestError, match=words):
        load_kernel(f"{path}:f")
    assert sys.path == before
    assert {name for name in sys.modules if "user_kernel" in name} <= modules


_VALUES = st.dictionaries(
    st.from_regex(r"[a-z_][a-z0-9_]{0,10}", fullmatch=True),
    st.one_of(
        st.integers(-(10**6), 10**6),
        st.floats(allow_nan=False, allow_infinity=False),
        st.booleans(),
        st.text(max_size=20),
    ),
    max_size=4,
)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "default"),
        ({"tile": 32, "stages": 2}, "tile32_stages2"),
        ({"rate": 0.5, "shift": -2}, "rate0p5_shiftm2"),
        ({"swap": True, "order": "k;j/../i"}, "swap_true_order_k_j_i"),
        ({"s": "\n; rm -rf <b>"}, "s_rm_rf_b"),
    ],
)
def test_golden_names_of_configurations(values, name):
    assert configuration_name(values) == name


@given(st.lists(_VALUES, max_size=6))
@settings(deadline=None, max_examples=60)
def test_names_of_configurations_are_clean_unique_and_split_from_the_operation(configurations):
    reserved = {"a", "b", "out", "bias", "alpha", "beta", "stride", "slices"}
    configurations = [values for values in configurations if not reserved & set(values)]
    named = name_configurations(configurations)
    assert sorted(map(repr, named.values())) == sorted({repr(values) for values in configurations})
    for name in named:
        assert re.fullmatch(r"[A-Za-z0-9_]+", name)
        assert split_dispatch_name(f"{NAME}_{name}") == (parse_operation(NAME), name)


@pytest.mark.parametrize(
    ("configurations", "names"),
    [
        ([{"s": "a b"}, {"s": "a-b"}, {"s": "a b"}], ["s_a_b", "s_a_b_2"]),
        ([{"slices2": 1}, {"relu": "6"}], ["config_slices21", "config_relu_6"]),
    ],
)
def test_names_that_would_clash_are_numbered_or_get_a_word_in_front(configurations, names):
    assert list(name_configurations(configurations)) == names
