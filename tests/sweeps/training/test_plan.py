"""Options -> points, their settings and command lines; nothing runs."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections import Counter
from operator import attrgetter
from pathlib import Path

import pytest

from gemmetry.cli.main import every_command
from gemmetry.cli.options import build_command
from gemmetry.domain.errors import PlanMismatchError, RequestError, SpecError, UnknownNameError
from gemmetry.domain.options import option, struct_of
from gemmetry.sweeps import options as options_module
from gemmetry.sweeps import plan as plans
from gemmetry.sweeps.folder import read_sweep
from gemmetry.sweeps.options import SweepOptions, parse_axes, parse_counts
from gemmetry.sweeps.plan import (
    AxisKind,
    PlannedPoint,
    SweepAxis,
    common_environment,
    library_of,
    plan_sweep,
    point_command,
    requested_settings,
)

TINY = {"config": "tiny", "threads": [256]}
FOLDER = Path("/sweep/256thread")


def plan(**options):
    return plan_sweep(struct_of(SweepOptions, {"output": Path("none"), **options}))


def command(point=0, meeting="sweep-1", environment=None, **options):
    sweep = plan(order="given", **options)
    environment = environment or {}
    return point_command(
        sweep, sweep.points[point], FOLDER, meeting=meeting, environment=environment
    )


@dataclasses.dataclass(kw_only=True)
class Wider(SweepOptions):
    """An option is one line."""

    cooling_s: float | None = option("Wait before each point.", metavar="SECONDS", min=0)


def test_an_option_is_declared_in_one_line():
    """The command line, its help, and the names for scripts follow from it."""

    def run(options):
        """Run it."""
        return options

    run.__annotations__["options"] = Wider
    command = build_command("run", run)
    given = command.main(["--cooling-s", "3", "--config", "tiny"], standalone_mode=False)
    assert given == struct_of(Wider, {"cooling_s": 3.0, "config": "tiny"})
    helps = {one.name: one.help for one in command.params}
    assert helps["cooling_s"] == "Wait before each point."
    assert struct_of(Wider, {}).cooling_s is None
    with pytest.raises(TypeError, match="cooling"):
        struct_of(SweepOptions, {"cooling_s": 1})
    of_command = {one.name for one in dict(every_command())["sweep run"].params}
    assert {one.name for one in dataclasses.fields(SweepOptions)} <= of_command


ANY = {"command": "true"}
NODES = {**ANY, "nnodes": 2}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"command": "train", "config": "tiny"}, "--config and --override"),
        ({"command": "train", "overrides": ["a.b=1"]}, "--config and --override"),
        ({"command": "train 'x"}, "--command: No closing quotation"),
        ({"channels": [0]}, "--channels"), ({"threads": [8, 8]}, "--threads"),
        ({"output": None, "fresh": True}, "--fresh requires --output"),
        ({"config": "tiny", "path": "copy_engine"}, "requires NCCL"),
        ({"config": "tiny", "path": "quick"}, "unknown path"),
        ({"config": "tiny", "axes": {"path": ["kernel", "quick"]}}, "unknown path"),
        ({**ANY, "axes": {"path": ["kernel"]}, "path": "symmetric"}, "exclude each other"),
        ({"config": "tiny", "axes": {"distributed.backend": ["gloo", "nccl"]}}, "one backend"),
        ({"command": "no-such-program-anywhere x"}, "no-such-program-anywhere"),
        ({**ANY, "rocprof": True}, "rocprofv3"), ({**NODES, "rdzv_endpoint": "a:1"}, "--launcher"),
        ({**ANY, "rocprof_input": Path("no.yaml")}, "no.yaml"), (NODES, "--rdzv-endpoint"),
        ({**ANY, "library": "nccl", "channels": [8], "axes": {"NCCL_MAX_CTAS": ["8"]}},
         "NCCL_MAX_CTAS"),
        ({**ANY, "axes": {"NCCL_ALGO": []}}, "has no values"),
        ({**ANY, "axes": {"NCCL_ALGO": ["Ring", "Ring"]}}, "given twice"),
        ({**ANY, "axes": {"bucket": [1]}}, "changes nothing"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_anything_does(options, message, monkeypatch):
    """``tests/data/outputs/sweep_plan.txt`` has more."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(RequestError, match=re.escape(message)):
        plan(**options)


