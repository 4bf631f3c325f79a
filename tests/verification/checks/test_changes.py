from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.record import BuildFacts, Trait
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification.checks import CheckOutcome, changes
from gemmetry.verification.context import Context
from gemmetry.verification.inputs import exact as exact_inputs
from gemmetry.verification.launching import Launcher

NAME = "matmul_24x16x32_f32t_f32t_f32t"

RIGHT = (
    NAME,
    "matmul_1x16x32_bf16t_bf16n_bf16n",
    "matmul_24x1x32_f16t_f16t_f32t_beta1",
    "matmul_24x16x32_f32t_f32n_f32t_alpha0p7_bias_gelu",
    "matmul_24x16x32_s8t_s8n_s32t",
    "matmul_24x16x32_s8t_s8n_s32t_beta1",
    "matmul_24x16x32_f32t_f32t_f32t_bias",
    "matmul_24x16x32_f32t_f32t_f32t_beta1_residual",
    "matmul_24x16x32_e4m3t_e4m3n_bf16t_scalerow_residual_relu",
    "matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16",
    "batch_matmul_3x12x8x16_f32n_f32t_f32n",
    "matmul_2x2x1_f32t_f32t_f32t",
)


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


def each(of):
    """The key of all operands, by what `of` makes of one, in float64."""
    return lambda inputs: tuple(of(array.astype(np.float64)) for array in inputs)


def both_sums(x):
    return x.sum(0).tobytes(), x.sum(-1).tobytes()


KEYS = {
    "A alone": lambda inputs: inputs[0].tobytes(),
    "B alone": lambda inputs: inputs[1].tobytes(),
    "all but the last operand": lambda inputs: [x.tobytes() for x in inputs[:-1]],
    "sums": each(lambda x: x.sum()),
    "sums of rows": each(lambda x: x.sum(-1).tobytes()),
    "sums of columns": each(lambda x: x.sum(0).tobytes()),
    "sums of rows and columns": each(both_sums),
    "both sums and the norm": each(lambda x: (both_sums(x), (x * x).sum())),
    "both sums and magnitudes": each(lambda x: (both_sums(x), np.abs(x).tobytes())),
    "sorted rows and columns": each(lambda x: (np.sort(x, 0).tobytes(), np.sort(x, -1).tobytes())),
    "sorted values": each(lambda x: np.sort(x.ravel()).tobytes()),
    "a checksum weighted by position": each(lambda x: (x.sum(), x.ravel() @ np.arange(x.size))),
    "exclusive or": lambda inputs: [
        int(np.bitwise_xor.reduce(x.reshape(-1).view(np.uint8))) for x in inputs
    ],
    "hashes of rows in any order": lambda inputs: [
        sum(hash(r.tobytes()) for r in x) for x in inputs
    ],
    "magnitudes": each(lambda x: np.abs(x).tobytes()),
    "squares": each(lambda x: (x * x).sum()),
    "norms of rows and columns": each(lambda x: both_sums(x * x)),
    "least and largest": each(lambda x: (x.min(), x.max())),
    "products of columns": each(lambda x: (x.T @ x).tobytes() if x.ndim > 1 else x @ x),
    "every second element": each(lambda x: x.ravel()[::2].tobytes()),
    "every second from the second": each(lambda x: x.ravel()[1::2].tobytes()),
    "every third element": each(lambda x: x.ravel()[::3].tobytes()),
    "first rows": each(lambda x: x[:4].tobytes()),
    "first and last lines of memory": each(
        lambda x: x.ravel()[[*range(16), *range(-16, 0)]].tobytes()
    ),
    "edges": each(lambda x: [part.tobytes() for part in (x[:3], x[-3:], x[..., :3], x[..., -3:])]),
    "all but the end": each(lambda x: x.ravel()[:-5].tobytes()),
    "diagonal": each(lambda x: (x.diagonal() if x.ndim > 1 else x[:1]).tobytes()),
    "addresses": lambda inputs: [(x.ctypes.data, x.shape) for x in inputs],
}
"""What is looked at of the inputs."""

