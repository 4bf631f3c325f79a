"""Rules that no linter checks: layers, what an import loads, exported names, sizes of files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gemmetry
from gemmetry.providers.base import builtin_names

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gemmetry"
HEAVY = {"torch", "triton", "iree", "polars", "matplotlib", "plotly", "ray", "pandas"}
CORE = {
    "numpy", "ml_dtypes", "msgspec", "pydantic", "pydantic_core", "yaml", "typer", "rich", "jinja2",
}  # fmt: skip
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
MEASURING = r"(domain|numerics|statistics|hardware|verification|measurement|engine)/"


def _python(program: str) -> str:
    """What a program prints."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_module_imports_only_from_lower_levels() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    "words", [["--help"], ["profile", "--help"]], ids=["--help", "profile --help"]
)
def test_heavy_libraries_are_not_loaded_before_they_are_needed(words: list[str]) -> None:
    loaded = _python(
        f"import sys\nsys.argv[1:] = {words}\nfrom gemmetry.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    ).rpartition("LOADED")[2]
    assert "sys" in loaded.split()
    assert not HEAVY & set(loaded.split())


def test_importing_gemmetry_loads_nothing_heavy_and_in_any_order() -> None:
    printed = _python(
        "import gemmetry, sys; print(*sys.modules)\n"
        "import gemmetry.dispatches.profile, gemmetry.dispatches.results, gemmetry\n"
        "assert callable(gemmetry.profile) and callable(gemmetry.load)"
    )
    assert "sys" in printed.split()
    assert not {*HEAVY, "numpy", "pydantic"} & set(printed.split())


def test_names_of_the_package() -> None:
    assert gemmetry.__all__ == dir(gemmetry) == [
        "Contest", "Results", "__version__", "bench", "compare", "load", "matmul", "profile",
        "record_traces",
    ]  # fmt: skip
    assert all(getattr(gemmetry, name) is not None for name in gemmetry.__all__)
    assert not hasattr(gemmetry, "no_such_name")


def _foreign(path: Path, *, top_level: bool) -> set[str]:
    """Packages that a module imports besides Python's."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"gemmetry"}


def test_the_domain_needs_the_standard_library_only() -> None:
    paths = (PACKAGE / "domain").glob("*.py")
    found = {path.name: _foreign(path, top_level=False) for path in paths}
    assert found.pop("opening.py") == {"zstandard"}  # of compressed files
    assert {name: foreign for name, foreign in found.items() if foreign} == {}


def test_files_stay_readable() -> None:
    folders = ("src", "tests", "examples", "benchmarks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert paths
    assert [path for path in paths if len(path.read_text().splitlines()) > 1500] == []


def test_the_measuring_path_starts_with_the_core_dependencies_alone() -> None:
    found = {
        name: _foreign(path, top_level=True) - CORE
        for name, path in MODULES.items()
        if re.match(MEASURING, name) and not path.name.startswith(("cuda_", "torch_"))
    }
    assert len(found) > 90
    assert {name: foreign for name, foreign in found.items() if foreign} == {}


def test_the_size_of_the_host_is_read_in_one_place() -> None:
    places = r"sched_getaffinity|cpu_count\(|[\"'/](?:meminfo|cpuinfo)[\"']|cgroup/|SC_\w*PAGES"
    found = {
        name: re.findall(places, path.read_text())
        for name, path in MODULES.items()
        if path.parent.name != "hardware"
    }
    # Waiting for quiet moves one thread to each processor and back, and reads where it may run now.
    assert found.pop("measurement/launches.py") == ["sched_getaffinity"] * 2
    assert {path: uses for path, uses in found.items() if uses} == {}


def test_no_import_within_a_function_of_the_domain_breaks_a_circle() -> None:
    for path in sorted((PACKAGE / "domain").glob("*.py")):
        tree = ast.parse(path.read_text())
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        inner = [n for function in functions for n in ast.walk(function)]
        own = [n for n in inner if isinstance(n, ast.ImportFrom) and "gemmetry" in (n.module or "")]
        assert own == [], path.relative_to(PACKAGE)


NAMES_OF_PROVIDERS = {
    "cli/options.py": "help, which would take a third longer if it loaded traits; a test of traits "
    "compares the two",
    "cli/trace.py": "help, as above",
    "providers/base.py": "where a provider in a room of a higher level is",
}
"""Files that name a provider nevertheless, and why."""

NAMES_OF_SOMETHING_ELSE = {
    "cli/options.py", "domain/settings.py",  # who computes a reference
    "cli/trace.py", "hardware/host_device.py", "hardware/torch_device.py",  # libraries
    "hardware/cuda_plans.py", "engine/sanitizing.py", "engine/recording.py", "engine/worker.py",
    "verification/context.py",
    "domain/dispatch.py", "domain/specs/model.py", "domain/columns.py",
    "domain/specs/yaml_text.py", "domain/options.py", "domain/rows.py",  # null
    "traces/names/grammars.py",  # families of kernels
    "traces/operators/gemms.py", "documents/operator_tables.py",
    "sweeps/run.py", "sweeps/workload.py", "sweeps/trainer.py",  # libraries
    "tuning/strategies.py",
    "hardware/detect.py", "domain/specs/fields.py", "domain/specs/planning.py",  # kinds of device
    "__init__.py", "tuning/dispatcher/building.py",  # libraries
    "judge/clocks.py", "judge/yardstick.py", "judge/remote.py",
    "judge/sandbox.py", "judge/service.py", "judge/tasks.py", "judge/census.py",
}  # fmt: skip


def test_providers_are_named_in_their_own_folder_alone() -> None:
    names = "|".join(builtin_names())
    own = rf"providers/(?:{names})_provider|selftest/"
    found = {
        name
        for name, path in MODULES.items()
        if not re.match(own, name) and re.search(rf"""["'](?:{names})["']""", path.read_text())
    }
    assert found == NAMES_OF_PROVIDERS.keys() | NAMES_OF_SOMETHING_ELSE
