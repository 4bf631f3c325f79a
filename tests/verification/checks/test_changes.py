from __future__ import annotations

import numpy as np
import pytest
from tests.verification.conftest import addresses, assert_fails, keeping

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification.checks import CheckOutcome, changes
from gemmetry.verification.context import Context
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.launching import Launcher

NAME = "matmul_24x16x32_f32t_f32t_f32t"
ROUNDING = "matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16"

RIGHT = (
    NAME, "matmul_1x16x32_bf16t_bf16n_bf16n", "matmul_24x1x32_f16t_f16t_f32t_beta1",
    "matmul_24x16x32_f32t_f32n_f32t_alpha0p7_bias_gelu", "matmul_24x16x32_s8t_s8n_s32t",
    "matmul_24x16x32_s8t_s8n_s32t_beta1", "matmul_24x16x32_f32t_f32t_f32t_bias",
    "matmul_24x16x32_f32t_f32t_f32t_beta1_residual",
    "matmul_24x16x32_e4m3t_e4m3n_bf16t_scalerow_residual_relu", ROUNDING,
    "batch_matmul_3x12x8x16_f32n_f32t_f32n", "matmul_2x2x1_f32t_f32t_f32t",
)  # fmt: skip


@pytest.mark.parametrize("writes_output", [True, False])
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_follow(context_of, name, writes_output):
    context = context_of(name, writes_output=writes_output)
    assert context.first.output.any()
    before = context.executable.launches
    assert changes.check_follows_changes(context).text == "passed"
    assert context.executable.launches >= before + len(changes.changes_of(context.operation))
    # What changed is as it was: the launches after this one are on the same inputs.
    for spec, buffer, array in zip(
        context.operation.inputs, context._other.buffers, context._other.arrays, strict=True
    ):
        assert context.launcher.device.download(buffer, spec).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "trait", [Trait.STOCHASTIC_ROUNDING, Trait.NORMWISE, Trait.TF32, Trait.NONDETERMINISTIC]
)
def test_what_is_declared_counts(context_of, trait):
    context = context_of(NAME, facts=BuildFacts(declared=(trait,)))
    assert changes.check_follows_changes(context).text == "passed"


def as_key(found):
    """The bytes of arrays and numbers."""
    if isinstance(found, tuple | list):
        return [as_key(one) for one in found]
    return np.asarray(found).tobytes()


def each(of):
    """The key of all operands, by what `of` makes of one, in float64."""
    return lambda inputs: as_key([of(array.astype(np.float64)) for array in inputs])


def both_sums(x):
    return x.sum(0), x.sum(-1)


KEYS = {
    "A alone": lambda inputs: inputs[0].tobytes(),
    "B alone": lambda inputs: inputs[1].tobytes(),
    "all but the last operand": lambda inputs: [x.tobytes() for x in inputs[:-1]],
    "exclusive or": lambda inputs: [
        int(np.bitwise_xor.reduce(x.reshape(-1).view(np.uint8))) for x in inputs
    ],
    "hashes of rows in any order": lambda inputs: [
        sum(hash(r.tobytes()) for r in x) for x in inputs
    ],
    "addresses": addresses,
    **{name: each(of) for name, of in {
        "sums": lambda x: x.sum(),
        "sums of rows": lambda x: x.sum(-1),
        "sums of columns": lambda x: x.sum(0),
        "sums of rows and columns": both_sums,
        "both sums and the norm": lambda x: (*both_sums(x), (x * x).sum()),
        "both sums and magnitudes": lambda x: (*both_sums(x), np.abs(x)),
        "sorted rows and columns": lambda x: (np.sort(x, 0), np.sort(x, -1)),
        "sorted values": lambda x: np.sort(x.ravel()),
        "a checksum weighted by position": lambda x: (x.sum(), x.ravel() @ np.arange(x.size)),
        "magnitudes": np.abs,
        "squares": lambda x: (x * x).sum(),
        "norms of rows and columns": lambda x: both_sums(x * x),
        "least and largest": lambda x: (x.min(), x.max()),
        "products of columns": lambda x: x.T @ x,
        "every second element": lambda x: x.ravel()[::2],
        "every second from the second": lambda x: x.ravel()[1::2],
        "every third element": lambda x: x.ravel()[::3],
        "first rows": lambda x: x[:4],
        "first and last lines of memory": lambda x: x.ravel()[[*range(16), *range(-16, 0)]],
        "edges": lambda x: (x[:3], x[-3:], x[..., :3], x[..., -3:]),
        "all but the end": lambda x: x.ravel()[:-5],
        "diagonal": lambda x: x.diagonal() if x.ndim > 1 else x[:1],
    }.items()},
}  # fmt: skip
"""What is looked at of the inputs."""

ADDING = "matmul_24x16x32_bf16t_bf16t_bf16t_beta1_residual_relu"


@pytest.mark.parametrize(("name", "most"), [(NAME, None), (NAME, 1), (ADDING, 1)])
@pytest.mark.parametrize("key", KEYS)
def test_whatever_inputs_are_known_by(context_of, key, name, most):
    result = changes.check_follows_changes(context_of(name, meddle=keeping(KEYS[key], most=most)))
    assert_fails(result, "found again by what did not change")


