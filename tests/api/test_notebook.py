from __future__ import annotations

import importlib.util
import linecache
import textwrap

import numpy as np
import pytest

from gemmetry.dispatches.notebook import kernel_source, kernel_text, write_notebook_kernel
from gemmetry.domain.errors import RequestError, StorageError


@pytest.fixture
def cells():
    """A function that runs cells as a notebook does; their names are in one mapping."""
    names = {"__name__": "__main__"}
    files = []

    def run(*texts):
        for text in texts:
            source = textwrap.dedent(text)
            file = f"<ipython-input-{len(files)}-abc>"
            files.append(file)
            linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
            exec(compile(source, file, "exec"), names)
        return names

    yield run
    for file in files:
        linecache.cache.pop(file, None)


def _import(path):
    spec = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_cells_function_runs_from_the_written_file(cells, tmp_path):
    names = cells(
        "import numpy as np\nfrom math import floor as down\nSCALE = 2\nSIZES = (1, [2, 3])",
        "def helper(x):\n    return np.asarray(x) * SCALE",
        """
        def decorate(f):
            return f

        @decorate
        def kernel(a, b, tile=SIZES):  # a comment stays
            def inner():
                return down(1.5)
            return helper(a @ b) * inner()
        """,
    )
    path = write_notebook_kernel(names["kernel"], tmp_path)
    text = path.read_text()
    assert path.parent == tmp_path / "kernels"
    assert "# a comment stays" in text
    assert "decorate" not in text
    assert np.array_equal(_import(path).kernel(np.eye(2), np.ones((2, 2))), np.full((2, 2), 2.0))


def test_each_source_has_its_own_file_which_the_kernels_text_names(cells, tmp_path):
    kernel = cells("def kernel(a, b):\n    return a @ b")["kernel"]
    first = write_notebook_kernel(kernel, tmp_path)
    assert write_notebook_kernel(kernel, tmp_path) == first
    assert kernel_text(kernel, tmp_path) == f"{first}:kernel"
    changed = cells("def kernel(a, b):\n    return b @ a")["kernel"]
    assert write_notebook_kernel(changed, tmp_path) != first
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write the kernel"):
        write_notebook_kernel(kernel, tmp_path / "file")


def test_functions_that_call_each_other_are_both_written(cells):
    names = cells(
        "def even(n):\n    return n == 0 or odd(n - 1)\ndef odd(n):\n    return n and even(n - 1)",
        "def kernel(a, b):\n    return a if even(2) else b",
    )
    text = kernel_source(names["kernel"])
    assert text.count("def even") == text.count("def odd") == 1
    space = {}
    exec(text, space)
    assert space["kernel"](1, 2) == 1


def test_what_a_file_cannot_hold_is_refused_with_its_name(cells):
    names = cells(
        "import numpy as np\nweights = np.ones(3)",
        "def uses(a, b):\n    return a @ weights",
        "def outer(x):\n    def kernel(a, b):\n        return a @ b * x\n    return kernel\n"
        "closed = outer(3)\nshort = lambda a, b: a @ b",
    )
    exec("def unknown(a, b):\n    return a @ b", names)
    for name, reason in (
        ("uses", "uses uses weights.*ndarray"),
        ("unknown", "source is not known"),
        ("closed", "variables of a function around it"),
        ("short", "not a def"),
    ):
        with pytest.raises(RequestError, match=reason):
            kernel_source(names[name])
