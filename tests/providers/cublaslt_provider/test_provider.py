from __future__ import annotations

import contextlib
import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.providers.conftest import dispatch_of

pytest.importorskip("nvmath", reason="nvmath-python is not installed")
pytest.importorskip("torch", reason="torch is not installed")

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Target, TargetKind, parse_operation
from gemmetry.domain.errors import LaunchError, OutOfMemoryError, RequestError, UnsupportedError
from gemmetry.providers.cublaslt_provider.provider import PROVIDER
from gemmetry.testing import ProviderConformance

H200 = Target(TargetKind.CUDA, "sm_90", 0, product="NVIDIA H200")
PLAIN = "matmul_48x80x64"
BF16 = f"{PLAIN}_bf16t_bf16n_bf16t"

OPERATIONS = (
    *(f"{PLAIN}_bf16{a}_bf16{b}_bf16{c}" for a in "nt" for b in "nt" for c in "nt"),
    "matmul_37x29x41_f32t_f32n_f32t",
    "matmul_37x29x41_f64n_f64t_f64n",
    f"{PLAIN}_tf32t_tf32n_f32t",
    f"{PLAIN}_f16t_f16n_f16t_accf16",
    f"{PLAIN}_f16t_f16n_f32n",
    f"{PLAIN}_s8t_s8n_s32t_beta1",
    "batch_matmul_3x17x5x19_f32n_f32t_f32t_bias",
    f"{PLAIN}_bf16t_bf16n_bf16t_alpha2_beta1_bias_relu",
    f"{PLAIN}_f16t_f16n_f16t_residual_relu",
    f"{PLAIN}_e4m3t_e5m2n_bf16t",
    f"{PLAIN}_e4m3t_e4m3n_f32n_scaletensor_alpha0p5",
    f"{PLAIN}_e4m3t_e4m3n_bf16t_scalerow",
    f"{PLAIN}_e4m3t_e4m3n_bf16n_scalerow",
    "matmul_48x272x512_e4m3t_e4m3n_bf16t_vs1x128",
    "matmul_48x272x512_e4m3t_e4m3n_f32t_vs1x128_vs128x128",
    "matmul_144x48x512_e4m3t_e4m3n_bf16t_vs128x128_vs1x128",
)
REFUSED = (
    "matmul_splitk_16x8x60_f32t_f32n_f32n_slices5",
    "conv2d_2x9x11x5_3x2x7_stride2x1_pad1x2_f32nhwc_f32hwcf_f32nhwc",
    f"{PLAIN}_bf16t_bf16n_bf16t_gelu",
    f"{PLAIN}_bf16t_bf16n_bf16n_bias",
)


@pytest.mark.usefixtures("library")
class TestConformance(ProviderConformance):
    provider_class = PROVIDER
    target = H200
    operations = (BF16, f"{PLAIN}_e4m3t_e4m3n_bf16t_scaletensor")
    refused = REFUSED
    level = "quick"


