"""cuBLASLt's algorithms on a GPU: right in every format, layout and epilogue, known by their names,
captured in graphs, and the best of several chosen once for all processes."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import UnsupportedError, Verification
from gemmetry.domain.record import BuildFacts
from gemmetry.engine.bench import CompanionBuilder
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification.protocol import verify

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        importlib.util.find_spec("nvmath") is None, reason="nvmath-python is not installed"
    ),
]

PLAIN = "matmul_144x208x176"
OPERATIONS = (
    *(f"{PLAIN}_bf16{a}_bf16{b}_bf16{c}" for a in "nt" for b in "nt" for c in "nt"),
    f"{PLAIN}_bf16t_bf16n_f32t",
    f"{PLAIN}_f16t_f16n_f16t",
    f"{PLAIN}_f16n_f16t_f32n",
    f"{PLAIN}_f16t_f16n_f16t_accf16",
    f"{PLAIN}_f32t_f32n_f32t",
    f"{PLAIN}_f32n_f32t_f32n",
    f"{PLAIN}_tf32t_tf32n_f32t",
    f"{PLAIN}_f64t_f64n_f64t",
    f"{PLAIN}_s8t_s8n_s32t",
    f"{PLAIN}_s8t_s8n_s32t_beta1",
    "matmul_37x29x41_bf16t_bf16t_bf16t",
    "matmul_37x29x41_f32t_f32t_f32t",
    "matmul_1x208x176_bf16t_bf16n_bf16t",
    "batch_matmul_3x48x80x64_bf16t_bf16n_bf16t",
    "batch_matmul_3x48x80x64_f32n_f32t_f32t_bias",
)
FP8 = (
    f"{PLAIN}_e4m3t_e4m3n_bf16t",
    f"{PLAIN}_e4m3t_e4m3n_f16t",
    f"{PLAIN}_e4m3t_e4m3n_f32t",
    f"{PLAIN}_e4m3t_e4m3n_bf16n",
    f"{PLAIN}_e4m3t_e5m2n_bf16t",
    f"{PLAIN}_e5m2t_e4m3n_bf16t_scaletensor",
    f"{PLAIN}_e4m3t_e4m3n_bf16t_scaletensor_alpha2_beta1_bias_relu",
    "batch_matmul_3x48x80x64_e4m3t_e4m3n_bf16t_scaletensor",
)
SCALED = (
    f"{PLAIN}_e4m3t_e4m3n_bf16t_scalerow",
    f"{PLAIN}_e4m3t_e4m3n_bf16n_scalerow",
    "matmul_144x208x512_e4m3t_e4m3n_bf16t_vs1x128",
    "matmul_144x208x512_e4m3t_e4m3n_f32t_vs1x128_vs128x128",
    "matmul_144x208x512_e4m3t_e4m3n_bf16t_vs128x128_vs1x128",
)
EPILOGUES = (
    f"{PLAIN}_bf16t_bf16n_bf16t_alpha2_beta1",
    f"{PLAIN}_bf16t_bf16n_bf16t_alpham0p5_betam2",
    f"{PLAIN}_bf16t_bf16n_bf16t_bias",
    f"{PLAIN}_bf16t_bf16n_bf16t_relu",
    f"{PLAIN}_bf16t_bf16n_bf16t_bias_relu",
    f"{PLAIN}_bf16t_bf16n_bf16n_relu",
    f"{PLAIN}_f16t_f16n_f16t_residual",
    f"{PLAIN}_f32t_f32n_f32t_bias_residual_relu",
    f"{PLAIN}_f16t_f16n_f16t_beta1_bias_relu",
)


def _provider(**options: Any) -> Any:
    from gemmetry.providers.cublaslt_provider.provider import PROVIDER

    return PROVIDER(options)


@pytest.fixture
def cuda(gpu: Target) -> Target:
    if gpu.kind is not TargetKind.CUDA:
        pytest.skip(f"cuBLASLt is for NVIDIA GPUs, this is {gpu}")
    return gpu


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(generated=tmp_path / "generated")


def _dispatch(name: str, configuration: str, target: Target) -> Dispatch:
    operation = parse_operation(name)
    found = _provider().parse_configuration(configuration, operation, target)
    assert found is not None
    return Dispatch(operation, found, "cublaslt", target)


def _verified(dispatch: Dispatch, workspace: Workspace, level: str = "standard") -> Any:
    """The executable's facts, after its result was verified."""
    provider, operation = _provider(), dispatch.operation
    executable = provider.build(dispatch, workspace)
    facts = executable.facts
    chosen = facts.default_configuration if facts.algorithms_tried else ""
    companions = CompanionBuilder(provider, workspace, lambda built, _: built)
    inputs = make_inputs(operation, distribution="uniform_signed", seed=11)
    verdict = verify(
        executable,
        operation,
        inputs,
        compute_reference(operation, inputs),
        level=level,
        seed=11,
        companions=companions.companions(dispatch, level, chosen),
    )
    executable.close()
    failed = {check: text for check, text in verdict.checks.items() if text.startswith("failed")}
    assert verdict.status in (Verification.PASSED, Verification.WARNED), (failed, verdict.reason)
    return facts