ADDING = "matmul_24x16x32_bf16t_bf16t_bf16t_beta1_residual_relu"


def keeping(key, *, most=None):
    """An executable that answers from memory where it has seen the `key`, among the last `most`."""
    answers = {}

    def meddle(inputs, output, launch):
        known = repr(key(inputs))
        if known not in answers:
            while most is not None and len(answers) >= most:
                answers.pop(next(iter(answers)))
            answers[known] = output.copy()
        output[...] = answers[known]

    return meddle


@pytest.mark.parametrize(("name", "most"), [(NAME, None), (NAME, 1), (ADDING, 1)])
@pytest.mark.parametrize("key", KEYS)
def test_whatever_inputs_are_known_by(context_of, key, name, most):
    result = changes.check_follows_changes(context_of(name, meddle=keeping(KEYS[key], most=most)))
    assert result.is_failure
    assert "found again by what did not change" in result.detail


def test_answers_known_by_all_content_are_right_and_those_of_one_show_nothing_of_changes(
    context_of,
):
    meddle = keeping(lambda inputs: [x.tobytes() for x in inputs])
    assert changes.check_follows_changes(context_of(NAME, meddle=meddle)).text == "passed"
    context = context_of(NAME, meddle=keeping(lambda inputs: 0))
    assert context.first.output.any()
    assert changes.check_follows_changes(context).outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((f"{ADDING}_bias", place) for place in range(5)),
        *(("matmul_24x16x32_e4m3t_e4m3n_bf16t_scalerow", place) for place in range(4)),
        *(("matmul_24x16x32_e4m3t_e4m3n_bf16t_scaletensor_gelu", place) for place in range(4)),
    ],
)
@pytest.mark.parametrize("sees", ["nothing", "both sums"])
def test_all_operands_count(context_of, name, place, sees):
    """A cache by all of the other operands, and by nothing or little of one."""

    def key(inputs):
        return [seen(x.astype(np.float64)) if x is inputs[place] else x.tobytes() for x in inputs]

    def seen(x):
        if sees == "nothing":
            return 0
        return both_sums(x) if min(x.shape) > 1 else x.sum()

    result = changes.check_follows_changes(context_of(name, meddle=keeping(key, most=1)))
    single = "scaletensor" in name and place > 1
    assert result.is_failure is not (single and sees != "nothing")


def test_without_exact_sums_the_bound_judges(executable_of):
    operation = parse_operation("matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16")
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)

    def judged(meddle=None, *, has_reference=True):
        launcher = Launcher(executable_of(operation, meddle=meddle), operation)
        reference = compute_reference(operation, inputs) if has_reference else None
        return changes.check_follows_changes(Context(launcher, operation, inputs, reference, 42))

    assert judged().text == "passed"
    assert judged(keeping(KEYS["addresses"])).is_failure
    assert judged(has_reference=False).outcome is CheckOutcome.NOT_APPLICABLE


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_results_in_a_few_buffers_of_its_own(context_of, count):
    own = {}

    def in_turn(inputs, output, launch):
        kept = own.setdefault(launch % count, output)
        kept[...] = output
        return kept

    context = context_of(NAME, meddle=in_turn, writes_output=False)
    result = changes.check_follows_changes(context)
    assert "overwritten by a later call" in result.detail
    own.clear()
    facts = BuildFacts(declared=(Trait.REUSES_RESULTS,))
    context = context_of(NAME, meddle=in_turn, writes_output=False, facts=facts)
    assert changes.check_follows_changes(context).text == "passed"


def test_a_device_that_cannot_edit_is_written_whole(context_of, plain_device):
    assert changes.check_follows_changes(context_of(NAME, device=plain_device)).text == "passed"
    meddle = keeping(KEYS["addresses"])
    context = context_of(NAME, device=plain_device, meddle=meddle)
    assert changes.check_follows_changes(context).is_failure


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
