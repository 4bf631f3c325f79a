from __future__ import annotations

import pytest

from gemmetry.domain.errors import UnsupportedError
from gemmetry.verification import launching
from gemmetry.verification.checks import CheckOutcome, calls
from gemmetry.verification.companions import Companions

NAME = "matmul_32x32x32_f32t_f32n_f32t"
TILE = (16, 16, 8)


@pytest.fixture(autouse=True)
def without_deadlines(monkeypatch):
    """However busy the machine is."""
    monkeypatch.setattr(calls, "LONGEST_S", {False: 600.0, True: 600.0})


@pytest.fixture
def check(context_of, executable_of):
    """check(name, kernel or meddle, ...) -> result; what is built is in check.built."""

    def run(name=NAME, build=None, **how):
        def make(operation):
            run.built.append(executable_of(operation, **how))
            return run.built[-1]

        run.built = []
        companions = Companions(build or make, TILE)
        return calls.check_many_calls(context_of(name, companions=companions))

    return run


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        "batch_matmul_2x32x32x32_bf16n_bf16t_bf16n_bias_relu",
        "matmul_splitk_32x32x32_f16t_f16n_f16t_slices4",
        "matmul_32x32x32_e4m3t_e4m3n_bf16t_scalerow",
        "matmul_32x32x32_s8t_s8n_s32t",
        "matmul_32x32x32_f32t_f32t_f32t_alpha0p3_beta1p7_gelu",
    ],
)
def test_right_kernels_pass_a_few_hundred_launches(check, name):
    result = check(name)
    assert result.outcome is CheckOutcome.PASSED, result.detail
    (executable,) = check.built
    assert calls.FEWEST <= executable.launches < calls.MOST


def test_how_many_calls_there_are_is_drawn(check, context_of, executable_of, monkeypatch):
    counts = set()
    for seed in range(4):
        made = []

        def build(operation, made=made):
            made.append(executable_of(operation))
            return made[-1]

        context = context_of(NAME, companions=Companions(build, TILE))
        context.seed = seed
        assert calls.check_many_calls(context).outcome is CheckOutcome.PASSED
        counts.add(made[0].launches)
    assert len(counts) > 1


def test_fewer_slow_launches_are_tried_and_that_is_reported(check, monkeypatch):
    monkeypatch.setattr(calls, "LONGEST_S", {False: 0.0, True: 0.0})
    result = check()
    assert result.outcome is CheckOutcome.INCOMPLETE
    assert result.detail.startswith(f"{calls.TRIED} of ")


def test_a_slow_start_or_a_busy_machine_cuts_nothing_short(check, monkeypatch):
    """All launches but the seventh take twenty times as long as all together may."""

    class Clock:
        now, step_s = 0.0, 1.0

        def perf_counter(self):
            self.now += self.step_s
            self.step_s = 1.0
            return self.now

    clock = Clock()
    monkeypatch.setattr(launching, "time", clock)
    monkeypatch.setattr(calls, "LONGEST_S", {False: 0.05, True: 0.05})

    def meddle(inputs, output, launch):
        if launch == 7:
            clock.step_s = 1e-4

    assert check(meddle=meddle).outcome is CheckOutcome.PASSED


def test_an_exception_of_wrong_code_is_failed(check):
    def stumble(inputs, output, launch):
        if launch == 70:
            raise ZeroDivisionError("division by zero")

    result = check(meddle=stumble)
    assert result.is_failure
    assert "raised ZeroDivisionError: division by zero, which is a bug" in result.detail


def test_a_refused_tile_does_not_apply(check):
    def build(operation):
        raise UnsupportedError("tiles are not supported")

    result = check(build=build)
    assert result.outcome is CheckOutcome.NOT_APPLICABLE
    assert "tiles are not supported" in result.detail
    assert check(build=lambda operation: None).outcome is CheckOutcome.NOT_APPLICABLE