def test_texts_of_the_command_line():
    assert parse_counts(["1,2", "4"], "-c") == (1, 2, 4)
    assert parse_axes(["A = x, y", "B=1"], "--axis") == {"A": ("x", "y"), "B": ("1",)}
    for parse, text, words in (
        *((parse_axes, text, "not of the form") for text in ("A", "=1", "A=")),
        (parse_counts, "1,x", "whole numbers"),
    ):
        with pytest.raises(RequestError, match=words):
            parse([text], "-x")


def test_kinds_of_axes():
    found = plan(config="tiny", axes={"NCCL_ALGO": ["Ring"], "distributed.bucket_cap_mb": [16]})
    assert found.axes == (
        SweepAxis("NCCL_ALGO", AxisKind.VARIABLE, ("Ring",)),
        SweepAxis("distributed.bucket_cap_mb", AxisKind.KEY, ("16",)),
    )
    (axis,) = plan(command="true --bucket={bucket}", axes={"bucket": ["16"]}).axes
    assert axis.kind is AxisKind.PLACEHOLDER
    with pytest.raises(UnknownNameError) as error:
        plan(config="tiny", axes={"distributed.bucket_cap": [1]})
    assert "distributed.bucket_cap_mb" in error.value.hint
    with pytest.raises(SpecError, match=r"training\.batch_size"):
        plan(config="tiny", axes={"training.batch_size": ["4", "lots"]})


def test_values_beyond_the_limits_and_variables_of_the_user_are_named(monkeypatch):
    def notes(library, **options):
        return plan(command="true", library=library, **options).notes

    assert [one.partition(":")[0] for one in plan(**TINY, channels=[1]).notes] == [
        "channels", "threads"
    ]  # fmt: skip
    assert notes("nccl", channels=[56, 70, 128], threads=[32, 256, 1024]) == (
        "channels 70, 128: NCCL uses 64 channels at most",
        "threads 32, 1024: NCCL uses 64 to 512 threads",
    )
    assert notes("rccl", channels=[70], threads=[256, 512]) == (
        "threads 512: RCCL uses 256 threads at most",
    )
    monkeypatch.setenv("NCCL_NTHREADS", "64")
    (note,) = notes("nccl", threads=[256])
    assert note.startswith("NCCL_NTHREADS in your environment")


@pytest.fixture
def machine(monkeypatch):
    def has(gpus=0, is_amd=False):
        monkeypatch.setattr(plans, "gpu_count", lambda: gpus)
        monkeypatch.setattr(plans, "has_gpu_driver", lambda: gpus > 0)
        monkeypatch.setattr(plans, "has_amd_driver", lambda: is_amd)

    return has


def test_this_machine(machine):
    machine(gpus=8)
    assert [plan(config=config).options.nproc for config in ("tiny", "document")] == [2, 8]
    machine(gpus=0)
    with pytest.raises(RequestError, match="no driver") as error:
        plan(config="document", nproc=1)
    assert "--config tiny" in error.value.hint


@pytest.mark.parametrize(
    ("backend", "gpus", "is_amd", "library"),
    [("gloo", 1, False, "gloo"), ("nccl", 1, False, "nccl"), ("nccl", 1, True, "rccl"),
     (None, 1, True, "rccl"), (None, 0, False, "gloo")],
)  # fmt: skip
def test_the_library_of_a_machine(machine, backend, gpus, is_amd, library):
    machine(gpus, is_amd)
    assert library_of(backend) == library


def test_words_of_commands():
    words = ("true", "--name", "a b")
    for given in ("true --name 'a b'", list(words)):
        assert plan(command=given).options.command == words
    options = struct_of(SweepOptions, {"command": ["train"], "ncu": []})
    assert (options.ncu, options.rocprof) == ((), False)
    assert struct_of(SweepOptions, {"rocprof_input": Path("x")}).rocprof


