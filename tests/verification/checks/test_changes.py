from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.record import BuildFacts
from gemmetry.domain.traits import Trait
from gemmetry.numerics.changes import changed_inputs
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification import exact_inputs
from gemmetry.verification.checks import CheckOutcome, changes
from gemmetry.verification.context import Context
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
    assert context.executable.launches >= before + changes.MOST_CHANGES
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


KEYS = {
    "A alone": lambda a, b: a.tobytes(),
    "B alone": lambda a, b: b.tobytes(),
    "sums": lambda a, b: (float(a.sum()), float(b.sum())),
    "sums of rows": lambda a, b: (a.sum(1).tobytes(), b.sum(1).tobytes()),
    "sums of columns": lambda a, b: (a.sum(0).tobytes(), b.sum(0).tobytes()),
    "magnitudes": lambda a, b: (np.abs(a).tobytes(), np.abs(b).tobytes()),
    "squares": lambda a, b: (float((a * a).sum()), float((b * b).sum())),
    "every third element": lambda a, b: (a.ravel()[::3].tobytes(), b.ravel()[::3].tobytes()),
    "first rows": lambda a, b: (a[:4].tobytes(), b[:4].tobytes()),
    "corners": lambda a, b: (a[0, 0], a[-1, -1], b[0, 0], b[-1, -1]),
    "addresses": lambda a, b: (a.ctypes.data, b.ctypes.data),
}


def keeping(key):
    """What answers from memory where `key` is one that it has seen."""
    answers = {}

    def meddle(inputs, output, launch):
        found = answers.setdefault(key(*inputs[:2]), output.copy())
        output[...] = found

    return meddle


@pytest.mark.parametrize("name", KEYS)
def test_whatever_inputs_are_known_by(context_of, name):
    result = changes.check_follows_changes(context_of(NAME, meddle=keeping(KEYS[name])))
    assert result.is_failure
    assert "found again by what did not change" in result.detail


def test_answers_known_by_all_content_are_right(context_of):
    meddle = keeping(lambda a, b: (a.tobytes(), b.tobytes()))
    assert changes.check_follows_changes(context_of(NAME, meddle=meddle)).text == "passed"


def test_wrong_before_anything_changes(context_of):
    context = context_of(NAME, meddle=keeping(lambda a, b: 0))
    assert context.first.output.any()
    result = changes.check_follows_changes(context)
    assert result.outcome is CheckOutcome.NOT_APPLICABLE


def test_without_exact_sums_the_bound_judges(executable_of):
    operation = parse_operation("matmul_8x6x4096_bf16t_bf16t_bf16t_accbf16")
    inputs = make_inputs(operation, distribution="offset_uniform", seed=42)

    def judged(meddle=None, *, has_reference=True):
        launcher = Launcher(executable_of(operation, meddle=meddle), operation)
        reference = compute_reference(operation, inputs) if has_reference else None
        return changes.check_follows_changes(Context(launcher, operation, inputs, reference, 42))

    assert judged().text == "passed"
    assert judged(keeping(lambda a, b: (a.ctypes.data, b.ctypes.data))).is_failure
    assert judged(has_reference=False).outcome is CheckOutcome.NOT_APPLICABLE


def test_outputs_hold_the_result_before(context_of):
    """Whoever takes that for its own, or adds to it, is wrong."""
    found = []

    def look(inputs, output, launch):
        found.append(np.array(output))

    context = context_of(NAME, meddle=look)
    outputs = []
    device, fill = context.launcher.device, context.launcher.device.fill_repeating

    def watched(buffer, values):
        fill(buffer, values)
        outputs.append(np.array(buffer))

    device.fill_repeating = watched
    assert changes.check_follows_changes(context).text == "passed"
    (filled,) = outputs
    assert np.isfinite(filled).all()
    assert len(np.unique(filled)) > filled.size // 2


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
    meddle = keeping(lambda a, b: (a.ctypes.data, b.ctypes.data))
    context = context_of(NAME, device=plain_device, meddle=meddle)
    assert changes.check_follows_changes(context).is_failure


def test_a_returned_object_that_is_no_buffer(context_of):
    context = context_of(NAME, writes_output=False)
    assert context.exact("integers", exact_inputs.integers).is_right
    context.executable.meddle = lambda inputs, output, launch: output.tolist()
    assert "the result is a list" in changes.check_follows_changes(context).detail


def test_convolutions_change_filters_and_images():
    operation = parse_operation(
        "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias_relu_residual"
    )
    inputs = make_inputs(operation, distribution="normal", seed=42)

    class Executable:
        from gemmetry.providers._host_device import HostDevice

        device, facts, writes_output = HostDevice(), BuildFacts(), True

        def run(self, buffers, output):
            value = compute_reference(operation, buffers).value
            output[...] = value.astype(np.float32)
            return output

    context = Context(
        Launcher(Executable(), operation),
        operation,
        inputs,
        compute_reference(operation, inputs),
        42,
    )
    assert changes.check_follows_changes(context).text == "passed"


class TestVersions:
    """Changes by a copy in memory, which move no version counter of torch's."""

    @pytest.fixture
    def executable(self):
        torch = pytest.importorskip("torch")
        from gemmetry.providers._torch_device import TorchDevice

        class ByVersion:
            device, facts, writes_output = TorchDevice("cpu"), BuildFacts(), True
            looks_at_version = True

            def __init__(self):
                self.answers = {}

            def run(self, inputs, output):
                key = tuple((x.data_ptr(), x._version) for x in inputs)
                if not self.looks_at_version or key not in self.answers:
                    self.answers[key] = inputs[0] @ inputs[1]
                return output.copy_(self.answers[key])

        del torch
        return ByVersion()

    @pytest.mark.parametrize("looks_at_version", [True, False])
    def test_a_cache_by_address_and_version(self, executable, looks_at_version):
        executable.looks_at_version = looks_at_version
        operation = parse_operation(NAME)
        inputs = make_inputs(operation, distribution="normal", seed=42)
        reference = compute_reference(operation, inputs)
        context = Context(Launcher(executable, operation), operation, inputs, reference, 42)
        result = changes.check_follows_changes(context)
        assert result.is_failure is looks_at_version

    def test_what_changed_is_what_was_asked_for(self, executable):
        device, operation = executable.device, parse_operation(NAME)
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


def test_changes_are_of_every_operand():
    operation = parse_operation("matmul_24x16x32_e4m3t_e4m3n_bf16t_scalerow_beta2_bias_residual")
    wanted = changes.changes_of(operation)
    assert len(wanted) == changes.MOST_CHANGES
    assert {place for _, place in wanted[: changes.FEWEST_CHANGES]} == {0, 1}
    assert {place for _, place in wanted} == set(range(len(operation.inputs)))
    inputs = make_inputs(operation, distribution="integers", seed=1)
    rng = np.random.default_rng(0)
    for kind, place in wanted:
        change = changes.draw_change(operation, inputs, kind, place, rng)
        changed = changed_inputs(operation, inputs, change)
        for other, (before, after) in enumerate(zip(inputs, changed, strict=True)):
            assert (after is before) is (other != place)
        assert changed[place].tobytes() != inputs[place].tobytes()


def test_whatever_is_added_counts(context_of):
    name = "matmul_24x16x32_f32t_f32t_f32t_bias"
    result = changes.check_follows_changes(
        context_of(name, meddle=keeping(lambda a, b: (a.tobytes(), b.tobytes())))
    )
    assert "of the bias negated" in result.detail
    assert "found again by what did not change" in result.detail
