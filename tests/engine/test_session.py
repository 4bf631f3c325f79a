from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from tests.engine import memory_workers

from gemmetry.domain.dispatch import (
    NamedDispatch,
    ProviderRequest,
    Target,
    TargetKind,
    parse_operation,
)
from gemmetry.domain.errors import (
    DeviceLostError,
    EmptySelectionError,
    Outcome,
    RequestError,
    Stage,
    StorageError,
    UnknownNameError,
    Verification,
)
from gemmetry.domain.record import DispatchFinished, Environment, Message, PlanReady, StageProgress
from gemmetry.engine import candidates as launch_budget
from gemmetry.engine import device, run, session
from gemmetry.engine import slots as grouping
from gemmetry.engine.device import DeviceSession
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.process import WorkerProcess
from gemmetry.engine.protocol import HUNG_REASON, Sample, Trying
from gemmetry.hardware import roofline
from gemmetry.hardware.detect import CpuFacts


def test_free_memory_is_what_the_driver_reports_before_a_worker_does(make_context, monkeypatch):
    """Of several devices the least counts; without a device nothing is known."""
    free, budgets = {"GPU-0": 600, "GPU-1": 400}, []
    monkeypatch.setattr(session, "nvidia_free_bytes", free.__getitem__)
    monkeypatch.setattr(session, "CompilePool", Mock())
    monkeypatch.setattr(session.Serving, "_serve", lambda _self, *served: budgets.append(served[3]))
    monkeypatch.setattr(session.Serving, "_remains", lambda _self, _target: False)
    environment = Environment(device_ids=tuple(free))
    for indexes in ([0], [0, 1], [None]):
        devices = [Target(TargetKind.CUDA, "sm_90", index) for index in indexes]
        lanes = {0: Mock(lane=Mock(target=devices[0]))}
        served = session.Serving(lanes, make_context(processes=1), Mock(), Mock(), Mock())
        served.work_here(devices if len(devices) > 1 else [], environment)
    limits = [budget.limit_bytes for budget in budgets]
    assert limits == [300, 200, 200, grouping.UNKNOWN_GPU_BUDGET_BYTES]


def test_a_run_measures_verifies_and_stores(make_plan, run_plan, tmp_path):
    left = tmp_path / "experiment" / "temporary" / "iree-1" / "cc1.s"
    left.parent.mkdir(parents=True)
    left.touch()
    ran = run_plan(make_plan(sizes=(8, 16), tags={"who": "me"}), command="gemmetry profile x")
    assert ran.summary.exit_status == 0
    assert (ran.summary.total, ran.summary.finished, ran.summary.kept) == (4, 4, 0)
    assert ran.events[0] == PlanReady(4, 0, 0, str(tmp_path / "experiment"))
    finished = ran.of(DispatchFinished)
    assert {event.record.key for event in finished} == {record.key for record in ran.records}
    for record in ran.records:
        assert record.outcome is Outcome.OK
        assert (record.measurement.sample_count, record.measurement.method) == (10, "simulated")
        assert record.verdict.status is Verification.PASSED
        assert record.verdict.checks["after_timing"] == "passed"
        assert record.tags == {"who": "me"}
        assert record.configuration_parameters["behaviour"] == record.configuration
        assert record.device == "null:0"
    slow, fast, *_ = (record.measurement for record in ran.records)
    assert fast.median_ns == pytest.approx(0.8 * slow.median_ns, rel=0.02)
    with Experiment.open(tmp_path / "experiment") as experiment:
        assert len(experiment.samples(ran.records[0])) == 10
        assert experiment.environments()[ran.records[0].environment_id].packages["gemmetry"]
        assert experiment.manifest.commands == ("gemmetry profile x",)
    assert not left.parents[1].exists(), "what a killed run left is removed"
    # One pass over all four, so that candidates are interleaved.
    assert [e.stage for e in ran.of(StageProgress)].count(Stage.VERIFY) == 4