def test_a_command_or_folder_of_an_earlier_version(tmp_path):
    old = f"true -m {options_module._OLD_WORKLOAD}"
    assert plan(command=old).options.command[-1] == "gemmetry.sweeps.workload"
    identity = dict(plan(command=old).identity, command=old.split())
    (tmp_path / "sweep.json").write_text(json.dumps({"identity": identity}))
    assert plan(command=old, output=tmp_path).manifest
    with pytest.raises(PlanMismatchError, match="command"):
        plan(command=f"{old} more", output=tmp_path)


def test_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"command": "true", "library": "nccl", "output": None}
    found = plan(**options)
    assert re.fullmatch(r"gemmetry-out/sweep_\d{8}_\d{6}", str(found.folder))
    same = json.dumps({"identity": found.identity})
    other = json.dumps({"identity": found.identity | {"nproc": 7}})
    for number, content in enumerate((same, same, other, "{"), 1):
        folder = Path("gemmetry-out", f"sweep_{number}")
        folder.mkdir(parents=True)
        (folder / "sweep.json").write_text(content)
    assert plan(**options, resume=True).folder == Path("gemmetry-out/sweep_2")


ALGORITHMS = {"NCCL_ALGO": ("Ring", "^NVLS")}


def points(order="given", **options):
    return plan(command="true", order=order, library="nccl", **options).points


def test_each_repeat_is_shuffled_anew_and_complete():
    def shuffled(seed, repeats=3):
        many = {"threads": (256, 512), "channels": (1, 2, 4, 8), "order": "random"}
        return points(**many, repeats=repeats, seed=seed)

    found = shuffled(1)
    blocks = [found[start : start + 8] for start in (0, 8, 16)]
    orders = [tuple((one.threads, one.channels) for one in block) for block in blocks]
    assert [{one.repeat for one in block} for block in blocks] == [{1}, {2}, {3}]
    assert all(Counter(order) == Counter(orders[0]) for order in orders)
    assert len(set(orders)) == 3
    assert found == shuffled(1) != shuffled(2)
    assert found[:16] == shuffled(1, repeats=2)


def test_the_analysis_reads_the_folders(tmp_path):
    planned = points(threads=(256, 512), channels=(1,), axes=ALGORITHMS, repeats=2)
    for point in planned:
        (tmp_path / point.folder / "torch_profiler").mkdir(parents=True)
    settings = attrgetter("threads", "channels", "axes")
    found = {(*settings(one.configuration), one.repeat) for one in read_sweep(tmp_path).points}
    assert found == {(*settings(one), one.repeat) for one in planned}


AXES = (
    SweepAxis("NCCL_ALGO", AxisKind.VARIABLE, ("Ring",)),
    SweepAxis("training.batch_size", AxisKind.KEY, ("8",)),
)
POINT = PlannedPoint(512, 28, (("NCCL_ALGO", "Ring"), ("training.batch_size", "8")), 1, False)
CHANNELS = {f"NCCL_{end}_{name}": "28" for end in ("MIN", "MAX") for name in ("CTAS", "NCHANNELS")}


@pytest.mark.parametrize(
    ("library", "channels", "threads"),
    [
        ("nccl", CHANNELS, {"NCCL_NTHREADS": "512"}),
        ("rccl", CHANNELS, {"NCCL_NTHREADS": "512", "RCCL_THREADS_PER_BLOCK": "512"}),
        ("gloo", {}, {}),
    ],
)
def test_variables_of_each_library(library, channels, threads):
    found = requested_settings(POINT, AXES, library, "kernel")
    environments = (channels, threads, {"NCCL_ALGO": "Ring"}, {})
    names = ("channels", "threads", "NCCL_ALGO", "training.batch_size")
    assert [one.name for one in found] == list(names)
    assert [dict(one.environment) for one in found] == list(environments)
    assert [bool(one.note) for one in found] == [library == "gloo"] * 2 + [False] * 2
    assert requested_settings(PlannedPoint(None, None, (), 1, True), AXES, library, "kernel") == ()