@pytest.mark.parametrize(("key", "outcome"), [
    (lambda inputs: [x.tobytes() for x in inputs], CheckOutcome.PASSED),
    (lambda inputs: 0, CheckOutcome.NOT_APPLICABLE),
])  # fmt: skip
def test_answers_known_by_all_content_are_right_and_those_of_one_show_nothing_of_changes(
    context_of, key, outcome
):
    context = context_of(NAME, meddle=keeping(key))
    assert context.first.output.any()
    assert changes.check_follows_changes(context).outcome is outcome


@pytest.mark.parametrize(("name", "place"), [
    *((f"{ADDING}_bias", place) for place in range(5)),
    *(("matmul_24x16x32_e4m3t_e4m3n_bf16t_scalerow", place) for place in range(4)),
    *(("matmul_24x16x32_e4m3t_e4m3n_bf16t_scaletensor_gelu", place) for place in range(4)),
])  # fmt: skip
@pytest.mark.parametrize("sees", ["nothing", "both sums"])
def test_all_operands_count(context_of, name, place, sees):
    """A cache by all of the other operands, and by nothing or little of one."""

    def key(inputs):
        return [seen(x.astype(np.float64)) if x is inputs[place] else x.tobytes() for x in inputs]

    def seen(x):
        if sees == "nothing":
            return 0
        return as_key(both_sums(x)) if min(x.shape) > 1 else x.sum()

    result = changes.check_follows_changes(context_of(name, meddle=keeping(key, most=1)))
    single = "scaletensor" in name and place > 1
    assert result.is_failure is not (single and sees != "nothing")


@pytest.mark.parametrize(("how", "outcome"), [
    ({}, CheckOutcome.PASSED), ({"meddle": keeping(addresses)}, CheckOutcome.FAILED),
    ({"has_reference": False}, CheckOutcome.NOT_APPLICABLE),
])  # fmt: skip
def test_without_exact_sums_the_bound_judges(context_of, how, outcome):
    context = context_of(ROUNDING, distribution="offset_uniform", **how)
    assert changes.check_follows_changes(context).outcome is outcome


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("declared", [(), (Trait.REUSES_RESULTS,)])
def test_results_in_a_few_buffers_of_its_own(context_of, count, declared):
    own = {}

    def in_turn(inputs, output, launch):
        kept = own.setdefault(launch % count, output)
        kept[...] = output
        return kept

    facts = BuildFacts(declared=declared)
    context = context_of(NAME, meddle=in_turn, writes_output=False, facts=facts)
    result = changes.check_follows_changes(context)
    assert result.text == "passed" if declared else "overwritten by a later call" in result.detail


@pytest.mark.parametrize("meddle", [None, keeping(addresses)])
def test_a_device_that_cannot_edit_is_written_whole(context_of, plain_device, meddle):
    result = changes.check_follows_changes(context_of(NAME, device=plain_device, meddle=meddle))
    assert result.outcome is (CheckOutcome.FAILED if meddle else CheckOutcome.PASSED)


def test_a_returned_object_that_is_not_a_buffer(context_of):
    context = context_of(NAME, writes_output=False)
    assert context.exact("integers", exact_inputs.integers).is_right
    context.executable.meddle = lambda inputs, output, launch: output.tolist()
    assert "the result is a list" in changes.check_follows_changes(context).detail


def test_convolutions_change_filters_and_images(context_of):
    name = "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu_residual"
    context = context_of(name)

    def run(buffers, output):
        output[...] = compute_reference(context.operation, buffers).value.astype(np.float32)
        return output

    context.executable.run = run
    assert changes.check_follows_changes(context).text == "passed"


class ByVersion:
    """A cache by address and version; a copy in memory moves no version counter of torch's."""

    facts, writes_output = BuildFacts(), True

    def __init__(self, looks_at_version=True):
        pytest.importorskip("torch")
        from gemmetry.hardware.torch_device import TorchDevice

        self.device, self.looks_at_version, self.answers = TorchDevice("cpu"), looks_at_version, {}

    def run(self, inputs, output):
        key = tuple((x.data_ptr(), x._version) for x in inputs)
        if not self.looks_at_version or key not in self.answers:
            self.answers[key] = inputs[0] @ inputs[1]
        return output.copy_(self.answers[key])


@pytest.mark.parametrize("looks_at_version", [True, False])
def test_a_cache_by_address_and_version(looks_at_version):
    operation = parse_operation(NAME)
    inputs = make_inputs(operation, distribution="normal", seed=42)
    reference = compute_reference(operation, inputs)
    launcher = Launcher(ByVersion(looks_at_version), operation)
    result = changes.check_follows_changes(Context(launcher, operation, inputs, reference, 42))
    assert result.is_failure is looks_at_version


def test_what_changed_is_what_was_requested():
    device, operation = ByVersion().device, parse_operation(NAME)
    spec, array = operation.inputs[0], make_inputs(operation, distribution="normal", seed=1)[0]
    buffer = device.upload(array, spec)
    version = buffer._version
    edit = device.prepared_edit(buffer, (slice(3, 4), slice(None)), -array[3:4])
    assert device.download(buffer, spec).tobytes() == array.tobytes()
    edit()
    wanted = np.array(array)
    wanted[3] *= -1
    assert device.download(buffer, spec).tobytes() == wanted.tobytes()
    assert buffer._version == version