@pytest.fixture
def build(library: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Builds a dispatch; the end closes it, before the library looks for what is left."""
    with contextlib.ExitStack() as stack:

        def make(
            provider: Any, name: str, configuration: str, target: Target, folder: str = "one"
        ) -> Any:
            workspace = Workspace(generated=tmp_path / folder / "generated")
            found = provider.build(dispatch_of(provider, name, configuration, target), workspace)
            stack.callback(found.close)
            return found

        yield make


@pytest.fixture
def built(build: Callable[..., Any]) -> Callable[..., Any]:
    """Builds a configuration of BF16."""
    return lambda *names: build(PROVIDER(), BF16, names[0], H200, *names[1:])


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_computed(library: Any, launch: Any, name: str) -> None:
    """From the addresses alone, in the current stream."""
    launched = launch(PROVIDER({}), name, "default", H200)
    result = launched.operation.signature.result
    assert launched.worst_error() <= 1.01 * result.unit_roundoff
    assert library.streams == [77]


def test_each_launch_reads_its_own_factors_and_bias(launch: Any) -> None:
    """The descriptor holds their addresses, and a run rotates through several sets of buffers."""
    name = f"{PLAIN}_e4m3t_e4m3n_bf16t_scaletensor_bias"
    launched = launch(PROVIDER({}), name, "default", H200)
    device, executable = launched.executable.device, launched.executable
    first = launched.host_result.copy()
    others = [device.clone(one) for one in launched.buffers]
    others[2].mul_(2)  # scale_a
    second = device.allocate(launched.operation.output)
    executable.run(others, second)
    executable.run(launched.buffers, launched.output)
    assert not device.same_bytes(second, launched.output)
    assert (launched.host_result == first).all()


def test_default_is_the_first_proposal(library: Any, built: Any) -> None:
    facts = built("default").facts
    assert facts.default_configuration == "algo66_tile128x128_stages64xauto_cluster1x2x1"
    assert (facts.algorithms_tried, facts.workspace_bytes) == (None, 0)
    assert not library.launched


def test_best_is_the_fastest_in_a_trial(library: Any, built: Any) -> None:
    """All proposals are timed, in rounds, and the choice is recorded."""
    fast = (21, 15, 11, 3, 2, 0, 0, 0, 0)
    library.times_ns[fast] = 150_000.0
    executable = built("best")
    facts = executable.facts
    assert facts.default_configuration == "algo21_tile64x64_stages32x5_splitk3_reducecompute"
    assert facts.algorithms_tried == len(set(library.launched)) == 7
    assert facts.workspace_bytes == executable.workspace_bytes == 48 * 80 * 3 * 4
    counts = Counter(library.launched)
    finalists = (66, 20), fast[:2]  # the default, and what is faster in turns
    assert len({count for key, count in counts.items() if key[:2] not in finalists}) == 1


def test_best_of_n_has_its_number_in_its_name(built: Any) -> None:
    assert built("best3").facts.algorithms_tried == 3
    provider, operation = PROVIDER({}), parse_operation(BF16)
    for name in ("best8", "best1", "best0", "best999", "best08", "worst"):
        assert provider.parse_configuration(name, operation, H200) is None


def test_processes_that_build_together_make_one_choice(library: Any, built: Any) -> None:
    """Two trials at a time would disturb each other, and could choose two algorithms."""
    built("best", "alone")
    launches = len(library.launched)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: built("best", "together"), range(3)))
    assert len(library.launched) == 2 * launches
    assert len({one.facts for one in found}) == 1


def test_the_choice_is_kept_until_it_is_damaged_or_of_another_library(library, built, tmp_path):
    first = built("best3").facts
    launches = len(library.launched)
    library.times_ns = {(66, 24, 35, 1, 0, 0, 0, 0, 5): 1.0}
    assert built("best3").facts == first
    assert len(library.launched) == launches
    (path,) = tmp_path.rglob("best3.json")
    kept = json.loads(path.read_text())
    assert kept["algorithm"] == kept["trial"][0]["algorithm"] == first.default_configuration
    other = json.dumps({**kept, "cublaslt": "12.9.1"})
    for content in ("{", "[]", '{"cublaslt": "13.2.2"}', other):
        path.write_text(content)
        assert built("best3").facts.default_configuration.startswith("algo66_tile256x128")
        assert json.loads(path.read_text())["cublaslt"] == "13.2.2"


def test_every_proposal_is_listed_and_set_up_from_its_name(built: Any) -> None:
    """The same for the library, byte by byte."""
    provider = PROVIDER({"algorithms": "proposals", "most": 20})
    operation = parse_operation(BF16)
    names = [one.name for one in provider.configurations(operation, H200)]
    assert names[:2] == ["default", "best"] and len(names) == 2 + 7
    # Whatever is listed, trials get the library's proposals.
    assert [one.name for one in PROVIDER().proposals(operation, H200)] == names[2:]
    assert {built(name).facts.default_configuration for name in names[2:]} == {None}


def test_a_proposal_that_holds_more_than_its_name_is_found_by_it(library: Any, built: Any) -> None:
    """The library's structure is opaque, and need not be what its attributes set."""
    library.kernels[66].hidden = 5
    assert built("algo66_tile128x128_stages64xauto_cluster1x2x1").workspace_bytes == 0
    with pytest.raises(UnsupportedError, match="rejects algo66"):
        built("algo66_tile128x128_stages128xauto")


def test_named_algorithms_compute(library: Any, launch: Any) -> None:
    name = "algo21_tile128x128_stages64x4_splitk2_reducecompute_swizzle1_custom1"
    launched = launch(PROVIDER({}), BF16, name, H200)
    assert library.launched == [(21, 20, 16, 2, 2, 1, 1, 0, 0)]
    assert launched.executable.workspace_bytes == 48 * 80 * 2 * 4
    assert launched.worst_error() <= 2**-8


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ("algo21_tile64x64_stages32x5_splitk2_reduceoutput", "rounds partial sums to bf16"),
        ("algo21_tile64x64_stages32x5_splitk2_reduceinplace", "rounds partial sums to bf16"),
        ("algo66_tile64x64_stages64xauto", "rejects algo66_tile64x64_stages64xauto"),
        ("algo90_tile8x8_stages16x1", "no algorithm 90 for these formats"),
        ("default", "no algorithm for matmul_48x80x64"),
    ],
)
def test_what_an_algorithm_does_not_compute_is_refused(library, built, configuration, reason):
    if configuration == "default":
        library.kernels = {}
    with pytest.raises(UnsupportedError, match=reason):
        built(configuration)


