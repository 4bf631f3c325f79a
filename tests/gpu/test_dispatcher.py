"""``gemmetry.matmul`` with this project's own kernels on a Hopper GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gemmetry.domain.dispatch import Target
from gemmetry.providers.cuda_provider import catalogue
from gemmetry.tuning.dispatcher.table import (
    CUBLAS,
    Certificate,
    DispatchTable,
    MatmulProblem,
    TunedShape,
    dispatch_of,
    source_digest,
)

pytestmark = pytest.mark.gpu

WHOLE = "cuda:r11_128x128_c2x1_b8"
SLICED = "cuda:r11_128x128_c2x1_b8_k4"
SIGNATURE = "bf16t_bf16n_bf16t"

Use = Callable[..., None]


@pytest.fixture
def use(gpu: Target) -> Iterator[Use]:
    """Choose a candidate for shapes of a signature, as if it had been measured and verified."""
    if not catalogue.is_hopper(gpu):
        pytest.skip(f"the kernels are for Hopper, this is {gpu.architecture}")
    from gemmetry.tuning.dispatcher import runtime

    def run(candidate: str, *shapes: tuple[int, int, int], signature: str = SIGNATURE) -> None:
        name = MatmulProblem(signature, *shapes[0]).name
        dispatch = dispatch_of(name, candidate, gpu.name, runtime.provider_of)
        provider = runtime.provider_of(dispatch.provider)
        digest = source_digest(provider, dispatch)
        passed = Certificate(
            signature=signature, candidate=candidate, level="standard", classes=("any",),
            operation=name, digest=digest, versions=provider.versions(), device=gpu.product,
            date="",
        )  # fmt: skip
        entries = tuple(
            TunedShape(signature=signature, shape=shape, choice=candidate, verdict="faster",
                       ratio=0.5, times_ns={candidate: 1.0, CUBLAS: 2.0})
            for shape in shapes
        )  # fmt: skip
        table = DispatchTable(
            target=gpu.name, device=gpu.product, entries=entries, certificates=(passed,),
            parameters={candidate: dict(dispatch.configuration.parameters)},
        )  # fmt: skip
        runtime.use_table(table)

    yield run
    runtime._tables.clear()
    runtime.reset()


def operands(m: int, n: int, k: int, dtype: str = "bfloat16") -> tuple[Any, Any]:
    import torch

    kind = getattr(torch, dtype)
    torch.manual_seed(m + n + k)
    a = torch.randn(m, k, device="cuda").to(kind)
    return a, torch.randn(n, k, device="cuda").to(kind).mT


def check(found: Any, want: Any) -> None:
    """Rounded to bf16 once or twice, of sums of up to a few thousand products of about 1."""
    import torch

    torch.testing.assert_close(found.double(), want, rtol=2 * 2**-8, atol=0.1)


def chosen(a: Any, b: Any, **options: Any) -> str:
    from gemmetry.tuning.dispatcher.call import explain

    return explain(a, b, **options).partition(": ")[0]


@pytest.mark.parametrize("candidate", [WHOLE, SLICED])
@pytest.mark.parametrize("shape", [(512, 512, 1024), (200, 264, 520), (77, 131, 333)])
def test_a_kernel_of_our_own_is_launched_and_right(
    use: Use, candidate: str, shape: tuple[int, int, int]
) -> None:
    import gemmetry

    use(candidate, shape)
    a, b = operands(*shape)
    assert chosen(a, b) == candidate
    for _ in range(3):
        check(gemmetry.matmul(a, b), a.double() @ b.double())


def test_fused_steps_and_a_given_output(use: Use) -> None:
    import torch

    import gemmetry

    shape = (256, 384, 512)
    use(WHOLE, shape, signature=f"{SIGNATURE}_alpha0p5_beta2_bias_gelu")
    a, b = operands(*shape)
    addend = torch.randn(256, 384, device="cuda").to(a.dtype)
    bias = torch.randn(384, device="cuda").to(a.dtype)
    options = {
        "alpha": 0.5, "beta": 2.0, "addend": addend, "bias": bias, "activation": "gelu",
        "out": torch.empty_like(addend),
    }  # fmt: skip
    assert chosen(a, b, **options) == WHOLE
    want = 0.5 * (a.double() @ b.double()) + 2 * addend.double() + bias.double()
    found = gemmetry.matmul(a, b, **options)
    assert found is options["out"]
    check(found, torch.nn.functional.gelu(want))


def test_an_address_that_is_not_aligned_is_left_to_torch(use: Use) -> None:
    import torch

    import gemmetry

    shape = (128, 128, 256)
    use(WHOLE, shape)
    _, b = operands(*shape)
    memory = torch.randn(128 * 256 + 1, device="cuda").to(b.dtype)
    a = memory[1:].view(128, 256)
    assert a.data_ptr() % 16
    check(
        gemmetry.matmul(memory[:-1].view(128, 256), b),
        memory[:-1].view(128, 256).double() @ b.double(),
    )
    check(gemmetry.matmul(a, b), a.double() @ b.double())


def test_two_streams_do_not_share_a_workspace(use: Use) -> None:
    import torch

    import gemmetry

    shape = (256, 256, 8192)
    use(SLICED, shape)
    pairs = [operands(*shape), tuple(2 * one for one in operands(*shape))]
    want = [a.double() @ b.double() for a, b in pairs]
    streams = [torch.cuda.Stream() for _ in pairs]
    torch.cuda.synchronize()
    found: list[list[Any]] = [[], []]
    for _ in range(50):
        for index, ((a, b), stream) in enumerate(zip(pairs, streams, strict=True)):
            with torch.cuda.stream(stream):
                found[index].append(gemmetry.matmul(a, b))
    torch.cuda.synchronize()
    for results, right in zip(found, want, strict=True):
        for one in results:
            torch.testing.assert_close(one.double(), right, rtol=2 * 2**-8, atol=1.0)


@pytest.mark.parametrize("candidate", [WHOLE, SLICED])
def test_a_captured_graph_gives_the_same(use: Use, candidate: str) -> None:
    import torch

    import gemmetry

    shape = (256, 256, 1024)
    use(candidate, shape)
    a, b = operands(*shape)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        gemmetry.matmul(a, b)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = gemmetry.matmul(a, b)
    a.copy_(2 * a)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(result.double(), a.double() @ b.double(), rtol=2 * 2**-8, atol=0.2)


def test_compiled_and_differentiated(use: Use) -> None:
    import torch

    import gemmetry

    shape = (256, 384, 512)
    use(WHOLE, shape)
    a, b = (one.detach().requires_grad_() for one in operands(*shape))

    @torch.compile(backend="aot_eager", fullgraph=True)
    def layer(a: Any, b: Any) -> Any:
        return gemmetry.matmul(a, b).float().sum()

    gradients = torch.autograd.grad(layer(a, b), (a, b))
    want = torch.autograd.grad((a.double() @ b.double()).sum(), (a, b))
    for one, right in zip(gradients, want, strict=True):
        torch.testing.assert_close(one.double(), right.double(), rtol=2 * 2**-8, atol=0.5)


def test_cublaslt_is_a_candidate_and_leaves_the_preference(use: Use) -> None:
    import torch

    import gemmetry

    shape = (256, 256, 512)
    use("torch:cublaslt", shape)
    a, b = operands(*shape)
    before = torch.backends.cuda.preferred_blas_library()
    assert chosen(a, b) == "torch:cublaslt"
    check(gemmetry.matmul(a, b), a.double() @ b.double())
    assert torch.backends.cuda.preferred_blas_library() == before


def test_the_table_that_comes_with_gemmetry_gives_right_results(gpu: Target) -> None:
    import torch

    import gemmetry
    from gemmetry.tuning.dispatcher import runtime

    runtime.reset()
    for shape in ((1, 4096, 4096), (16, 6144, 4096), (13, 2112, 7168), (300, 1000, 520)):
        a, b = operands(*shape)
        found = gemmetry.matmul(a, b)
        torch.testing.assert_close(found.double(), a.double() @ b.double(), rtol=2**-7, atol=0.5)


@pytest.mark.alone
def test_choosing_costs_less_than_submitting_a_product(use: Use) -> None:
    import time

    import torch

    import gemmetry
    from gemmetry.tuning.dispatcher import call as calls

    shape = (16, 256, 256)
    use(WHOLE, shape)
    a, b = operands(*shape)
    gemmetry.matmul(a, b)
    for key in calls._plain:
        calls._plain[key] = lambda _call: a
    best = dict.fromkeys((gemmetry.matmul, torch.matmul), float("inf"))
    for _ in range(50):
        for function in best:
            torch.cuda.synchronize()
            began = time.perf_counter_ns()
            for _ in range(200):
                function(a, b)
            best[function] = min(best[function], (time.perf_counter_ns() - began) / 200)
    print({function.__module__: f"{ns:.0f} ns" for function, ns in best.items()})
    assert best[gemmetry.matmul] < best[torch.matmul]


def test_a_trial_times_verified_kernels_next_to_the_library(use: Use, gpu: Target) -> None:
    import torch

    import gemmetry
    from gemmetry.tuning.dispatcher import choosing, runtime

    near = [(m, 1024, 1024) for m in (64, 128, 256)]
    use(WHOLE, *near)
    runtime.use_trials()
    try:
        a, b = operands(128, 4096, 4096)
        graph, static = torch.cuda.CUDAGraph(), gemmetry.matmul(*operands(64, 1024, 1024))
        with torch.cuda.graph(graph):
            static = gemmetry.matmul(a, b)
        dispatcher = runtime.dispatcher_of(a.device)
        problem = MatmulProblem(SIGNATURE, 128, 4096, 4096)
        assert dispatcher.chooser is not None
        assert dispatcher.chooser.measured(problem) is None, "nothing is tried within a graph"
        graph.replay()
        check(static, a.double() @ b.double())
        check(gemmetry.matmul(a, b), a.double() @ b.double())
        entry = dispatcher.chooser.measured(problem)
        assert entry is not None
        assert {WHOLE, CUBLAS} < entry.times_ns.keys()
        others = entry.times_ns.keys() - {WHOLE, CUBLAS}
        assert {name.partition(":")[0] for name in others} <= {"torch", "cublaslt"}, others
        assert all(1e3 < ns < 1e7 for ns in entry.times_ns.values()), entry.times_ns
        fastest = min(entry.times_ns, key=lambda one: entry.times_ns[one])
        is_faster = entry.times_ns[fastest] < (1 - choosing._TIE) * entry.times_ns[CUBLAS]
        assert entry.choice == (fastest if is_faster else CUBLAS)
        again = runtime.TrialsOnDevice(dispatcher.chooser.table).tried(problem)
        assert again is not None
        print(entry.times_ns, again.times_ns)
        for name, ns in again.times_ns.items():
            assert 0.8 < ns / entry.times_ns[name] < 1.25, "trials agree"
    finally:
        runtime.use_trials(False)


@pytest.mark.parametrize("name", ["matmul_96x2112x7168_bf16t_bf16n_bf16t"])
def test_the_library_proposes_algorithms_that_can_be_named(gpu: Target, name: str) -> None:
    from gemmetry.domain.contracts import ProposingProvider
    from gemmetry.domain.dispatch import parse_operation
    from gemmetry.providers.registry import load_provider

    provider = load_provider("cublaslt")
    if provider.available() is not None:
        pytest.skip("needs cuBLASLt")
    assert isinstance(provider, ProposingProvider)
    operation = parse_operation(name)
    found = list(provider.proposals(operation, gpu))
    assert 1 < len(found) <= 8
    for one in found:
        assert provider.parse_configuration(one.name, operation, gpu) == one


def test_a_changed_kernel_is_not_run(use: Use, gpu: Target) -> None:
    import gemmetry
    from gemmetry.tuning.dispatcher import runtime

    shape = (128, 128, 256)
    use(WHOLE, shape)
    table = runtime._tables[0]
    assert table is not None
    (passed,) = table.certificates
    older = dataclasses.replace(passed, digest="of another source")
    runtime.use_table(dataclasses.replace(table, certificates=(older,)))
    a, b = operands(*shape)
    with pytest.warns(runtime.DispatchWarning, match="is not what the dispatcher's table verified"):
        check(gemmetry.matmul(a, b), a.double() @ b.double())
    assert chosen(a, b) == CUBLAS


@pytest.mark.alone
def test_a_table_of_this_card_has_no_candidate_that_is_fast_and_not_verified(
    gpu: Target, tmp_path: Any
) -> None:
    from contextlib import ExitStack

    from gemmetry.dispatches.profile import read_spec
    from gemmetry.domain.record import ignore_events
    from gemmetry.tuning.dispatcher import runtime
    from gemmetry.tuning.dispatcher.building import NEARLY, prepare_table, tune_table
    from gemmetry.tuning.dispatcher.choosing import Chooser

    spec = read_spec(
        {"shapes": "1x4096x4096, 4095x4097x4093, 2048x2048x2048", "device": gpu.device,
         "experiment": str(tmp_path / "t")}
    )  # fmt: skip
    built = tune_table(prepare_table(spec, 90.0), listener=ignore_events)
    print(*built.notes, sep="\n")
    table, chooser = built.table, Chooser(built.table)
    assert {one.shape for one in table.entries} == {
        (1, 4096, 4096), (4095, 4097, 4093), (2048, 2048, 2048)
    }  # fmt: skip
    waiting = {
        f"{entry.problem.name} by {name}"
        for entry in table.entries
        for name, ns in entry.times_ns.items()
        if ns <= NEARLY * entry.times_ns[CUBLAS] and not chooser.is_eligible(entry.problem, name)
    }
    print(f"{len(table.certificates)} certified; not verified: {sorted(waiting)}")
    assert len(waiting) <= len(table.certificates)
    with ExitStack() as stack:
        stack.callback(runtime.reset)
        stack.callback(runtime._tables.clear)
        runtime.use_table(table)
        ((_, has_kernels, text, _),) = runtime.doctor_lines()[:1]
        assert has_kernels == bool(table.certificates), text