@pytest.mark.parametrize("name", [*OPERATIONS, *FP8, *SCALED, *EPILOGUES])
@pytest.mark.parametrize("configuration", ["default", "best4"])
def test_every_format_is_proved(
    cuda: Target, workspace: Workspace, name: str, configuration: str
) -> None:
    dispatch = _dispatch(name, configuration, cuda)
    if reason := _provider().supports(dispatch.operation, cuda):
        pytest.skip(reason)
    facts = _verified(dispatch, workspace)
    assert facts.default_configuration.startswith("algo")
    assert facts.workspace_bytes is not None
    assert (facts.algorithms_tried is None) == (configuration == "default")


@pytest.mark.parametrize(
    "name",
    [
        "matmul_4096x4096x4096_bf16t_bf16n_bf16t",
        "matmul_64x7168x16384_bf16t_bf16n_bf16t",
        "matmul_1024x1024x1024_e4m3t_e4m3n_bf16t_scaletensor",
        "matmul_512x512x512_f32t_f32n_f32t",
    ],
)
def test_names_parse_back_to_the_same_algorithm(cuda: Target, name: str) -> None:
    """Every proposal, set up again from its name alone, gives the same result, bit by bit: of what
    the library stores, some bytes of f32's algorithms belong to no attribute and vary."""
    import torch

    from gemmetry.hardware.torch_device import open_device
    from gemmetry.providers.cublaslt_provider import algorithms as selecting
    from gemmetry.providers.cublaslt_provider.algorithms import parse_algorithm
    from gemmetry.providers.cublaslt_provider.bindings import problem_of
    from gemmetry.providers.cublaslt_provider.choosing import _buffers, described, executable

    operation = parse_operation(name)
    if reason := _provider().supports(operation, cuda):
        pytest.skip(reason)
    problem = problem_of(operation)
    device, dispatch = open_device(cuda), _dispatch(name, "default", cuda)
    inputs, _ = _buffers(operation, device)[0]
    with described(problem, cuda, device) as matmul:
        count = 0
        for result in selecting.proposed(matmul, operation, 16):
            algorithm = selecting.algorithm_of(matmul, result)
            again = parse_algorithm(algorithm.name)
            assert again == algorithm
            made = selecting.result_of(matmul, problem, operation, again)
            assert selecting.algorithm_of(matmul, made) == algorithm
            outputs = [device.allocate(operation.output) for _ in range(2)]
            for one, output in zip((result, made), outputs, strict=True):
                output.view(torch.uint8).fill_(255)
                executable(dispatch, matmul, one, device, BuildFacts()).run(inputs, output)
            assert torch.equal(*(one.view(torch.uint8) for one in outputs)), algorithm.name
            count += 1
        matmul.close()
    assert count


def test_each_proposal_is_a_configuration(cuda: Target, workspace: Workspace) -> None:
    operation = parse_operation("matmul_256x512x1024_bf16t_bf16n_bf16t")
    provider = _provider(algorithms="proposals", most=6)
    listed = list(provider.configurations(operation, cuda))
    names = [one.name for one in listed]
    assert names[:2] == ["default", "best"] and 3 <= len(names) <= 8
    assert len(set(names)) == len(names)
    for one in listed[2:]:
        assert _provider().parse_configuration(one.name, operation, cuda) == one
        facts = _verified(Dispatch(operation, one, "cublaslt", cuda), workspace)
        assert facts.default_configuration is None


def test_the_search_finds_more_than_the_heuristic(cuda: Target, workspace: Workspace) -> None:
    operation = parse_operation("matmul_256x512x1024_bf16t_bf16n_bf16t")
    proposals = list(_provider(algorithms="proposals", most=64).configurations(operation, cuda))
    found = list(_provider(algorithms="all", most=300).configurations(operation, cuda))
    print(len(proposals), len(found))
    assert len(found) > len(proposals)
    for one in found[2::29]:
        _verified(Dispatch(operation, one, "cublaslt", cuda), workspace, "quick")