@pytest.mark.usefixtures("library")
def test_a_search_lists_every_legal_algorithm_once() -> None:
    operation = parse_operation(BF16)
    found = list(PROVIDER({"algorithms": "all"}).configurations(operation, H200))
    names = [one.name for one in found]
    assert len(set(names)) == len(names)
    # 3 tiles x 2 stages x 3 clusters; 2 tiles x 2 stages x 2 options x 2 swizzles x (1 + 8 splits)
    assert len(names) == 2 + 18 + 144
    bounded = PROVIDER({"algorithms": "all", "most": 30}).configurations(operation, H200)
    assert [one.name for one in bounded] == names[:32]
    # After the seven proposals, identifiers take turns.
    assert {name.partition("_")[0] for name in names[9:13]} == {"algo66", "algo21"}
    tuner = PROVIDER({}).search_space(operation, H200)
    assert [one.name for one in tuner] == names[1:]


def test_a_search_ends_where_an_algorithm_declares_countless_options(library, monkeypatch) -> None:
    library.kernels[66].custom_max = 2**31 - 1
    monkeypatch.setattr("gemmetry.providers.cublaslt_provider.algorithms.MOST_CHECKED", 400)
    space = list(PROVIDER({}).search_space(parse_operation(BF16), H200))
    found = {one.name.partition("_")[0] for one in space}
    assert found == {"best", "algo66", "algo21"} and 20 < len(space) < 410


def test_nothing_is_listed_where_the_library_fails(library, monkeypatch) -> None:
    """A plan is made all the same, and its dispatches end with the reason."""

    fail = Mock(side_effect=RuntimeError("CUDA driver is not found"))
    monkeypatch.setattr(library, "create", fail)
    listed = PROVIDER({"algorithms": "all"}).configurations(parse_operation(BF16), H200)
    assert [one.name for one in listed] == ["default", "best"]
    space = PROVIDER({}).search_space(parse_operation(BF16), H200)
    assert [one.name for one in space] == ["best"]


def test_failed_launches_name_the_library_and_the_status(library: Any, launch: Any) -> None:
    launched = launch(PROVIDER({}), BF16, "default", H200)
    for library.fails, error in (
        ("NOT_SUPPORTED", UnsupportedError),
        ("ALLOC_FAILED", OutOfMemoryError),
        ("EXECUTION_FAILED", LaunchError),
    ):
        with pytest.raises(error, match=f"cuBLASLt failed while launching.*{library.fails}"):
            launched.executable.run(launched.buffers, launched.output)


@pytest.mark.parametrize(
    "options", [{"algorithms": "some"}, *({"most": most} for most in ("many", -1, 2.5, True))]
)
def test_which_and_how_many_algorithms_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="'some'" if "algorithms" in options else "cannot list"):
        PROVIDER({"algorithms": "all", **options})


def test_it_is_unavailable_without_a_gpu_or_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for gpus in ([], [H200]):
        monkeypatch.setattr("gemmetry.hardware.torch_device.gpu_targets", gpus.copy)
        assert (PROVIDER({}).available() is None) is bool(gpus)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: {"nvmath": None}.get(name, name))
    provider = PROVIDER({})
    assert "gemmetry[cublaslt]" in (provider.available() or "")
    assert (provider.targets(), provider.versions(), provider.doctor_notes()) == ((), {}, ())
    assert provider.parse_configuration("algo66", parse_operation(BF16), H200) is None


def test_the_dispatcher_builds_a_named_algorithm(library: Any) -> None:
    """As it does for a table that chose one: by its name, without a choice to make."""
    from gemmetry.tuning.dispatcher.runtime import Dispatcher
    from gemmetry.tuning.dispatcher.table import problem_of

    dispatcher = Dispatcher(H200, None)
    name = "cublaslt:algo21_tile128x128_stages64x4_splitk2_reducecompute"
    problem = problem_of(parse_operation(BF16))
    executable = dispatcher.executable(problem, name, stream=1)
    assert executable is dispatcher.executable(problem, name, stream=1)
    assert executable is not dispatcher.executable(problem, name, stream=2)
    assert executable.workspace_bytes == 48 * 80 * 2 * 4
    assert not library.launched
    for one in dispatcher._built.values():
        one.close()
