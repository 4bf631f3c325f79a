from __future__ import annotations

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_iree = pytest.mark.skipif(
    find_spec("iree") is None or find_spec("iree.compiler") is None,
    reason="the iree extra is not installed",
)
EXPECTED = Path(__file__).parent / "expected"
LEGACY = "tile_config_64x64_64x5"
TOO_LARGE = "tile_config_64x128_vector64x128x1"
USES = ("profile", "verify")


@needs_iree
def test_iree_compiles_for_the_cpu(cli):
    ended = cli("compile", "--device", "cpu", "--shapes", "64x64x64", "--dtypes", "f32",
                "--default-config", "--json", "--generated-dir", "out", status=0)  # fmt: skip
    (record,) = json.loads(ended.stdout)["records"]
    assert (record["outcome"], record["median_ns"]) == ("ok", None)
    assert list(Path("out/generated").rglob("*.mlir"))
    code, shown = ended.stderr.splitlines()[-2:]
    count, folder = re.fullmatch(r"code: (\d+) files? under (out/generated/\S+)", code).groups()
    found = [path for path in Path(folder).iterdir() if path.suffix in (".vmfb", ".s")]
    assert len(found) == int(count)
    command = shlex.split(shown.removeprefix("show it: gemmetry "))
    assert command[0] == "show"
    assert folder in cli(*command, status=0).stdout.replace("\n", "")


@needs_iree
def test_the_generated_folder_is_laid_out_as_documented(cli):
    """Names of the dispatch profiler document; docs/iree.md lists their equivalents here."""
    operation = "matmul_64x64x4096_f16t_f16t_f16t"
    wanted = [f"{operation}_{name}" for name in ("default", f"{LEGACY}_tensorcore_mmasync")]
    cli("compile", "-j", "1", "--generated-dir", "out", "--dispatches", ",".join(wanted), status=0)
    out = Path("out")
    lines = []
    for path in sorted(out.rglob("*")):
        if path.is_dir() or path.name.startswith("."):
            continue
        link = f" -> {path.readlink()}" if path.is_symlink() else ""
        lines.append(re.sub(r"_[0-9a-f]{12,16}\b", "_<hash>", f"{path.relative_to(out)}{link}"))
    assert lines == (EXPECTED / "compile_layout.txt").read_text().splitlines()

    folder = out / "generated" / "linalg" / "matmul" / operation
    printed = (folder / "iree_compile_cmd_stdout.mlir").read_text()
    assert all(f"//   @{name}\n" in printed for name in wanted)
    for name in wanted:
        profiled, verified = (folder / f"{name}_cuda-sm_80_{use}.vmfb" for use in USES)
        assert profiled.samefile(verified)
        assert name.encode() in profiled.read_bytes()


@needs_iree
def test_saved_commands_have_the_compilers_output_next_to_them(cli):
    name = "matmul_128x256x128_f32t_f32t_f32t_default"
    cli("compile", "--providers", "iree", "--device", "cpu", "--experiment", "here", "--save-cmds",
        "--dispatches", name, status=0)  # fmt: skip
    folder = Path("here/artifacts/commands/cpu/iree")
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.stdout", f"{name}.txt"]
    assert "# compile\nsed -n " in (folder / f"{name}.txt").read_text()
    assert (folder / f"{name}.stdout").read_text().startswith("// $ iree-compile - -o out.vmfb")


@needs_iree
def test_without_options_it_is_the_dispatch_profilers_set(cli):
    ended = cli("generate", status=0)
    assert ended.stdout == (EXPECTED / "generate.txt").read_text()
    files = sorted(str(path) for path in Path("generated").rglob("*.mlir"))
    assert len(files) == 17
    name = "matmul_256x512x128_f16t_f16t_f16t"
    assert f"generated/linalg/matmul/{name}/{name}.mlir" in files
