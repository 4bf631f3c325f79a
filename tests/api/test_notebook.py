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


def test_each_source_has_its_own_file(cells, tmp_path):
    kernel = cells("def kernel(a, b):\n    return a @ b")["kernel"]
    first = write_notebook_kernel(kernel, tmp_path)
    assert write_notebook_kernel(kernel, tmp_path) == first
    changed = cells("def kernel(a, b):\n    return b @ a")["kernel"]
    assert write_notebook_kernel(changed, tmp_path) != first


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


def test_a_value_without_text_is_refused_with_its_name(cells):
    names = cells(
        "import numpy as np\nweights = np.ones(3)", "def kernel(a, b):\n    return a @ weights"
    )
    with pytest.raises(RequestError, match=r"kernel uses weights.*ndarray"):
        kernel_source(names["kernel"])


def test_a_function_without_source_is_refused():
    space = {"__name__": "__main__"}
    exec("def kernel(a, b):\n    return a @ b", space)
    with pytest.raises(RequestError, match="source is not known"):
        kernel_source(space["kernel"])


def test_a_closure_and_a_lambda_are_refused(cells):
    names = cells(
        "def outer(x):\n    def kernel(a, b):\n        return a @ b * x\n    return kernel\n"
        "closed = outer(3)\nshort = lambda a, b: a @ b"
    )
    with pytest.raises(RequestError, match="variables of a function around it"):
        kernel_source(names["closed"])
    with pytest.raises(RequestError, match="not a def"):
        kernel_source(names["short"])


def test_the_kernels_text_names_the_written_file(cells, tmp_path):
    kernel = cells("def kernel(a, b):\n    return a @ b")["kernel"]
    file, _, name = kernel_text(kernel, tmp_path).rpartition(":")
    assert name == "kernel"
    assert _import(file).kernel(2 * np.eye(1), np.eye(1)) == 2


def test_a_folder_that_cannot_be_written_is_reported(cells, tmp_path):
    kernel = cells("def kernel(a, b):\n    return a @ b")["kernel"]
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write the kernel"):
        write_notebook_kernel(kernel, tmp_path / "file")
