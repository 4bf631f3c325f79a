"""The settings of a run: seeds, budgets and deadlines. They are part of the plan and stored with
it.

Each is declared here once, with :func:`setting`. Its key in a spec, its option, help, completion
and JSON schema, the command that repeats a dispatch, and what another value means for an experiment
that exists all follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from gemmetry.domain.errors import RequestError, Stage, UnknownNameError, alternatives

LOCAL = "local"
"""The executor that runs workers on this machine."""

RAY = "ray"
"""The executor that runs groups of dispatches as tasks of a Ray cluster."""

EXECUTORS = (LOCAL, RAY)

OF_AGENTS = ("agents", "loopback", "slurm", "ssh",
             "--agents", "--agent-wait", "--listen", "--token-file")  # fmt: skip
"""Executors and options of earlier versions, which started agents on other hosts."""

WITHOUT_AGENTS = (
    "--executor ray uses the devices of a Ray cluster, and --shard K/N splits a plan over any "
    "number of commands, such as those of a Slurm array: `gemmetry help clusters`."
)


def check_executor(name: str) -> None:
    """Check that there is an executor called `name`.

    Raises:
        RequestError: an earlier version's executor. UnknownNameError: no such executor.
    """
    if name in OF_AGENTS:
        raise RequestError(f"there is no executor {name} any more", hint=WITHOUT_AGENTS)
    if name not in EXECUTORS:
        raise UnknownNameError("executor", name, EXECUTORS)


DEFAULT_SEED = 42
"""The seed of the grid tracing document (RANDOM_SEED)."""

USUAL_SAMPLES = 10
"""Default minimum number of samples, as far as the time budget allows."""

MOST_PROCESSES = 12
"""Maximum worker processes that share a dispatch's rounds, and minimum number of rounds."""

DISTRIBUTIONS = ("offset_uniform", "uniform", "uniform_signed", "normal", "integers", "zeros")
"""Accepted names of the inputs' distribution; numerics/inputs.py defines each per dtype."""

VERIFICATION_LEVELS = ("quick", "standard", "paranoid")
"""Levels of verification, the fewest checks first."""

SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
"""Names of the tools of NVIDIA's compute-sanitizer."""

REGIMES = ("burst", "sustained")
"""Thermal regimes: launches as they come, or after the device has warmed up under load."""

APART, BACK_TO_BACK = "apart", "back_to_back"
LAUNCHES = (APART, BACK_TO_BACK)
"""Work before a timed launch on a GPU: a small kernel, or the launch before."""

TIMING_METHODS = ("auto", "graph", "events")
"""Ways to time a device with streams: by replays of captured graphs, by events around launches, or
(auto) graphs for launches that are too short for events."""


class Form(StrEnum):
    """Form of a key as an option."""

    TEXT = "text"
    """One value."""
    LIST = "list"
    """Comma- or space-separated values, or the option several times."""
    FLAG = "flag"
    """``--key``, ``--key=true``, ``--no-key``."""
    SPEC_ONLY = "spec only"
    """Set in a file, or with ``--set key=value``; there is no option."""


class Effect(StrEnum):
    """Effect of a setting on a run."""

    OUTCOME = "outcome"
    TIMING = "timing"
    """The setting changes only how a dispatch is timed, not the verdict of verification."""
    NOTHING = "nothing"
    """Nothing that is stored about a dispatch."""


