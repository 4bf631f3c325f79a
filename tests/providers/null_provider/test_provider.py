from __future__ import annotations

import re
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.conftest import dispatch_of

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Target, TargetKind, parse_operation, split_dispatch_name
from gemmetry.domain.errors import (
    CompileError,
    DeviceLostError,
    LaunchError,
    OutOfMemoryError,
    UnknownNameError,
    UnsupportedError,
)
from gemmetry.providers.null_provider.provider import (
    Behaviour,
    BehaviourKind,
    NullProvider,
    parse_behaviour,
    simulated_ns,
)

NULL = Target(TargetKind.NULL)
NAME = "matmul_16x12x8_f32t_f32t_f32t"
OPERATION = parse_operation(NAME)

CASES = [
    *((NAME, one) for one in (
        "default", "fast", "factor_1p5", "noisy_20", "slow_1", "chatty", "device_lost_2", "flaky",
        "late", "mutate_inputs", "out_of_bounds",
    )),
    *((name, "default") for name in (
        "matmul_16x12x8_f16t_f16n_f16n_accf16_bias_gelu",
        "matmul_16x12x8_tf32t_tf32t_f32t",
        "matmul_16x12x8_e4m3t_e5m2n_bf16t_scalerow_beta2",
        "matmul_splitk_16x12x8_bf16t_bf16t_bf16t_slices4_residual",
        "batch_matmul_3x16x12x8_s8t_s8n_s32n",
        "conv2d_1x8x8x4_3x3x4_stride2x2_pad1x1_f16nhwc_f16hwcf_f16nhwc_relu",
    )),
]  # fmt: skip


@pytest.fixture
def launched(launch):
    """Launches a configuration, and returns what launches it again on the same buffers as well."""

    def run(configuration, name=NAME):
        found = launch(NullProvider(), name, configuration, NULL)
        return found, lambda: found.executable.run(found.buffers, found.output)

    return run


def make(configuration):
    return dispatch_of(NullProvider(), NAME, configuration, NULL)


def test_every_behaviour_and_option_is_documented():
    page = (Path(__file__).parents[3] / "docs" / "null-provider.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)", page, re.MULTILINE)
    names = {row.removesuffix("_") for row in rows}
    assert names >= {str(kind) for kind in BehaviourKind}
    options = re.findall(r"^    ``(\w+)``:", NullProvider.__doc__ or "", re.MULTILINE)
    assert len(options) >= 3
    assert names >= set(options)


# What is listed


def test_only_default_and_fast_are_listed_unless_requested():
    def names(*requested):
        provider = NullProvider({"configurations": requested})
        return [c.name for c in provider.configurations(OPERATION, NULL)]

    assert names() == ["default", "fast"]
    assert names("wrong", "fast", "slow_5") == ["default", "fast", "wrong", "slow_5"]
    with pytest.raises(UnknownNameError, match="hang"):
        names("hangs")


def test_options_make_it_unavailable_or_unsupported_or_many():
    assert NullProvider().available() is None
    assert NullProvider({"unavailable": "no licence"}).available() == "no licence"
    provider = NullProvider({"unsupported": ["matmul"], "devices": 2})
    assert "matmul" in (provider.supports(OPERATION, NULL) or "")
    assert [target.device for target in provider.targets()] == ["null:0", "null:1"]
    assert NullProvider().supports(OPERATION, Target(TargetKind.CPU)) is not None


@pytest.mark.parametrize(("name", "configuration"), CASES)
def test_every_operation_and_every_right_configuration_is_right(launched, name, configuration):
    assert NullProvider().supports(parse_operation(name), NULL) is None
    found, _ = launched(configuration, name)
    assert found.worst_error() <= 1.01 * found.operation.signature.result.unit_roundoff


# Wrong results


@pytest.mark.parametrize("name", [NAME, "matmul_16x12x8_s8t_s8t_s32t"])
@pytest.mark.parametrize("configuration", ["wrong", "wrong_nan"])
def test_wrong_configurations_are_wrong(launched, name, configuration):
    good, bad = (launched(one, name)[0].host_result for one in ("default", configuration))
    assert np.count_nonzero(good != bad) == (good.size if configuration == "wrong" else 1)


@pytest.mark.parametrize("result", ["t", "n"])
def test_partial_leaves_the_last_row_unwritten(launched, result):
    logical = launched("partial", f"matmul_16x12x8_f32t_f32t_f32{result}")[0].logical_result()
    assert np.isnan(logical[-1]).all()
    assert np.isfinite(logical[:-1]).all()


def test_late_is_wrong_once_the_device_has_timed_it(launched):
    found, again = launched("late")
    for _ in range(100):
        again()
    assert found.worst_error() < 1e-6
    found.executable.device.time_calls([again])
    assert found.worst_error() > 1e-2


def test_mutate_inputs_changes_one_bit_of_a(launched):
    found, _ = launched("mutate_inputs")
    before, after = (x.view(np.uint8).ravel() for x in (found.inputs[0], found.buffers[0]))
    assert np.unpackbits(before ^ after).sum() == 1


def test_out_of_bounds_writes_behind_its_output(launched):
    found, _ = launched("out_of_bounds")
    assert not found.executable.device.red_zones_intact(found.output)


