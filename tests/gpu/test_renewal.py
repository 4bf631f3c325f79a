"""Inputs that change in place on a GPU while verified and between timed rounds. Changes keep the
order of launches, and versions do not show them. Further cases: other streams than the default one,
and results in memory that is used again.

What kernels do wrong here is that of ``torch_callers.py``, around torch's own product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemmetry.domain.contracts import EditableDevice
from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import Verification
from gemmetry.domain.operation import DTYPES, Operation, TensorSpec
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.settings import RunSettings
from gemmetry.measurement.sampler import Sampler
from gemmetry.numerics.inputs import fill_plausibly, make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import to_float64
from gemmetry.verification.after_timing import recheck
from gemmetry.verification.protocol import verify

pytestmark = pytest.mark.gpu

SHORT = "matmul_512x384x256_bf16t_bf16t_bf16t"
LONG = "matmul_4096x4096x8192_f32t_f32t_f32t"
"""A few milliseconds in f32 without tf32."""


class Kernel:
    """torch's product, launched as the kernel called `slug` is ("" for a right one)."""

    def __init__(self, device: Any, slug: str) -> None:
        import torch

        from gemmetry.selftest.torch_callers import wrapped

        def submit(inputs: Any, output: Any) -> None:
            torch.mm(*inputs, out=output)

        self.device, self.facts = device, BuildFacts()
        self._launch, self.writes_output = wrapped(slug, submit)

    def run(self, inputs: Any, output: Any) -> Any:
        return self._launch(inputs, output)

    def close(self) -> None: ...


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_an_edit_changes_its_bytes_and_no_version(device: Any, dtype: Any) -> None:
    has_methods = isinstance(device, EditableDevice)
    assert has_methods
    spec = TensorSpec("lhs", (64, 48), dtype)
    buffer = device.allocate(spec)
    device.fill_bytes(buffer, 0x11)
    before, version = device.download(buffer, spec), buffer._version
    for index in ((slice(3, 4), slice(None)), (slice(None), slice(7, 8))):
        shape = before[index].shape
        codes = np.random.default_rng(1).integers(0, 256, before[index].nbytes, np.uint8)
        if dtype.storage_bits == 4:
            codes &= 0x0F  # One code in each byte.
        part = codes.view(before.dtype)
        edit = device.prepared_edit(buffer, index, part.reshape(shape))
        assert device.download(buffer, spec).tobytes() == before.tobytes()
        edit()
        before = np.array(before)
        before[index] = part.reshape(shape)
        assert device.download(buffer, spec).tobytes() == before.tobytes()
    assert buffer._version == version
    if dtype.name in ("e8m0", "e2m1"):
        return  # The formats of scale factors and of two elements a byte; no result has them.
    fills = []
    for number in range(2):
        fill_plausibly(device, buffer, spec, number)
        fills.append(to_float64(device.download(buffer, spec)))
    assert np.isfinite(fills).all()
    assert (fills[0] != fills[1]).mean() > 0.5


def test_an_edit_waits_for_launches_before_it_and_for_no_host(device: Any) -> None:
    import torch

    operation = parse_operation(SHORT)
    inputs = make_inputs(operation, distribution="integers", seed=1)
    buffers = [device.upload(a, s) for a, s in zip(inputs, operation.inputs, strict=True)]
    outputs = [device.allocate(operation.output) for _ in range(2)]

    def prepared() -> Any:
        return device.prepared_edit(buffers[0], (slice(5, 6), slice(None)), -inputs[0][5:6])

    prepared()  # Pinned memory is allocated once.
    torch.mm(*buffers, out=outputs[0])
    torch.cuda.synchronize()
    torch.cuda._sleep(24_000_000)
    unblocked = torch.cuda.Event()
    unblocked.record()
    torch.mm(*buffers, out=outputs[0])
    prepared()()
    torch.mm(*buffers, out=outputs[1])
    assert not unblocked.query(), "the host waited"
    first, second = (to_float64(device.download(out, operation.output)) for out in outputs)
    assert np.array_equal(second[5], -first[5])
    assert np.array_equal(np.delete(second, 5, 0), np.delete(first, 5, 0))


def _verified(device: Any, name: str, slug: str) -> Any:
    operation = parse_operation(name)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    reference = compute_reference(operation, inputs, matmul=device.float64_matmul())
    return verify(Kernel(device, slug), operation, inputs, reference)


RIGHT = ("", "fork_joined", "new_result_buffer")
WRONG = {
    "cache_by_version": {"follows_changes"},
    "packs_by_version": {"follows_changes"},
    "default_stream": {"unordered_work"},
    "fork_not_joined": {"unordered_work", "follows_changes"},
    "two_result_buffers": {"follows_changes"},
    "three_result_buffers": {"follows_changes"},
}