class Resume(StrEnum):
    """Consequence of another value of a setting for an existing experiment."""

    REFUSED = "refused"
    """A change would make results incomparable: the run needs a new folder."""
    MORE_SAMPLES = "more samples"
    """The setting determines how many samples are taken; those that are there stay."""
    OTHER_LIMITS = "other limits"
    """The setting determines which dispatches are given up; others are not touched by it."""
    SAME_PLAN = "same plan"
    """The setting changes neither the choice of dispatches nor results, and is not in the plan."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a spec."""

    name: str
    panel: str
    form: Form
    text: str
    """Effect in whole sentences: the option's help, and the description in the JSON schema."""
    aliases: tuple[str, ...] = ()
    """Other names of it."""
    short: str = ""
    """One-letter option, such as ``-j``."""
    metavar: str = ""
    """The placeholder for its value in help. TIME is read as a duration in s, BYTES as a size."""
    default: Any = None
    """Value where none is given; for a list, None means empty."""
    unset: str = ""
    """The meaning of an empty value, where the text does not state it."""
    setting: str = ""
    """The field of a run's settings that it sets, if any; the rest is about these."""
    effect: Effect = Effect.OUTCOME
    """Decides where the command that repeats a dispatch names the setting."""
    resume: Resume = Resume.REFUSED
    is_optional: bool = False
    """True: a spec may leave it null, which means the default."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits of a number, as pydantic's ``Field`` takes them: ge, gt, le, lt."""
    choices: tuple[str, ...] = ()
    """The only values of a text; the JSON schema lists them."""
    bare: str = ""
    """Value where the option is given without one."""
    names: tuple[str, ...] = ()
    """The known names of a text, or of the items of a list, in which ``all`` selects all. Another
    name is reported together with those that are similar."""

    @property
    def value(self) -> Any:
        """Value where none is given."""
        return () if self.default is None and self.form is Form.LIST else self.default

    def help(self, own: Any = None) -> str:
        """Help of the option, with the default: `own` where a command has another."""
        if plain(own):
            return f"{self.text.partition(' Default: ')[0]} Default: {plain(own)}."
        default = self.unset or plain(self.default)
        return f"{self.text} Default: {default}." if default else self.text

    @property
    def option(self) -> str:
        """``--problem-m``."""
        return f"--{self.name.replace('_', '-')}"