# Time


def _durations(launched, configuration, count=200):
    found, again = launched(configuration)
    return found.executable.device.time_calls([again] * count)


@pytest.mark.parametrize(
    ("name", "factor", "percent"),
    [("default", 1, 0.5), ("fast", 0.8, 0.5), ("factor_3", 3, 0.5), ("noisy_20", 1, 20)],
)
def test_time_is_simulated_as_named_and_the_same_in_every_run(launched, name, factor, percent):
    (first, method), (second, _) = (_durations(launched, name) for _ in range(2))
    assert method == "simulated"
    assert first == second
    assert len(set(first)) > 100
    ideal = factor * simulated_ns(OPERATION, Behaviour())
    assert 0.8 * percent / 100 < np.abs(np.array(first) / ideal - 1).max() <= percent / 100


def test_simulated_time_follows_the_roofline():
    large = parse_operation("matmul_4096x4096x4096_f16t_f16t_f16t")
    assert simulated_ns(large, Behaviour()) == pytest.approx(2 * 4096**3 / 1000 + 2000)
    skinny = parse_operation("matmul_1x4096x4096_f16t_f16t_f16t")
    assert simulated_ns(skinny, Behaviour()) == pytest.approx(skinny.bytes / 100 + 2000)


def test_slow_really_sleeps_and_is_predicted(launched):
    began = time.perf_counter()
    (duration,), _ = _durations(launched, "slow_30", 1)
    assert time.perf_counter() - began >= 0.06, "it is launched twice"
    assert duration >= 0.99 * 30e6
    assert NullProvider().seconds_per_launch(make("slow_30")) == pytest.approx(0.03, rel=0.01)


# Errors


@pytest.mark.parametrize(
    ("configuration", "error"),
    [("launch_error", LaunchError), ("out_of_memory", OutOfMemoryError), ("raises", RuntimeError),
     ("leak", MemoryError), ("unsupported", UnsupportedError), ("compile_error", CompileError)],
)  # fmt: skip
def test_configurations_that_raise_leave_the_process_as_it_was(launched, configuration, error):
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(error):
        launched(configuration)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert np.ones(2**20).sum() == 2**20


def test_flaky_fails_every_second_time(launched):
    _, again = launched("flaky")
    for _ in range(3):
        with pytest.raises(LaunchError):
            again()
        again()


def test_a_lost_device_is_noticed_after_its_launches(launched):
    found, again = launched("device_lost_3")
    again()
    found.executable.device.synchronize()
    again()
    with pytest.raises(DeviceLostError):
        found.executable.device.synchronize()


def test_chatty_writes_to_both_outputs(launched, capfd):
    launched("chatty")
    for text in capfd.readouterr():
        assert "output of the simulated kernel" in text


# Compiling ahead


def test_one_rejected_configuration_costs_no_other(workspace):
    provider = NullProvider({"seconds_per_compile": 0})
    assert provider.compiles_ahead(NULL) and not NullProvider().compiles_ahead(NULL)
    dispatches = [make("default"), make("compile_error"), make("fast")]
    compiled = list(provider.compile(dispatches, workspace))
    assert [item.dispatch for item in compiled] == dispatches
    assert [type(item.error) for item in compiled] == [type(None), CompileError, type(None)]


def test_what_is_compiled_is_not_compiled_again_unless_forced(workspace, monkeypatch):
    provider = NullProvider({"seconds_per_compile": 0.02})
    times = []
    for force in (False, False, True):
        place = Workspace(generated=workspace.generated, force=force)
        (compiled,) = provider.compile([make("default")], place)
        times.append(compiled.facts.compile_ns)
    assert times[1] == 0
    assert min(times[0], times[2]) >= 20e6
    monkeypatch.setattr(time, "sleep", lambda _seconds: pytest.fail("compiled again"))
    provider.build(make("default"), workspace)


def test_generate_writes_one_file_per_operation(workspace):
    dispatches = [make("default"), make("fast")]
    (path,) = NullProvider().generate(dispatches, workspace)
    assert path.relative_to(workspace.generated).as_posix() == f"null/matmul/{NAME}/{NAME}.txt"
    assert path.read_text() == f"{NAME}_default\n{NAME}_fast\n"


@given(st.sampled_from(list(BehaviourKind)), st.floats(0, 1e6))
def test_names_of_behaviours_parse_back(kind, value):
    behaviour = Behaviour(kind, value)
    needs_value = kind in (BehaviourKind.SLOW, BehaviourKind.FACTOR, BehaviourKind.NOISY)
    parsed = parse_behaviour(behaviour.name)
    assert parsed == behaviour or (parsed is None and not needs_value)


@given(st.text("abcdefhilnorstuwxy_0123456789pem５", max_size=30))
def test_whatever_parses_prints_back(text):
    behaviour = parse_behaviour(text)
    assert behaviour is None or behaviour.name == text


def test_no_behaviour_begins_with_a_modifier():
    for kind in BehaviourKind:
        assert split_dispatch_name(f"{NAME}_{kind}_1") == (OPERATION, f"{kind}_1")
