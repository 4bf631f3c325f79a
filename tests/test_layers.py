"""Rules that no linter checks: layers, what an import loads, sizes of files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmetry.providers.base import builtin_names

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "gemmetry"
HEAVY = {"torch", "triton", "iree", "polars", "matplotlib", "plotly", "ray", "pandas"}
CORE = {
    "numpy",
    "ml_dtypes",
    "msgspec",
    "pydantic",
    "pydantic_core",
    "yaml",
    "typer",
    "rich",
    "jinja2",
}
MEASURING_PATH = (
    "domain",
    "numerics",
    "statistics",
    "hardware",
    "verification",
    "measurement",
    "engine",
)


def test_a_module_imports_only_from_lower_levels() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    "statement",
    [
        "import gemmetry",
        "import gemmetry.cli.main",
        "sys.argv[1:] = ['--help']; from gemmetry.cli.main import main; main()",
        "sys.argv[1:] = ['profile', '--help']; from gemmetry.cli.main import main; main()",
    ],
    ids=["import gemmetry", "import of the command line", "--help", "profile --help"],
)
def test_heavy_libraries_are_not_loaded_before_they_are_needed(statement: str) -> None:
    program = (
        "import sys\n"
        f"try:\n    {statement}\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 0, found.stderr
    loaded = set(found.stdout.rpartition("LOADED")[2].split())
    assert "sys" in loaded
    assert not loaded & HEAVY


def _modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((PACKAGE / folder).rglob("*.py"))


def _imported(tree: ast.AST, *, top_level: bool) -> Iterator[str]:
    nodes = tree.body if top_level and isinstance(tree, ast.Module) else ast.walk(tree)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_the_domain_needs_the_standard_library_only() -> None:
    for path in sorted((PACKAGE / "domain").glob("*.py")):
        names = set(_imported(ast.parse(path.read_text()), top_level=False))
        foreign = (
            names - set(sys.stdlib_module_names) - {"gemmetry", "zstandard"}
        )  # of compressed files
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


def test_the_measuring_path_starts_with_the_core_dependencies_alone() -> None:
    for path in (
        one for one in _modules(*MEASURING_PATH) if not one.name.startswith(("cuda_", "torch_"))
    ):
        names = set(_imported(ast.parse(path.read_text()), top_level=True))
        foreign = names - set(sys.stdlib_module_names) - {"gemmetry"} - CORE
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


def test_the_size_of_the_host_is_read_in_one_place() -> None:
    places = r"sched_getaffinity|cpu_count\(|[\"'/](?:meminfo|cpuinfo)[\"']|cgroup/|SC_\w*PAGES"
    found = {
        str(path.relative_to(PACKAGE)): re.findall(places, path.read_text())
        for path in _modules("")
        if path.parent.name != "hardware"
    }
    # Waiting for quiet moves one thread to each processor and back, and reads where it may run now.
    assert found.pop("measurement/launches.py") == ["sched_getaffinity"] * 2
    assert {path: uses for path, uses in found.items() if uses} == {}


def test_files_stay_readable() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for folder in ("src", "tests", "examples", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert lengths
    assert {path: lines for path, lines in lengths.items() if lines > 1500} == {}


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
        path
        for path in (str(path.relative_to(PACKAGE)) for path in _modules(""))
        if not re.match(own, path)
        and re.search(rf"""["'](?:{names})["']""", (PACKAGE / path).read_text())
    }
    assert found == NAMES_OF_PROVIDERS.keys() | NAMES_OF_SOMETHING_ELSE