def test_the_choice_is_made_once(cuda: Target, workspace: Workspace) -> None:
    dispatch = _dispatch("matmul_2048x2048x2048_bf16t_bf16n_bf16t", "best", cuda)
    first = _provider().build(dispatch, workspace)
    assert 1 < first.facts.algorithms_tried <= 8
    (kept,) = workspace.generated.rglob("best.json")
    trial = json.loads(kept.read_text())["trial"]
    print(json.dumps(trial, indent=1))
    assert len(trial) == first.facts.algorithms_tried
    fastest = min(trial, key=lambda one: one["median_ns"])
    # The library's default, or the fastest if it is faster alone too.
    assert first.facts.default_configuration in (trial[0]["algorithm"], fastest["algorithm"])
    content = kept.read_bytes()
    assert _provider().build(dispatch, workspace).facts == first.facts
    assert kept.read_bytes() == content


@pytest.mark.parametrize(
    "name",
    [
        "matmul_256x512x1024_bf16t_bf16n_bf16t_bias_relu",
        "matmul_256x512x1024_e4m3t_e4m3n_bf16t_scaletensor",
    ],
)
def test_launches_are_captured(cuda: Target, workspace: Workspace, name: str) -> None:
    dispatch = _dispatch(name, "default", cuda)
    if reason := _provider().supports(dispatch.operation, cuda):
        pytest.skip(reason)
    executable = _provider().build(dispatch, workspace)
    device: Any = executable.device
    arrays = make_inputs(dispatch.operation, distribution="uniform_signed", seed=3)
    specs = dispatch.operation.inputs
    buffers = [device.upload(array, spec) for array, spec in zip(arrays, specs, strict=True)]
    plain, replayed = (device.allocate(dispatch.operation.output) for _ in range(2))
    executable.run(buffers, plain)
    replay = device.captured(lambda: executable.run(buffers, replayed))
    device.fill_bytes(replayed, 0xFF)
    replay()
    device.synchronize()
    assert device.same_bytes(plain, replayed)


def test_partial_sums_stay_in_the_accumulators_format(cuda: Target, workspace: Workspace) -> None:
    operation = parse_operation("matmul_64x64x4096_bf16t_bf16n_bf16t")
    provider = _provider(algorithms="all", most=2000)
    names = [one.name for one in provider.configurations(operation, cuda)]
    split = [name for name in names if "_splitk" in name]
    print(len(names), len(split))
    assert all("_reducecompute" in name for name in split)
    if split:
        rounded = split[0].replace("_reducecompute", "_reduceoutput")
        dispatch = Dispatch(
            operation, provider.parse_configuration(rounded, operation, cuda), "cublaslt", cuda
        )
        with pytest.raises(UnsupportedError, match="rounds partial sums"):
            provider.build(dispatch, workspace)
        _verified(_dispatch(str(operation), split[0], cuda), workspace)


def test_a_run_has_the_best_as_its_baseline(cuda: Target, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from gemmetry.cli.main import app

    folder = str(tmp_path / "run")
    result = CliRunner().invoke(
        app,
        ["profile", "--providers", "torch,cublaslt", "--device", cuda.device, "--dtypes", "bf16",
         "--shapes", "1024x1024x1024", "--baseline", "cublaslt:best", "--experiment", folder],
    )  # fmt: skip
    print(result.output)
    assert result.exit_code == 0
    assert "cublaslt:best" in result.output


def test_a_table_of_a_run_is_used_by_the_dispatcher(cuda: Target, tmp_path: Path) -> None:
    """The algorithm that was the best is in the table by its own name, and `matmul` runs it."""
    import torch

    from gemmetry.dispatches.profile import profile
    from gemmetry.providers.registry import load_provider
    from gemmetry.tuning.dispatcher import runtime
    from gemmetry.tuning.dispatcher.building import build_table
    from gemmetry.tuning.dispatcher.call import explain, matmul

    result = profile(
        shapes=["1024x8192x8192"], dtypes="bf16", layouts="tn", providers="torch,cublaslt",
        device=cuda.device, experiment=str(tmp_path / "run"), distribution="normal",
    )  # fmt: skip
    built = build_table([result.result_set], load_provider)
    (entry,) = built.table.entries
    named = [name for name in entry.times_ns if name.startswith("cublaslt:algo")]
    print(entry, built.notes)
    assert named and not any(name.endswith((":best", ":default")) for name in named)
    forced = replace(entry, choice=named[0], verdict="faster", ratio=0.5)
    runtime.use_table(replace(built.table, entries=(forced,)))
    try:
        a = torch.randn(1024, 8192, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16).mT
        print(explain(a, b))
        assert explain(a, b).startswith(named[0])
        torch.testing.assert_close(matmul(a, b), a @ b, rtol=2e-2, atol=1.0)
    finally:
        runtime._tables.clear()
        runtime.reset()
