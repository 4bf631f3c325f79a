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
    import_file,
    load_kernel,
    name_configurations,
)

NAME = "matmul_17x13x11_f32t_f32t_f32t"


@pytest.fixture
def written(tmp_path):
    """Writes a file of kernels; returns the text of --kernel."""

    def write(source, function="f"):
        (tmp_path / "k.py").write_text(source)
        return f"{tmp_path / 'k.py'}:{function}"

    return write


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
def test_arrays_are_decided_by_the_module(written, source, arrays):
    pytest.importorskip("torch")
    text = written(source)
    assert load_kernel(text).arrays == arrays
    assert load_kernel(text, arrays="numpy").arrays == "numpy"


@pytest.mark.parametrize("text", ["my_gemm.py", "my_gemm.py:", "k.py:1x", "", "nowhere/x.py:f"])
def test_a_kernel_needs_file_and_function(text):
    with pytest.raises(RequestError, match="no kernel file" if ":f" in text else "does not name"):
        load_kernel(text)


def test_a_module_may_declare_its_arithmetic(written):
    text = written("DECLARES = ['nondeterministic', 'normwise']\ndef f(a, b): ...\n")
    assert load_kernel(text).declared == (Trait.NONDETERMINISTIC, Trait.NORMWISE)
    with pytest.raises(UnknownNameError, match="Did you mean normwise"):
        load_kernel(written("DECLARES = 'normwize'\ndef f(a, b): ...\n"))


def test_a_missing_function_suggests_the_nearest(written, tmp_path):
    source = "def blocked(a, b): ...\ndef _key(a): ...\nSIZE = 3\n"
    for name, hint in (("bloked", "Did you mean blocked"), ("zzz", "Known: blocked")):
        with pytest.raises(UnknownNameError) as raised:
            load_kernel(written(source, name))
        assert hint in str(raised.value) + raised.value.hint
        assert "_key" not in raised.value.hint
    with pytest.raises(RequestError, match=r"'SIZE' in .*k\.py is .*int"):
        load_kernel(written(source, "SIZE"))
    (tmp_path / "k.cu").touch()
    with pytest.raises(RequestError, match="not a Python file"):
        import_file(tmp_path / "k.cu")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("x = 1\ny = 1 / 0", r"ZeroDivisionError: .*\(k.py line 2\)"),
        ("def f(a, b:\n", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Own(Exception): ...\nraise Own('boom')", r"Own: boom \(k.py line 2\)"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(written, source, words):
    before, modules = list(sys.path), set(sys.modules)
    with pytest.raises(RequestError, match=words):
        load_kernel(written(source))
    assert sys.path == before
    assert {name for name in sys.modules if "user_kernel" in name} <= modules


_VALUES = st.dictionaries(
    st.from_regex(r"[a-z_][a-z0-9_]{0,10}", fullmatch=True),
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(),
    max_size=4,
)


@given(st.lists(_VALUES, max_size=6))
@settings(max_examples=60)
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
        ([{}], ["default"]),
        ([{"tile": 32, "stages": 2}, {"rate": 0.5, "shift": -2}],
         ["tile32_stages2", "rate0p5_shiftm2"]),
        ([{"swap": True, "order": "k;j/../i"}, {"s": "\n; rm -rf <b>"}],
         ["swap_true_order_k_j_i", "s_rm_rf_b"]),
        ([{"s": "a b"}, {"s": "a-b"}, {"s": "a b"}], ["s_a_b", "s_a_b_2"]),
        ([{"slices2": 1}, {"relu": "6"}], ["config_slices21", "config_relu_6"]),
    ],
)  # fmt: skip
def test_names_that_would_clash_are_numbered_or_get_a_word_in_front(configurations, names):
    assert list(name_configurations(configurations)) == names