@pytest.mark.parametrize(
    ("path", "policy"), [("kernel", None), ("symmetric", None), ("copy_engine", "2")]
)
def test_paths(path, policy):
    found = requested_settings(POINT, AXES, "nccl", path)
    environment = {one.name: one.environment for one in found}.get("path", {})
    assert environment.get("NCCL_CTA_POLICY") == policy
    # Multicast over NVLink stays off where buffers are registered.
    assert environment.get("NCCL_NVLS_ENABLE") == (None if path == "kernel" else "0")


def test_what_rocm_needs_gives_way_to_the_user():
    found = common_environment("rccl", {"HSA_ENABLE_SDMA": "1"})
    assert found == {"PYTORCH_ROCM_PROFILER_ENABLE_TRACING": "1"}
    assert common_environment("nccl", {}) == {}


def test_the_ranks_of_the_workload_and_what_is_overridden():
    assert plan(config="tiny", nproc=4).world_size == 4
    axes = {"NCCL_ALGO": ["Ring"], "training.batch_size": ["8"]}
    words = command(config="tiny", overrides=["model.num_layers=3"], axes=axes)
    assert words[-3:] == ("--override", "model.num_layers=3", "training.batch_size=8")


def test_several_nodes_meet_once_for_each_attempt_and_get_the_settings():
    nodes = {"nnodes": 2, "rdzv_endpoint": "node01:29500", "launcher": "env -u X"}
    words = command(config="tiny", nproc=8, **nodes, environment={"NCCL_NTHREADS": "256"})
    assert words[:5] == ("env", "-u", "X", "env", "NCCL_NTHREADS=256")
    agent = " ".join(words[5:])
    assert "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint node01:29500 --rdzv-id sweep-1" in agent
    assert "--standalone" not in agent
    assert plan(config="tiny", nproc=8, **nodes).world_size == 16


def test_placeholders_of_a_command_get_values_and_other_braces_stay():
    words = ["true", "--b={b}", "{trace_dir}", "{threads}{channels}", "{x}"]
    found = command(command=words, axes={"b": ["8"]}, threads=[256])
    assert found == ("true", "--b=8", f"{FOLDER}/torch_profiler", "256", "{x}")
    assert plan(command=words).world_size is None


@pytest.fixture
def profilers(tmp_path, monkeypatch):
    for path in (tmp_path / "rocprofv3", tmp_path / "ncu"):
        path.touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_rocprofv3_is_around_torchrun_and_options_complete_its_input(profilers, tmp_path):
    words = command(config="tiny", rocprof=True, stats=True)
    named = ("-o", "%hostname%/rank%env{RANK}%_%pid%")
    out = ("-d", f"{FOLDER}/rocprof_traces", "--")
    assert words[: words.index("--") + 2] == (
        "rocprofv3", "--kernel-trace", "--stats", "--output-format", "csv", "json", *named, *out,
        sys.executable,
    )  # fmt: skip
    path = tmp_path / "x.yaml"
    for text, options in {
        "jobs: [{kernel_trace: true}]": ("--stats", "--output-format", "csv", "json", *named),
        # rocprofv3 refuses an option that a job has with another value.
        "jobs: [{stats: false, output_format: [csv], output_file: x}]": (),
    }.items():
        path.write_text(text)
        words = command(command="true", rocprof_input=path, stats=True)
        assert words == ("rocprofv3", "-i", str(path), *options, *out, "true")


def test_each_rank_has_an_ncu_of_its_own_and_no_other_profiler(profilers):
    words = command(config="tiny", ncu="--set basic")
    start = words.index("--no-python")
    assert words[start + 1 : start + 10] == (
        "ncu", "--target-processes", "all", "--set", "basic", "-f", "-o",
        f"{FOLDER}/ncu/rank%q{{RANK}}", sys.executable,
    )  # fmt: skip
    assert words[-1] == "profiling.enabled=false"
    assert command(command="true", ncu=[]) == (
        "ncu", "--target-processes", "all", "-f", "-o", f"{FOLDER}/ncu/report_%p", "true"
    )  # fmt: skip