def test_every_outcome_is_a_row_and_the_rest_is_measured(make_plan, run_plan):
    expected = {
        **dict.fromkeys(("default", "fast", "factor_2"), ("ok", None)),
        **dict.fromkeys(("crash", "abort", "exit_3", "raises"), ("crash", Stage.VERIFY)),
        "hang": ("timeout", Stage.VERIFY),
        "hang_build": ("timeout", Stage.BUILD),
        "wrong": ("wrong", Stage.VERIFY),
        "late": ("wrong", Stage.MEASURE),
        "leak": ("out_of_memory", Stage.VERIFY),
        "launch_error": ("launch_error", Stage.VERIFY),
        "compile_error": ("compile_error", Stage.BUILD),
        "unsupported": ("unsupported", Stage.BUILD),
    }
    began = time.monotonic()
    deadlines = {Stage.VERIFY: 60.0, Stage.BUILD: 4.0}
    ran = run_plan(make_plan([*expected][2:], deadlines_s=deadlines))
    assert time.monotonic() - began < 60, "a hang of microseconds does not last until the deadline"
    found = {record.configuration: (str(record.outcome), record.stage) for record in ran.records}
    assert found == expected
    assert ran["hang"].reason == HUNG_REASON
    assert "deadlines.build=8" in ran["hang_build"].reason
    assert "_hang" in ran["hang"].output_tail, "the log shows where it was"
    assert "SIGSEGV" in ran["crash"].reason
    assert "status 3" in ran["exit_3"].reason
    assert "RuntimeError: launch 1 raised" in ran["raises"].output_tail, "the traceback explains it"
    assert ran["late"].verdict.status is Verification.FAILED
    assert "Choose another configuration" in ran["compile_error"].reason, "the hint is kept"
    for record in ran.records:
        assert f"--dispatches {record.dispatch} " in record.reproduce
    assert (ran.summary.exit_status, ran.summary.finished) == (1, 15)


def test_a_lost_device_costs_no_verdict_and_the_plan_ends(make_plan, run_plan):
    operation = parse_operation("matmul_8x8x8_f32t_f32t_f32t")
    names = ("default", "mutate_inputs", "device_lost", "fast")
    named = [NamedDispatch(operation=operation, configuration=name) for name in names]
    plan = make_plan(plan={"selection": NOTHING, "named": named})
    first = run_plan(plan)
    assert first.summary.exit_status == 3
    assert [r.configuration for r in first.records] == ["mutate_inputs"], "a verdict reached"
    second = run_plan(plan)
    assert second.summary.exit_status == 1, "nothing is left to resume"
    assert second.outcomes == dict(zip(names, ("ok", "wrong", "crash", "ok"), strict=True))
    assert "device lost twice while verifying it" in second["device_lost"].reason
    assert [e.record.configuration for e in second.of(DispatchFinished)][-1] == "device_lost"
    assert second.summary.failure == ""
    assert run_plan(plan).of(DispatchFinished) == []


NOTHING = SimpleNamespace(everything=False, matches=lambda provider, name, operation: False)
"""A selection."""


def test_failures_and_verdicts_are_durable_while_a_group_opens(make_plan, tmp_path, monkeypatch):
    """A run that is broken off while the third dispatch is opened keeps the first two's results."""
    folder = tmp_path / "experiment"
    monkeypatch.setattr(device, "STORE_EVERY_S", 0.0)
    opened = []
    original = DeviceSession._is_right

    def watch(self, worker, candidate, reply):
        if len(opened) == most:
            raise KeyboardInterrupt
        opened.append((candidate.configuration.name, reply.verdict is not None))
        return original(self, worker, candidate, reply)

    monkeypatch.setattr(DeviceSession, "_is_right", watch)
    plan, most = make_plan(("wrong", "factor_2")), 3
    with pytest.raises(KeyboardInterrupt):
        run(plan, folder)
    with Experiment.open(folder) as experiment:
        assert [r.configuration for r in experiment.records()] == ["wrong"]
    opened.clear()
    most = None
    assert run(plan, folder).outcomes == {Outcome.OK: 3, Outcome.WRONG: 1}
    assert opened == [("default", False), ("fast", False), ("factor_2", True)], "verified once"
    with Experiment.open(folder) as experiment:
        verdicts = {r.configuration: r.verdict.status for r in experiment.records()}
    assert verdicts["default"] is Verification.PASSED


def test_a_slow_dispatch_is_skipped_when_a_launch_of_it_was_tried(make_plan, run_plan, monkeypatch):
    monkeypatch.setattr(launch_budget, "LEAST_TRIAL_S", 0.0)
    ran = run_plan(make_plan(("slow_20000",), max_seconds_per_launch=0.5))
    record = ran["slow_20000"]
    assert (record.outcome, record.stage) == (Outcome.SKIPPED, Stage.BUILD)
    assert "did not end within 0.5 s" in record.reason
    assert ran["default"].outcome is Outcome.OK, "the others continue in another worker"
    verified = [(e.done, e.total) for e in ran.of(StageProgress) if e.stage is Stage.VERIFY]
    assert verified == [(1, 3), (2, 3), (2, 2)], "what is skipped is not verified"
    assert ran.summary.exit_status == 0


