from __future__ import annotations

import hashlib

import numpy as np
import pytest

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch, Target, TargetKind, parse_operation
from gemmetry.domain.errors import StorageError
from gemmetry.domain.settings import RunSettings, TraceSchedule
from gemmetry.engine import recording as tracing
from gemmetry.engine.recording import Recording, digest, record_traces
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.torch_provider.provider import TorchProvider

pytest.importorskip("torch")

JOB = Recording(RunSettings(), TraceSchedule(wait_steps=0, warmup_steps=1, repeats=2))


@pytest.mark.parametrize(
    "name", ["matmul_8x6x4_f32n_f32t_f32t", "matmul_8x8x8_s8t_s8t_s32t",
             "matmul_8x6x4_bf16t_bf16t_bf16t_bias"],
)  # fmt: skip
def test_facts_show_files_and_checksums(name, product, tmp_path):
    executable, dispatch, inputs = product(name)
    operation = dispatch.operation
    folder = tmp_path / "config_0001"
    folder.mkdir()
    (folder / "left over").touch()
    facts = record_traces(executable, dispatch, inputs, JOB, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(facts.files)
    assert facts.folder == str(folder)
    assert set(facts.input_sha256) == {spec.role for spec in operation.inputs}
    device = executable.device
    buffers = [device.upload(a, s) for a, s in zip(inputs, operation.inputs, strict=True)]
    output = executable.run(buffers, device.allocate(operation.output))
    expected = device.download(output, operation.output)
    assert facts.output_sha256 == hashlib.sha256(expected.tobytes()).hexdigest()


@pytest.fixture
def product(tmp_path):
    """What records traces of a product: an executable, its dispatch and its inputs."""

    def make(name="matmul_8x6x4_f32t_f32t_f32t"):
        operation = parse_operation(name)
        dispatch = Dispatch(operation, Configuration(), "torch", Target(TargetKind.CPU))
        executable = TorchProvider().build(dispatch, Workspace(generated=tmp_path))
        return executable, dispatch, make_inputs(operation, distribution="offset_uniform", seed=42)

    return make


def test_further_repeats_are_added_and_a_failure_costs_only_them(product, tmp_path, monkeypatch):
    folder = tmp_path / "config_0001"
    given = product()
    more = Recording(RunSettings(), TraceSchedule(wait_steps=0, warmup_steps=1, repeats=4))

    def fails(*job):
        """A recording that leaves half a trace."""

        def half(launch, synchronize, folder, *_arguments, **_options):
            (folder / "repeat_03.pt.trace.json").write_text('{"traceEvents": [')
            raise StorageError("full", hint="Free some space.")

        with monkeypatch.context() as patched, pytest.raises(StorageError):
            patched.setattr(tracing, "record", half)
            record_traces(*given, *job)

    fails(JOB, folder)
    assert not folder.exists()
    first = record_traces(*given, JOB, folder)
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    fails(more, folder, 2)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times

    grown = record_traces(*given, more, folder, 2)
    assert grown.repeats == 4
    assert grown.files[:3] == first.files
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in times.items())
    assert (grown.input_sha256, grown.output_sha256) == (first.input_sha256, first.output_sha256)

    (folder / "repeat_01.pt.trace.json").unlink()
    whole = record_traces(*given, more, folder, 2)
    assert sorted(path.name for path in folder.iterdir()) == sorted(whole.files)
    assert (folder / "CPU_trace.json").stat().st_mtime_ns not in times.values()


def test_a_digest_is_over_the_bytes_as_they_are_stored():
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    for one in (array, array.T):
        assert digest(one) == hashlib.sha256(one.tobytes()).hexdigest()
