from __future__ import annotations

import numpy as np
import pytest

from gemmetry.domain.names import parse_operation
from gemmetry.domain.traits import Trait
from gemmetry.numerics.changes import ChangeKind, changed_inputs, draw_change
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference, to_logical, to_storage
from gemmetry.numerics.storage import quantize
from gemmetry.verification import after_timing
from gemmetry.verification.after_timing import recheck

BF16 = "matmul_128x128x512_bf16t_bf16t_bf16t"
NAMES = (
    BF16,
    "matmul_33x17x65_f32n_f32t_f32n_bias_gelu",
    "matmul_33x17x65_s8t_s8n_s32t_beta1",
    "matmul_33x17x64_e4m3t_e4m3n_bf16t_scalerow_residual_relu",
    "batch_matmul_3x12x8x16_f16n_f16t_f16n",
    "matmul_1x17x65_f32t_f32t_f32t",
    "conv2d_2x9x17x3_3x2x50_stride2x1_pad1x0_f32nhwc_f32hwcf_f32nhwc_bias",
)


class Case:
    """An operation with right outputs, before and after a change."""

    def __init__(self, name, place=0, seed=1):
        self.operation = parse_operation(name)
        self.inputs = make_inputs(self.operation, distribution="offset_uniform", seed=42)
        self.reference = compute_reference(self.operation, self.inputs)
        rng = np.random.default_rng(seed)
        self.change = draw_change(self.operation, self.inputs, ChangeKind.NEGATED, place, rng)
        self.good = self.rounded(self.reference)
        changed = changed_inputs(self.operation, self.inputs, self.change)
        self.changed = self.rounded(compute_reference(self.operation, changed))

    def rounded(self, reference):
        spec = self.operation.output
        value = reference.value
        value = value if spec.dtype.is_integer else quantize(value, spec.dtype)
        return to_storage(value.astype(quantize(np.zeros(1), spec.dtype).dtype), spec)

    def check(self, *outputs, has_reference=True, **how):
        reference = self.reference if has_reference else None
        return recheck(self.operation, outputs, reference, inputs=self.inputs, **how)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_of_changed_inputs(name, place):
    case = Case(name, place)
    good, changed = ("0", case.good, None), ("1", case.changed, case.change)
    assert case.check(good, changed).text == "passed"
    assert case.check(changed, good).text == "passed"
    assert case.check(changed).text == "passed"
    stale = case.check(good, ("1", case.good, case.change))
    assert stale.is_failure
    assert "what the inputs held before" in stale.detail
    assert case.check(("1", case.changed, None)).is_failure
    # Elsewhere than in the line that changed.
    for first in ((), (good,)):
        spoiled = np.array(case.changed)
        axis = -1 if place else -2 if len(case.operation.output.shape) < 4 else 0
        other = np.moveaxis(to_logical(spoiled, case.operation.output), axis, 0)
        line = (case.change.lines[0] + 1) % other.shape[0]
        other[line] = 0
        if other.shape[0] > 1:
            result = case.check(*first, ("1", spoiled, case.change))
            assert result.is_failure, (name, place)
            assert "elements are wrong" in result.detail


def test_without_a_reference():
    case = Case(BF16)
    assert case.check(("0", case.changed, case.change), has_reference=False).text == "passed"
    assert case.check(("0", case.good, case.change), has_reference=False).is_failure


def test_a_change_is_not_computed_with_the_whole(monkeypatch):
    """Beside a right output of the unchanged inputs only the line is looked at."""
    case, looked_at = Case(BF16), []
    compare = after_timing.compare

    def counted(operation, output, *rest, **how):
        looked_at.append(output.size)
        return compare(operation, output, *rest, **how)

    monkeypatch.setattr(after_timing, "compare", counted)
    assert case.check(("0", case.good, None), ("1", case.changed, case.change)).text == "passed"
    assert looked_at == [128 * 128, 128]


def test_what_is_declared_holds_for_lines():
    case = Case("matmul_64x64x64_f32t_f32t_f32t")
    norm = np.sqrt(64) * 1e-6 * 64
    spread = np.array(case.changed) + np.float32(norm)
    outputs = ("1", spread, case.change)
    assert case.check(outputs).is_failure
    assert case.check(outputs, declared=(Trait.NORMWISE,)).text == "passed"


def test_every_output_counts():
    case = Case(BF16)
    bad = case.good.copy()
    bad[3, 4] = 0
    good = ("0", case.good, None)
    assert case.check(good, good).text == "passed"
    result = case.check(good, ("output 1", bad, None), good)
    assert result.detail.startswith("output 1: 1 of 16384 elements are wrong")


def test_form_is_checked():
    case = Case(BF16)
    assert "float32" in case.check(("0", case.good.astype(np.float32), None)).detail
