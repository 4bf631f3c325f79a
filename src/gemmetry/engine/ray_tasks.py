"""Groups of dispatches, and commands, as tasks of a Ray cluster.

A task runs the local engine on its node, in a temporary experiment, and returns what that has
found; the driver alone writes the journal. Ray chooses node and device, and runs a task again whose
node was lost, so that at most the groups in flight are measured again.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import math
import os
import pickle
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmetry.domain.dispatch import NamedDispatch, Plan, Target
from gemmetry.domain.errors import (
    DeviceLostError,
    EnvironmentFailure,
    GemmetryError,
    RequestError,
    UnknownNameError,
)
from gemmetry.domain.files import within, write_whole
from gemmetry.domain.record import Environment, Event, Message, Record
from gemmetry.domain.settings import LOCAL
from gemmetry.engine.candidates import Candidate
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.external import GRACE_S, ExternalJob, JobLostError, start_here
from gemmetry.engine.journal import Journal
from gemmetry.engine.process import POLL_S
from gemmetry.engine.schema import StoredRound
from gemmetry.engine.session import CHUNK, chunked
from gemmetry.hardware.detect import own_version
from gemmetry.hardware.host_device import first_line

RETRIES = 3
"""How often a task is run again whose worker, raylet, node or device was lost."""

MOST_IN_FLIGHT = 1024
"""The most tasks that are submitted and not done: enough for a cluster to grow by them, and few
enough that a plan of any size needs little memory."""

TASKS_PER_PLACE = 8
"""The fewest tasks for each place of the cluster, as long as there are operations: the last ones
are then short compared with the run."""

MOST_FILE_BYTES = 32 << 20
"""The largest file that a task returns, such as the evidence of a failure or a compiled kernel."""

CONNECTING_S = 60.0
"""How long a cluster may take to answer."""

_OPTIONS = ("address", "num_cpus", "num_gpus", "resources", "retries")
_HIDDEN = ("node:", "memory", "object_store_memory")
"""Resources of every node, which no task requests."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The resources that a task requests, and how often it is run again."""

    amounts: Mapping[str, float]
    """By the names of Ray: GPU, CPU, and resources of the user's own."""
    retries: int

    def options(self) -> dict[str, Any]:
        """The options of a task."""
        own = {name: amount for name, amount in self.amounts.items() if name not in ("GPU", "CPU")}
        return {
            "num_gpus": self.amounts["GPU"],
            "num_cpus": self.amounts["CPU"],
            "resources": own,
            "max_retries": self.retries,
            # Tasks on the processors of one node would disturb each other's measurements.
            "scheduling_strategy": "DEFAULT" if self.amounts["GPU"] else "SPREAD",
        }

    def places(self, node: Mapping[str, float]) -> int:
        """The number of tasks that run on `node` at the same time."""
        wanted = {name: amount for name, amount in self.amounts.items() if amount > 0}
        return int(min((node.get(name, 0) // least for name, least in wanted.items()), default=1))


def read_needs(options: Mapping[str, str], gpus: int) -> Needs:
    """The needs of a task: `gpus` GPUs, or one processor, unless `options` has others.

    Raises:
        RequestError: an option is unknown or no amount.
    """
    for name in options:
        if name not in _OPTIONS:
            raise UnknownNameError("option of the executor ray", name, _OPTIONS)
    parts = (part.partition(":") for part in options.get("resources", "").split(",") if part)
    amounts = {name.strip(): _amount("resources", amount) for name, _, amount in parts}
    amounts["GPU"] = _amount("num_gpus", options.get("num_gpus", str(gpus)))
    amounts["CPU"] = _amount("num_cpus", options.get("num_cpus", "0" if gpus else "1"))
    return Needs(amounts, int(_amount("retries", options.get("retries", str(RETRIES)))))


def _amount(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise RequestError(
            f"the executor ray's option {name} is {text!r}, which is not an amount",
            hint="Write a number such as 1, and resources=NAME:AMOUNT,NAME:AMOUNT.",
        )
    return value


def connect(options: Mapping[str, str], needs: Needs) -> int:
    """Connect to the cluster, unless this process is. Returns the number of its places for tasks
    that need `needs`.

    Raises:
        RequestError: no node has what a task requests. EnvironmentFailure: no cluster answers.
    """
    if importlib.util.find_spec("ray") is None:
        raise EnvironmentFailure("Ray is not installed", hint="pip install 'gemmetry[ray]'")
    import ray

    address = options.get("address", "auto")
    if not ray.is_initialized() and (problem := _problem_of_connecting(address)):
        which = "of this host" if address == "auto" else address
        raise EnvironmentFailure(
            f"cannot connect to the Ray cluster {which}: {problem}",
            hint="Start one with ray start --head, set RAY_ADDRESS, give the executor's option "
            "address=HOST:PORT, or submit the command to the cluster with ray job submit.",
        )
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    places = sum(map(needs.places, nodes))
    if not places:
        lacking = ", ".join(f"{name} {one:g}" for name, one in needs.amounts.items() if one > 0)
        raise RequestError(
            f"no node of the Ray cluster has what a task requests: {lacking}",
            hint=f"The cluster has {described(nodes)}. Add a node that has it (ray start "
            "--address HOST:PORT --num-gpus 1), choose another device, or change the "
            "executor's options num_gpus, num_cpus and resources.",
        )
    return places


def _problem_of_connecting(address: str) -> str:
    """Connect to the cluster. Returns why that failed; Ray itself tries for minutes."""
    import ray

    problems: list[str] = []

    def connecting() -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
        except (OSError, RuntimeError, ValueError) as error:
            problems.append(first_line(error))

    thread = threading.Thread(target=connecting, daemon=True)
    thread.start()
    thread.join(CONNECTING_S)
    if thread.is_alive():
        return f"it did not answer within {CONNECTING_S:g} s"
    return problems[0] if problems else ""


def described(nodes: Sequence[Mapping[str, float]]) -> str:
    """The resources of `nodes`, equal nodes counted."""
    shown = (sorted(one for one in node.items() if not one[0].startswith(_HIDDEN))
             for node in nodes)  # fmt: skip
    kinds = Counter(", ".join(f"{name} {amount:g}" for name, amount in one) for one in shown)
    parts = (f"{count} × {kind or 'nothing'}" for kind, count in kinds.items())
    return f"{len(nodes)} nodes ({'; '.join(parts)})" if nodes else "no node"


@dataclass(slots=True)
class NodeResults:
    """What a task has found."""

    records: list[tuple[Record, list[StoredRound]]] = field(default_factory=list)
    """Each with its rounds."""
    environments: list[Environment] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    """By their paths in the experiment."""
    warnings: list[str] = field(default_factory=list)
    refusal: str = ""
    """Why the node cannot carry out the plan."""
    hint: str = ""


def work_on_ray(plan: Plan, journal: Journal, candidates: Iterator[Candidate]) -> str:
    """Have the cluster measure `candidates` of `plan`, and journal what it finds. Returns why it
    ended early; "" if it did not.

    Raises:
        RequestError: an option is wrong, or a node cannot carry out the plan.
        EnvironmentFailure: no cluster answers.
    """
    settings = plan.settings
    (target,) = plan.targets
    needs = read_needs(settings.executor_options, int(target.is_gpu))
    todo = list(candidates)
    if not todo:
        return ""
    places = connect(settings.executor_options, needs)
    import ray

    size = max(1, min(CHUNK, len(todo) // (TASKS_PER_PLACE * places)))
    task = ray.remote(measure).options(
        **needs.options(), retry_exceptions=[DeviceLostError], name="gemmetry"
    )
    warned: set[str] = set()
    failures: dict[str, None] = {}
    running: dict[Any, list[Candidate]] = {}
    waiting = chunked(todo, size)
    try:
        while True:
            while len(running) < MOST_IN_FLIGHT and (group := next(waiting, None)):
                running[task.remote(own_version(), pickle.dumps(_part(plan, group)))] = group
            if not running:
                return "; ".join(failures)
            done, _ = ray.wait(list(running), timeout=POLL_S)
            for future in done:
                group = running.pop(future)
                try:
                    results: NodeResults = ray.get(future)
                except ray.exceptions.RayError as error:
                    failures[_reason(error)] = None
                    continue
                if results.refusal:
                    raise RequestError(results.refusal, hint=results.hint)
                for text in results.warnings:
                    if text not in warned:
                        journal.warn(text)
                        warned.add(text)
                _store(results, group, journal)
    finally:
        for future in running:
            ray.cancel(future, force=False)


def _part(plan: Plan, group: Sequence[Candidate]) -> Plan:
    """The plan of one task."""
    named = (
        NamedDispatch(operation=one.operation, provider=one.lane.provider,
                      configuration=one.configuration.name)
        for one in group
    )  # fmt: skip
    options = {one.lane.provider: dict(one.lane.options) for one in group}
    providers = (
        dataclasses.replace(one, options=options[one.name])
        for one in plan.providers
        if one.name in options
    )
    settings = dataclasses.replace(
        plan.settings, executor=LOCAL, executor_options={}, shard="", save_commands=False
    )
    return dataclasses.replace(
        plan, operations=(), selection=None, named=tuple(named), providers=tuple(providers),
        settings=settings, document={"name": plan.name},
    )  # fmt: skip


def _reason(error: Exception) -> str:
    """Why a task that was run again in vain has no results."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, GemmetryError):
        return cause.message
    return f"a task of Ray was lost ({type(error).__name__}): {first_line(error)}"


def _store(results: NodeResults, group: Sequence[Candidate], journal: Journal) -> None:
    """Journal what a task has found of `group`."""
    store = journal.experiment
    numbers = {(one.lane.provider, one.name): one.id for one in group}
    store.add_environments(results.environments)
    for path, data in results.files.items():
        place = within(store.path, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, data)
    records, rounds = {}, []
    for record, taken in results.records:
        number = numbers[record.provider, record.dispatch]
        records[number] = record
        rounds += [dataclasses.replace(one, dispatch=number) for one in taken]
    store.drop_rounds(records)
    journal.add_rounds(rounds, {})
    journal.finish(records)


def measure(version: str, pickled: bytes) -> NodeResults:
    """Carry out a part of a plan on this node; the body of a task.

    Raises:
        DeviceLostError: the device was lost; another node may do better.
    """
    if version != own_version():
        refusal = f"a node of the Ray cluster has gemmetry {own_version()}, and the run {version}"
        return NodeResults(refusal=refusal, hint="Install the same version on all nodes.")
    _end_with_raylet()
    os.environ.pop("OMP_NUM_THREADS", None)  # Ray sets it to the processors of the task.
    from gemmetry.engine.session import run

    plan: Plan = pickle.loads(pickled)  # noqa: S301 - of the driver, as the task itself
    results = NodeResults()

    def listen(event: Event) -> None:
        if isinstance(event, Message) and event.level == "warning":
            results.warnings.append(event.text)

    with tempfile.TemporaryDirectory(prefix="gemmetry-ray-") as folder:
        path = Path(folder) / "experiment"
        try:
            summary = run(_on_this_node(plan), path, listener=listen)
        except RequestError as error:
            results.refusal, results.hint = error.message, error.hint
            return results
        if summary.failure:
            raise DeviceLostError(summary.failure)
        with Experiment.open(path) as found:
            results.environments = list(found.environments().values())
            for number, record in found.numbered_records():
                results.records.append((record, found.rounds([number]).get(number, [])))
        for file in (path / "artifacts").rglob("*"):
            place = file.relative_to(path)
            is_kept = file.is_file() and place.parts[1] != "logs"
            if is_kept and file.stat().st_size <= MOST_FILE_BYTES:
                results.files[place.as_posix()] = file.read_bytes()
    return results


def _on_this_node(plan: Plan) -> Plan:
    """`plan` on the first device of its kind here: Ray shows a task its own devices only.

    Raises:
        RequestError: the device has another architecture.
    """
    from gemmetry.providers.registry import load_provider

    (wanted,) = plan.targets
    for request in plan.providers:
        provider = load_provider(request.name, request.options)
        if provider.available() is not None:
            continue
        for target in provider.targets():
            if (target.kind, target.index or 0) == (wanted.kind, 0) and _fits(target, wanted):
                return dataclasses.replace(plan, targets=(target,))
    return dataclasses.replace(plan, targets=(dataclasses.replace(wanted, index=0),))


def _fits(target: Target, wanted: Target) -> bool:
    if target.index is None and wanted.is_gpu:
        return False
    if wanted.architecture not in ("", target.architecture):
        raise RequestError(
            f"a node of the Ray cluster has {target.name}, and the plan is for {wanted.name}",
            hint="Request nodes by the executor's option resources, or another --device.",
        )
    return True


def _end_with_raylet() -> None:
    """End this process when its raylet is gone: Ray does not, and may give the device to others."""
    raylet = os.getppid()

    def watch() -> None:
        while os.getppid() == raylet:
            time.sleep(POLL_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def job_starter(options: Mapping[str, str], gpus: int) -> Callable[[ExternalJob], RayJob]:
    """A function that starts the commands of jobs on nodes of a Ray cluster, which share the
    folders of the jobs with this machine.

    Args:
        gpus: those that a job needs, unless `options` has another number.

    Raises:
        RequestError: an option is wrong, or no node has what a job needs.
        EnvironmentFailure: no cluster answers.
    """
    needs = read_needs(options, gpus)
    connect(options, needs)
    import ray

    task = ray.remote(run_command).options(**needs.options(), name="gemmetry")

    def start(job: ExternalJob) -> RayJob:
        # What is lacking, the driver finds.
        return RayJob(task.remote(own_version(), dataclasses.replace(job, lacks=str)))

    return start


class RayJob:
    """A command on a node; see :class:`gemmetry.engine.process.LocalProcess`."""

    def __init__(self, future: Any) -> None:
        self._future = future
        self._left: Sequence[str] = ()
        self._was_killed = False

    def wait(self, seconds: float) -> int | None:
        """The exit status, negative for a signal; None if it still runs after `seconds`.

        Raises:
            JobLostError: the node is gone, with all that were tried instead.
        """
        import ray

        if not ray.wait([self._future], timeout=seconds)[0]:
            return None
        try:
            status, self._left, self._was_killed, refusal = ray.get(self._future)
        except ray.exceptions.RayError as error:
            raise JobLostError(_reason(error)) from error
        if refusal:
            raise RequestError(refusal, hint="Install the same version on all nodes.")
        return int(status)

    def end_gently(self, grace_s: float) -> None:
        """See :class:`gemmetry.engine.process.LocalProcess`."""
        import ray

        if not ray.wait([self._future], timeout=0)[0]:
            ray.cancel(self._future)
            ray.wait([self._future], timeout=2 * grace_s)

    def left_running(self) -> Sequence[str]:
        """See :class:`gemmetry.engine.process.LocalProcess`."""
        return self._left

    def was_killed_for_memory(self) -> bool:
        """See :class:`gemmetry.engine.process.LocalProcess`."""
        return self._was_killed


def run_command(version: str, job: ExternalJob) -> tuple[int, Sequence[str], bool, str]:
    """Run a job's command on this node; the body of a task. Returns its exit status, what it left
    running, whether the system killed processes for lack of memory, and why the node refuses it."""
    if version != own_version():
        return 0, (), False, f"a node has gemmetry {own_version()}, and the sweep {version}"
    _end_with_raylet()
    os.environ.pop("OMP_NUM_THREADS", None)
    process = start_here(job)
    status = None
    try:
        while status is None:
            status = process.wait(POLL_S)
    finally:
        process.end_gently(GRACE_S)
    return status, process.left_running(), process.was_killed_for_memory(), ""