def plain(value: Any) -> str:
    """A default as it is shown: on, off, a number, a list; "" for nothing."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value in (None, {}) else str(value)


_KEY = "key"


def setting(
    default: Any, text: str, *, key: str = "", form: Form | None = None, **more: Any
) -> Any:
    """A field of a run's settings with its key of a spec.

    Args:
        default: its default, or a function that creates a mapping: what a spec gives is added to
            that.
        text: what it does.
        key: the name of the key; "": that of the field.
        form: how it is written as an option, where the default does not show it.
        more: other attributes of :class:`Key`.
    """
    is_list = callable(default) or isinstance(default, tuple)
    usual = Form.FLAG if isinstance(default, bool) else Form.LIST if is_list else Form.TEXT
    silent = {} if callable(default) else default
    if more.get("is_optional") or default == ():
        silent = None
    declared = Key(key, "", form or usual, text, default=silent, **more)
    if callable(default):
        return field(default_factory=default, metadata={_KEY: declared})
    return field(default=default, metadata={_KEY: declared})


def declarations(owner: Any) -> dict[str, Key]:
    """The keys of the dataclass `owner` by the names of their fields, in order; they lack a panel,
    and a name where it is that of the field."""
    return {f.name: f.metadata[_KEY] for f in fields(owner) if _KEY in f.metadata}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSchedule:
    """The schedule of a profiler; the defaults are those of the grid tracing document."""

    wait_steps: int = 1
    """Launches of each repeat before the profiler warms up."""
    warmup_steps: int = 3
    """Launches while the profiler warms up and discards its events."""
    active_steps: int = 1
    """Launches that the profiler records."""
    repeats: int = 5
    """Number of such cycles; each writes one trace file."""
    chakra_all_steps: bool = False
    """True: the execution trace holds every launch, as in the grid tracing document. False: it
    holds those that the profiler records in the first repeat."""

    @property
    def steps(self) -> int:
        """Total number of launches."""
        return self.repeats * (self.wait_steps + self.warmup_steps + self.active_steps)


_SCHEDULE = TraceSchedule()

RECORDED = {
    "name": "traces", "verification_level": "quick", "wait_steps": _SCHEDULE.wait_steps,
    "warmup_iterations": _SCHEDULE.warmup_steps, "active_steps": _SCHEDULE.active_steps,
    "benchmark_repetitions": _SCHEDULE.repeats,
}  # fmt: skip
"""Keys of a spec -> their values in a request to record that leaves them out."""

_TIMING, _NOTHING = Effect.TIMING, Effect.NOTHING
_MORE, _LIMITS, _SAME = Resume.MORE_SAMPLES, Resume.OTHER_LIMITS, Resume.SAME_PLAN


_POSITIVE, _NOT_NEGATIVE = {"ge": 1}, {"ge": 0}


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """All settings of a run except its operations and providers, in SI units, in the order of
    ``--help``."""

    verify: bool = setting(
        True, "Verify each dispatch before it is timed.", key="verification_enabled")
    verification_providers: tuple[str, ...] = setting(
        ("numpy",), "What computes the reference: numpy, or device (in float64 on the device).",
        metavar="NAMES")
    """The first one available is used."""
    verification_level: str = setting(
        "standard", f"How many checks verification runs: {alternatives(VERIFICATION_LEVELS)}.",
        metavar="NAME", choices=VERIFICATION_LEVELS)
    sanitizers: tuple[str, ...] = setting(
        (), "Tools of compute-sanitizer that check each verified CUDA dispatch: "
        f"{', '.join(SANITIZERS)}, all.", metavar="TOOLS", unset="none", names=SANITIZERS)
    row_invariance: str = setting(
        "off", "Whether the bits of a row may depend on the number of rows: off (not examined), "
        "report (a property of the verdict) or demand (wrong if they do).",
        metavar="NAME", choices=("off", "report", "demand"))
    judge_rivals: bool = setting(
        False, "Also record what the checks of other harnesses would have concluded about each "
        "result (the self-test does).", form=Form.SPEC_ONLY, effect=_TIMING)
    quick: bool = setting(
        False, "Look quickly: verification level quick, one process per provider, six rounds and "
        "wide intervals, unless other options request more. Each result is marked.",
        effect=_TIMING)
    measure: bool = setting(
        True, "Measure the dispatches.", key="profiling_enabled", aliases=("benchmark",),
        effect=_TIMING)
    repetitions: int | None = setting(
        None, "Take exactly this many samples. Default: until the interval is narrow enough.",
        key="benchmark_repetitions", aliases=("repeat_count", "iterations"), metavar="COUNT",
        limits=_POSITIVE, effect=_TIMING, resume=_MORE)
    launches_per_sample: int | None = setting(
        None, "Launches timed as one sample. Default: as many as the clock requires.",
        key="dispatch_repeat_count",
        aliases=("batch_size", "iree_hal_benchmark_dispatch_repeat_count"),
        metavar="COUNT", limits=_POSITIVE, effect=_TIMING)
    warmup_iterations: int = setting(
        3, "Launches before sampling.", metavar="COUNT", limits=_NOT_NEGATIVE, effect=_TIMING)
    warmup_s: float = setting(
        0.0, "Continuous load before sampling: 1s, 500ms. Default: none (see --regime sustained).",
        key="warmup_time", metavar="TIME", is_optional=True, effect=_TIMING)
    """Load in addition to the warm-up iterations."""
    min_samples: int | None = setting(
        None, "Minimum number of samples, however long they take. Default: "
        f"{USUAL_SAMPLES}, or fewer if --time-budget ends first.", metavar="COUNT",
        limits=_POSITIVE, effect=_TIMING, resume=_MORE)
    max_samples: int = setting(
        1000, "Maximum number of samples.", metavar="COUNT", limits=_POSITIVE, effect=_TIMING,
        resume=_MORE)
    processes: int = setting(
        0, f"Worker processes that share the rounds of a dispatch, at most {MOST_PROCESSES}; 0: 3 "
        "on a GPU, 1 elsewhere and with --quick.", metavar="COUNT",
        limits={**_NOT_NEGATIVE, "le": MOST_PROCESSES}, effect=_TIMING)
    time_budget_s: float = setting(
        2.0, "Sampling time of one dispatch: 2s, 500ms.", key="time_budget", metavar="TIME",
        effect=_TIMING, resume=_MORE)
    interval_width: float | None = setting(
        None, "Target for the relative half-width of the median's 95 % interval. Default: 0.005 "
        "on a GPU, 0.02 on a CPU; with --quick 0.03 and 0.05.", metavar="FRACTION",
        limits={"gt": 0, "lt": 1}, effect=_TIMING, resume=_MORE)
    race: bool = setting(
        True, "Stop sampling a candidate that is shown to be over 5 % slower than the fastest of "
        "its operation; its interval stays wider.", effect=_TIMING, resume=_MORE)
    max_seconds_per_launch: float = setting(
        10.0, "Skip a dispatch if one launch takes longer than this.", metavar="TIME",
        resume=_LIMITS)
    """Limit for a single trial launch, made because of a high prediction."""
    deadlines_s: Mapping[Stage, float] = setting(
        lambda: dict.fromkeys(Stage, 120.0) | {Stage.GENERATE: 60.0, Stage.COMPILE: 300.0},
        "Seconds that a stage may take, as in {compile: 300}.",
        key="deadlines", metavar="TIME", form=Form.SPEC_ONLY, resume=_LIMITS)
    regime: str = setting(
        "burst", "Thermal regime: burst, or sustained, which first warms the device up under load.",
        metavar="NAME", choices=REGIMES,
        effect=_TIMING)
    timing_method: str = setting(
        "auto", "How a GPU is timed: graph (replays of captured graphs), events, or auto, which "
        "uses graphs for short launches.", metavar="NAME", choices=TIMING_METHODS,
        effect=_TIMING)
    launches: str = setting(
        APART, "What runs ahead of each timed launch on a GPU: apart (another, small kernel, whose "
        "time is subtracted) or back_to_back (the same kernel).", metavar="NAME",
        choices=LAUNCHES, effect=_TIMING)
    energy: bool = setting(
        False, "Also measure the energy of each dispatch, under some seconds of load.",
        effect=_TIMING)
    cold_cache: bool = setting(
        True, "Rotate through copies of the inputs, so that no launch finds its inputs in a cache.",
        effect=_TIMING)
    distribution: str = setting(
        "offset_uniform", f"Distribution of the inputs: {', '.join(DISTRIBUTIONS)}.",
        metavar="NAME", names=DISTRIBUTIONS)
    seed: int = setting(
        DEFAULT_SEED, "Seed of the inputs.", aliases=("random_seed",), metavar="NUMBER",
        limits=_NOT_NEGATIVE)
    threads: int = setting(
        0, "CPU threads of a provider; 0: all, or an eighth on a GPU.", metavar="COUNT",
        limits=_NOT_NEGATIVE)
    devices: tuple[str, ...] = setting(
        (), "Devices of this machine among which the dispatches are distributed, as in "
        "cuda:0,cuda:1, or all. Without --device the first one names the plan's device.",
        metavar="DEVICES", unset="the one of --device", effect=_NOTHING, resume=_SAME)
    executor: str = setting(
        LOCAL, "Where the dispatches run: local (this machine), or ray (the nodes of a Ray "
        "cluster).", metavar="NAME", effect=_NOTHING, resume=_SAME)
    executor_options: Mapping[str, str] = setting(
        dict, "Options of the executor ray: address, num_gpus, num_cpus, resources, retries.",
        metavar="NAME=VALUE", unset="none", effect=_NOTHING, resume=_SAME)
    shard: str = setting(
        "", "Run one of N parts of the plan, as in 1/2 and 2/2, which merge into one experiment.",
        metavar="K/N", unset="all of the plan", effect=_NOTHING, resume=_SAME)
    jobs: int = setting(
        0, "Parallel compilations; 0 or -1: one per processor.", aliases=("num_cpu",), short="-j",
        metavar="COUNT", limits={"ge": -1}, effect=_NOTHING, resume=_SAME)
    memory_budget_bytes: int = setting(
        0, "Device memory for executables that stay loaded, as in 2GiB; 0: half of what is free.",
        key="memory_budget", metavar="BYTES", limits=_NOT_NEGATIVE, resume=_SAME)
    force_compile: bool = setting(
        False, "Compile again even if the output exists.", effect=_NOTHING, resume=_SAME)
    save_commands: bool = setting(
        False, "Keep the compile and run commands with their output as files.",
        key="save_cmds", aliases=("save_commands",), effect=_NOTHING, resume=_SAME)
    tags: Mapping[str, str] = setting(
        dict, "Extra columns before the others: column:value,...", metavar="COLUMN:VALUE",
        unset="none", effect=_NOTHING)
    trace: TraceSchedule | None = None
    """Schedule of recording each dispatch under a profiler; None: do not record. It is no key of a
    spec: ``trace record`` sets it from the keys of its schedule."""