def test_a_dispatch_too_slow_to_verify_is_skipped(make_plan, run_plan):
    plan = make_plan(("slow_300",), verification_level="standard", deadlines_s={Stage.VERIFY: 1.0})
    record = run_plan(plan)["slow_300"]
    assert record.outcome is Outcome.SKIPPED
    assert "one launch took 0.3" in record.reason


@pytest.mark.parametrize("settings", [{}, {"measure": False}, {"verify": False, "processes": 2}])
def test_a_prediction_alone_leaves_nothing_out(make_plan, run_plan, monkeypatch, settings):
    """A disturbed probe predicts 81.8 s for a product that takes microseconds. What was tried is
    not tried again in further workers."""
    tried = []
    expect = WorkerProcess.expect

    def count(self, kinds, ids):
        reply = expect(self, kinds, ids)
        tried.extend([self.pid] * isinstance(reply, Trying))
        return reply

    monkeypatch.setattr(WorkerProcess, "expect", count)
    ran = run_plan(make_plan(options={"predicted_seconds": 81.8}, **settings))
    assert ran.summary.outcomes == {Outcome.OK: 2}
    assert len(tried) == 2, "each dispatch once"


def test_without_verification_records_say_so(make_plan, run_plan):
    ran = run_plan(make_plan(("wrong",), verify=False, options={"seconds_per_compile": 0.01}))
    reported = {(e.stage, e.done, e.total) for e in ran.of(StageProgress)}
    assert reported >= {(Stage.COMPILE, 3, 3), (Stage.BUILD, 3, 3)}
    assert Stage.VERIFY not in {stage for stage, *_ in reported}
    assert ran.summary.outcomes == {Outcome.OK: 3}
    assert {record.verdict.status for record in ran.records} == {Verification.NOT_VERIFIED}
    assert ran["wrong"].measurement is not None
    assert ran["default"].facts.compile_ns > 5e6, "facts of the compiler are in the record"
    assert ran["default"].facts.default_configuration == "pretend", "and those of the build"


def test_compile_only_targets_compile_and_run_nothing(make_plan, run_plan):
    target = Target(TargetKind.NULL, "sm_80", None)
    ran = run_plan(make_plan(("wrong",), options={"seconds_per_compile": 0.0}, targets=(target,)))
    assert ran.summary.outcomes == {Outcome.OK: 3}
    assert (ran["wrong"].measurement, ran["wrong"].target) == (None, "null-sm_80")
    ran = run_plan(make_plan(targets=(target,)), fresh=True)
    assert set(ran.summary.outcomes) == {Outcome.UNSUPPORTED}


def test_the_hosts_bandwidth_is_measured_before_its_cpu_is_sampled(
    make_plan, run_plan, monkeypatch, workers, use_executor
):
    facts = CpuFacts(
        name="x", vendor="AuthenticAMD", family=0x1A, model=2, usable_cores=2, physical_cores=2,
        clock_hz=2.6e9, flags=frozenset({"fma", "avx2", "avx512f"}), last_level_caches=(2**20,),
    )  # fmt: skip
    monkeypatch.setattr(roofline, "_facts", lambda: facts)
    use_executor(memory_workers.MemoryExecutor())
    measured = []
    monkeypatch.setattr(
        session, "measure_host_bandwidth", lambda: measured.append(running(workers)) or 40e9
    )
    run_plan(make_plan(), fresh=True)
    assert measured == [], "the simulated device has a memory of its own"
    plan = make_plan(
        sizes=(1 << 21,), targets=(Target(TargetKind.CPU),), repetitions=1, verify=False,
        providers=(ProviderRequest(name="numpy"),),
    )  # fmt: skip
    (record,) = run_plan(plan, fresh=True).records
    assert measured == [[]], "once, and before any worker runs"
    assert workers
    least_ns = parse_operation(record.operation).bytes / 40
    assert record.roofline_fraction == pytest.approx(least_ns / record.measurement.median_ns)
    assert "40.0 GB/s" in record.roofline_source
    run_plan(plan)
    assert len(measured) == 1, "nothing is left to measure"


