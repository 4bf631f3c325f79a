"""The public interface: exported names exist, are listed, and cost nothing to import."""

from __future__ import annotations

import subprocess
import sys

import gemmetry
import gemmetry.dispatches

HEAVY = ("torch", "triton", "iree", "polars", "pandas", "matplotlib", "plotly", "numpy", "pydantic")


def test_names_of_the_package():
    assert gemmetry.__all__ == [
        "Contest", "Results", "__version__", "bench", "compare", "load", "matmul", "profile",
        "record_traces",
    ]  # fmt: skip
    assert gemmetry.__all__ == sorted(gemmetry.__all__)
    assert dir(gemmetry) == gemmetry.__all__
    for name in gemmetry.__all__:
        assert getattr(gemmetry, name) is not None


def test_unknown_names_are_attribute_errors():
    assert not hasattr(gemmetry, "no_such_name")


def test_importing_gemmetry_loads_nothing_heavy():
    code = f"import gemmetry, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_order_of_imports_does_not_matter():
    code = (
        "import gemmetry.dispatches.profile, gemmetry.dispatches.results, gemmetry;"
        "assert callable(gemmetry.profile) and callable(gemmetry.load)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 0