@pytest.mark.parametrize("name", [SHORT, LONG])
@pytest.mark.parametrize("slug", RIGHT)
def test_right_launches_pass(device: Any, name: str, slug: str) -> None:
    verdict = _verified(device, name, slug)
    assert verdict.status is Verification.PASSED, verdict.reason
    assert verdict.checks["follows_changes"] == verdict.checks["unordered_work"] == "passed"


@pytest.mark.parametrize("name", [SHORT, LONG])
@pytest.mark.parametrize(
    "slug",
    # Next to other processes, work on two streams may happen to be in order.
    [
        pytest.param(slug, marks=[pytest.mark.alone] if "unordered_work" in checks else [])
        for slug, checks in WRONG.items()
    ],
)
def test_wrong_launches_fail(device: Any, name: str, slug: str) -> None:
    verdict = _verified(device, name, slug)
    assert verdict.status is Verification.FAILED
    failed = {check for check, text in verdict.checks.items() if text.startswith("failed")}
    assert failed & WRONG[slug], verdict.checks


@pytest.mark.alone
def test_work_on_the_default_stream_is_found_where_another_one_is_current(device: Any) -> None:
    import torch

    operation = parse_operation(SHORT)
    inputs = make_inputs(operation, distribution="normal", seed=1)
    buffers = [device.upload(a, s) for a, s in zip(inputs, operation.inputs, strict=True)]
    output = device.allocate(operation.output)

    def look(slug: str) -> str:
        kernel = Kernel(device, slug)
        return str(device.unordered_work(lambda: kernel.run(buffers, output), output))

    assert "another stream than the default one is current" in look("default_stream")
    assert look("") == look("fork_joined") == ""
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def _timed(
    device: Any, operation: Operation, slug: str, method: str, *, cold_cache: bool = True
) -> tuple[str, Any]:
    """What timing used, and the check on what it left."""
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    settings = RunSettings(time_budget_s=0.5, timing_method=method, cold_cache=cold_cache)
    sampler = Sampler(Kernel(device, slug), operation, inputs, settings)
    sampler.prepare()
    for _ in range(4):
        found = sampler.sample_round(20)
    reference = compute_reference(operation, inputs, matmul=device.float64_matmul())
    check = recheck(operation, sampler.recheck(), lambda: reference, inputs=inputs)
    sampler.close()
    return found.method, check


@pytest.mark.parametrize("cold_cache", [True, False])
@pytest.mark.parametrize("method", ["graph", "events"])
@pytest.mark.parametrize("slug", ["", "new_result_buffer", "fork_joined"])
def test_right_timed_launches_pass(device: Any, slug: str, method: str, cold_cache: bool) -> None:
    used, check = _timed(device, parse_operation(SHORT), slug, method, cold_cache=cold_cache)
    assert used == method
    assert check.text == "passed"


@pytest.mark.alone  # The stream and the device disagree where other processes launch as well.
@pytest.mark.parametrize("cold_cache", [True, False])
@pytest.mark.parametrize(
    ("slug", "method"),
    [
        ("cache_by_version", "graph"),
        ("cache_by_version", "events"),
        ("packs_by_version", "graph"),
        ("packs_by_version", "events"),
        ("copies_in_graphs", "graph"),
    ],
)
def test_timed_launches_that_answer_from_memory_are_wrong(
    device: Any, slug: str, method: str, cold_cache: bool
) -> None:
    used, check = _timed(device, parse_operation(SHORT), slug, method, cold_cache=cold_cache)
    assert used == method
    assert check.is_failure


def test_a_replay_that_does_nothing_where_results_are_returned(device: Any) -> None:
    """The eager launch is right, and what is captured returns memory that nothing fills."""
    import torch

    kernel = Kernel(device, "new_result_buffer")
    honest = kernel._launch
    last: list[Any] = []

    def launch(inputs: Any, output: Any) -> Any:
        if torch.cuda.is_current_stream_capturing() and last:
            return torch.empty_like(output).copy_(last[0])
        last[:] = [honest(inputs, output)]
        return last[0]

    kernel._launch = launch
    operation = parse_operation(SHORT)
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)
    settings = RunSettings(time_budget_s=0.5, timing_method="graph")
    sampler = Sampler(kernel, operation, inputs, settings)
    sampler.prepare()
    assert sampler.sample_round(10).method == "graph"
    reference = compute_reference(operation, inputs)
    check = recheck(operation, sampler.recheck(), lambda: reference, inputs=inputs)
    assert check.is_failure
    assert "the result for the previous inputs" in check.detail