def test_an_unavailable_provider_is_unsupported(make_plan, run_plan):
    ran = run_plan(make_plan(options={"unavailable": "it is not there"}))
    assert [record.reason for record in ran.records] == ["it is not there"]
    assert ran.summary.exit_status == 1


def test_one_lost_device_does_not_hold_up_the_other(make_plan, run_plan):
    lost = make_plan(("device_lost",), targets=[Target(TargetKind.NULL, "", i) for i in range(2)])
    ran = run_plan(lost)
    assert ran.summary.exit_status == 3
    assert ran.summary.failure.count("is gone") == 2


def test_the_same_command_resumes_with_everything_kept(make_plan, run_plan, monkeypatch):
    plan = make_plan(sizes=(8, 16))
    first, again = run_plan(plan), run_plan(plan)
    assert again.records == first.records
    (ready,) = again.of(PlanReady)
    for kept in (again.summary, ready):
        assert (kept.kept, kept.samples_kept) == (4, 40)
    assert again.of(DispatchFinished) == []
    assert again.of(Message) == [], "what is kept is reported once"
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "5")
    again = run_plan(plan)
    (warning,) = [m.text for m in again.of(Message) if m.level == "warning"]
    assert "MKL_DEBUG_CPU_TYPE" in warning, "a changed environment is reported"
    assert again.records == first.records


def test_wrong_requests_leave_nothing(make_plan, run_plan, tmp_path):
    for refused, request in (
        (UnknownNameError, {"providers": (ProviderRequest(name="nul"),)}),
        (EmptySelectionError, {"plan": {"selection": NOTHING}}),
        (RequestError, {"targets": ()}),
    ):
        with pytest.raises(refused):
            run_plan(make_plan(**request))
    assert not (tmp_path / "experiment").exists()


def test_output_of_a_worker_explains_its_dispatch_alone(make_plan, run_plan, capfd, tmp_path):
    ran = run_plan(make_plan(("chatty", "crash"), save_commands=True))
    assert ran["chatty"].outcome is Outcome.OK
    assert "output of the simulated kernel" not in ran["crash"].output_tail
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
    folder = tmp_path / "experiment" / "artifacts" / "commands" / "null-0" / "null"
    names = sorted(path.stem.rpartition("_")[2] for path in folder.iterdir())
    assert names == ["chatty", "crash", "default", "fast"], "commands are kept on request"
    text = next(folder.glob("*_crash.txt")).read_text()
    assert "gemmetry profile --set 'providers=" in text
    assert "SIGSEGV" in text


def test_an_interrupt_ends_workers_and_keeps_all(
    make_plan, tmp_path, sent, workers, stored_rounds, interrupted
):
    # Neither the samples nor the time end before the signal comes.
    endless = {"interval_width": 1e-9, "time_budget_s": 600.0, "max_samples": 10**9}
    folder = tmp_path / "experiment"
    with interrupted(lambda: stored_rounds(folder), lambda: sent.append((None, None))):
        run(make_plan(("slow_50",), **endless), folder)
    came = sent.index((None, None))
    is_sample = [isinstance(message, Sample) for _, message in sent]
    assert any(is_sample[:came]) and not any(is_sample[came:]), "nothing more is measured"
    assert workers and running(workers) == []
    assert stored_rounds(folder)


@pytest.mark.parametrize("hangs", ["hang_build", "hang_compile"])
def test_an_interrupt_does_not_wait_for_builds(
    make_plan, tmp_path, monkeypatch, workers, interrupted, hangs
):
    monkeypatch.setattr(Target, "is_gpu", property(lambda _self: True))
    options = {"seconds_per_compile": 0.0} if hangs == "hang_compile" else {}
    came = []
    with interrupted(
        lambda: len(workers) >= 3 and not time.sleep(1), lambda: came.append(time.monotonic())
    ):
        run(make_plan((hangs,), options=options, processes=3), tmp_path / "experiment")
    assert time.monotonic() - came[0] < 10, "the deadline is 20 s"
    assert running(workers) == []


def running(workers: list[WorkerProcess]) -> list[WorkerProcess]:
    """Those whose guardian has not ended, which it does when all that they started has."""
    return [worker for worker in workers if worker._process.wait(0) is None]


def test_a_folder_that_fails_in_the_middle_ends_the_run(make_plan, tmp_path, monkeypatch, workers):
    def fail(self, rounds, verdicts):
        raise StorageError("no space left")

    with monkeypatch.context() as patch, pytest.raises(StorageError):
        patch.setattr(Experiment, "add_rounds", fail)
        run(make_plan(), tmp_path / "experiment")
    assert workers and running(workers) == []
    assert run(make_plan(), tmp_path / "experiment").exit_status == 0


def _null_pool(*devices: str):
    return {"options": {"devices": 4}, "devices": devices}


@pytest.fixture
def before_each_group(monkeypatch):
    """Has each device call ``look(index)`` before it measures a group; no two share a group."""
    original = DeviceSession._measure_group

    def use(look):
        def measure_group(self, group):
            look(self._slot.target.index)
            original(self, group)

        monkeypatch.setattr(DeviceSession, "_measure_group", measure_group)
        monkeypatch.setattr(grouping, "SMALL_OPERATION_FLOPS", 0)

    return use


def test_a_pool_of_devices_measures_each_dispatch_once(make_plan, run_plan, before_each_group):
    both, met = threading.Barrier(2, timeout=60), set()

    def meet(index):
        if index not in met:
            met.add(index)
            both.wait()  # until the other device has a group too

    before_each_group(meet)
    plan = make_plan(("slow_1",), sizes=(8, 16, 24, 32), **_null_pool("null:1", "null:3"))
    ran = run_plan(plan)
    assert ran.summary.outcomes == {Outcome.OK: 12}
    assert met == {1, 3}
    for record in ran.records:
        (identity,) = record.device_ids
        assert identity.partition("/")[2] == record.device
    pairs = {(record.operation, record.device) for record in ran.records}
    assert len(pairs) == 4, "an operation stays on one device"
    assert {device for _, device in pairs} == {"null:1", "null:3"}


@pytest.mark.parametrize(("place", "wanted"), [
    ("shared", "user/gemmetry/compiled"),
    ("in a folder of its own", "made"),
    ("nowhere", "experiment/artifacts/generated"),
    ("another's", "experiment/artifacts/generated"),
])  # fmt: skip
def test_machine_code_is_kept_for_all_experiments(
    make_plan, run_plan, monkeypatch, tmp_path, use_executor, place, wanted
):
    """A folder of its own is complete, so that it can be moved. A user's cache that cannot be
    written costs nothing but time."""
    if place == "nowhere":
        (tmp_path / "user").touch()
    if place == "another's":
        (tmp_path / "user/gemmetry/compiled/cuda").mkdir(parents=True)
        (tmp_path / "user/gemmetry/compiled/cuda/cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    executor = memory_workers.MemoryExecutor()
    use_executor(executor)
    generated = tmp_path / "made" if place == "in a folder of its own" else None
    assert run_plan(make_plan(), generated=generated).summary.exit_status == 0
    caches = {channel.sent[0].workspace().cache("cuda") for channel in executor.channels}
    assert caches == {tmp_path / wanted / "cuda/cache"}


def test_the_work_of_a_lost_device_goes_to_another(make_plan, run_plan, before_each_group):
    lost = threading.Event()

    def lose(index):
        if index == 1:
            lost.set()
            raise DeviceLostError("the device null:1 is gone")
        lost.wait(60)

    before_each_group(lose)
    ran = run_plan(make_plan(sizes=(8, 16), **_null_pool("null:0", "null:1")))
    assert ran.summary.exit_status == 0
    assert {record.device for record in ran.records} == {"null:0"}
    assert any("null:1 is gone" in event.text for event in ran.of(Message))


def test_a_group_that_another_device_began_is_taken_again_whole(make_plan, run_plan, monkeypatch):
    original = DeviceSession._store

    def interrupt(self):
        has_rounds = bool(self._rounds)
        original(self)
        if has_rounds:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(DeviceSession, "_store", interrupt)
        run_plan(make_plan(("fast",), repetitions=40, **_null_pool("null:1")))
    ran = run_plan(make_plan(("fast",), repetitions=40, **_null_pool("null:2")))
    found = {(one.device, *one.device_ids, one.measurement.sample_count) for one in ran.records}
    ((device, identity, count),) = found
    assert (device, identity.partition("/")[2], count) == ("null:2", "null:2", 40)
    assert any("come from another device" in event.text for event in ran.of(Message))
