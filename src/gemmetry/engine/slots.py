"""The queue of groups from which the slots of a target take work.

A slot: one device that serves a target of the plan.

Which devices of this machine serve a target of the plan, and what of a plan a cluster can do.

Which dispatches are open at the same time: those of one operation, or of several small ones, as far
as the device's memory allows.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from gemmetry.domain.dispatch import Plan, Target, TargetKind, parse_target
from gemmetry.domain.errors import RequestError
from gemmetry.domain.record import Environment
from gemmetry.engine.candidates import Candidate, Job
from gemmetry.engine.experiment import Experiment
from gemmetry.engine.planning import LaneProvider
from gemmetry.engine.process import POLL_S, RunStopped, WorkerContext
from gemmetry.engine.schema import StoredRound
from gemmetry.hardware.host import free_memory_bytes
from gemmetry.measurement.launches import CACHE_FACTOR, FEWEST_SETS, MAX_SETS

Group: TypeAlias = list[Candidate]

MOST_WAITING = 2
"""The groups of one operation that may wait for the slot that measures it before another slot, in
search of the next operation, waits too."""


def unfinished(experiment: Experiment, group: Group) -> Iterator[Group]:
    """What remains of `group` for another device: the dispatches without a record, and each that
    ran when its device was lost alone."""
    open_ = experiment.unfinished([candidate.id for candidate in group])
    suspects = experiment.device_losses()
    others = [one.afresh(alone=False) for one in group if one.id in open_ - suspects.keys()]
    if others:
        yield others
    for one in group:
        if one.id in open_ and one.id in suspects:
            yield [one.afresh(alone=True)]


class GroupQueue:
    """Hands groups to slots, each of which has a key. All groups of an operation go to one slot, so
    that its candidates are compared on one device; a group that a slot could not finish goes to
    another."""

    def __init__(self, groups: Iterator[Group], stop: threading.Event) -> None:
        """`groups` in plan order; `stop` ends the waiting of :meth:`take`."""
        self._groups = groups
        self._stop = stop
        self._changed = threading.Condition()
        self._is_drawn = False
        self._returned: deque[Group] = deque()
        self._waiting: dict[str, deque[Group]] = {}
        self._held: dict[str, deque[Group]] = {}
        self._last: tuple[str, str] = ("", "")
        """The operation of the group that was handed out last, and the slot that has it."""

    def groups(self, slot: str) -> Iterator[Group]:
        """The groups of `slot`, each of which is finished when the next one is requested.

        Raises:
            RunStopped: the run is being ended.
        """
        while (group := self.take(slot)) is not None:
            yield group
            self.finish(slot)

    def finish(self, slot: str) -> None:
        """Note that `slot` has measured the oldest group that it holds."""
        with self._changed:
            self._held[slot].popleft()
            self._changed.notify_all()

    def take(self, slot: str) -> Group | None:
        """The next group of `slot`; None when all groups are measured. Waits while another slot may
        still return one.

        Raises:
            RunStopped: the run is being ended.
        """
        with self._changed:
            held = self._held.setdefault(slot, deque())
            mine = self._waiting.setdefault(slot, deque())
            while True:
                if self._stop.is_set():
                    raise RunStopped
                if (group := mine.popleft() if mine else self._next(slot)) is not None:
                    held.append(group)
                    self._changed.notify_all()
                    return group
                if self._is_drawn and not any(self._held.values()):
                    return None
                self._changed.wait(POLL_S)

    def leave(self, slot: str, remains: Callable[[Group], Iterable[Group]]) -> bool:
        """Hand no more groups to `slot`. What `remains` of the one that it has goes to others, as
        do those that wait for it. Returns whether another slot is there."""
        with self._changed:
            for group in self._held.pop(slot, ()):
                self._returned.extend(remains(group))
            self._returned.extend(self._waiting.pop(slot, ()))
            self._changed.notify_all()
            return bool(self._held)

    def _next(self, slot: str) -> Group | None:
        """A returned group or the next one; None if there is none now."""
        if self._returned:
            return self._returned.popleft()
        while not self._is_drawn:
            operation, owner = self._last
            if owner != slot and len(self._waiting.get(owner, ())) >= MOST_WAITING:
                return None
            group = next(self._groups, None)
            if group is None:
                self._is_drawn = True
            elif group[0].operation_name == operation and owner in self._waiting and owner != slot:
                self._waiting[owner].append(group)
                self._changed.notify_all()
            else:
                self._last = (group[-1].operation_name, slot)
                return group
        return None


@dataclass(frozen=True, slots=True)
class Slot:
    """A device that measures groups of a target, and where its workers run."""

    target: Target
    """The plan's target, with the index and the product of this device."""
    device_id: str
    """What distinguishes it from others of its kind; see :func:`device_id`."""
    context: WorkerContext
    is_only: bool = True
    """Whether no other device can have served the target."""

    def adopt(self, group: Iterable[Candidate]) -> None:
        """Bind candidates to this device, where they are measured and reported."""
        for candidate in group:
            candidate.lane = dataclasses.replace(candidate.lane, target=self.target)

    def continues(self, rounds: Iterable[StoredRound], alike: Collection[str]) -> bool:
        """Whether `rounds` were all taken here, in one of the environments `alike`, so that more
        can be added to them."""
        return all(
            one.environment in alike and one.taken.device_id in ("", self.device_id)
            for one in rounds
        )


def device_id(target: Target, environment: Environment) -> str:
    """The driver's identifier of an NVIDIA GPU, which two cards of one model do not share;
    elsewhere ``host/device``.

    CUDA numbers what ``CUDA_VISIBLE_DEVICES`` lists, and the environment's identifiers are those of
    all GPUs of the host (CUDA C++ programming guide, "CUDA environment variables").
    """
    if target.kind is TargetKind.CUDA and target.index is not None:
        listed = environment.variables.get("CUDA_VISIBLE_DEVICES", "").split(",")
        visible = [part.strip() for part in listed if part.strip()]
        chosen = visible[target.index : target.index + 1] if visible else [str(target.index)]
        known = environment.device_ids
        for text in chosen:
            if text.isdigit() and int(text) < len(known):
                return known[int(text)]
            if text.startswith(("GPU-", "MIG-")):
                return next((one for one in known if one.startswith(text)), text)
    return f"{environment.hostname}/{target.device or target.name}"


ALL = "all"


def serving_devices(names: Sequence[str], lanes: Iterable[LaneProvider]) -> list[Target]:
    """The devices called `names` (``cuda:0`` ...; ``all`` for every one of the kind), each of which
    serves the one target of `lanes`; without names the target itself.

    Raises:
        RequestError: a device does not exist, is of another kind, or serves several targets.
    """
    lanes = list(lanes)
    targets = list(dict.fromkeys(item.lane.target for item in lanes))
    if not names or {target.name for target in targets if target.index is None} >= set(names):
        return []
    if len(targets) != 1:
        raise RequestError(
            f"--devices serves one target, and --device names {len(targets)}: "
            f"{', '.join(target.device or target.name for target in targets)}",
            hint="Use --device alone to measure every dispatch on each device, or --devices alone "
            "to distribute the dispatches.",
        )
    (target,) = targets
    if target.index is None:
        raise RequestError(
            f"--devices needs a device, and {target.name} only compiles",
            hint="Name the devices alone, as in --devices cuda:0,cuda:1.",
        )
    offered = {
        one.device: one
        for item in lanes
        if item.unavailable is None
        for one in item.provider.targets()
        if one.index is not None and one.name == target.name
    }
    found = {target.device: target, **offered}
    here = {one.device: one for one in sorted(found.values(), key=lambda one: one.index or 0)}
    if ALL in names:
        return list(here.values())
    wanted = list(dict.fromkeys(parse_target(name).device or name for name in names))
    if unknown := [name for name in wanted if name not in here]:
        raise RequestError(
            f"there is no device {unknown[0]} that can serve {target.name}",
            hint=f"Such devices here: {', '.join(here)}; --devices all takes all of them.",
        )
    return [here[name] for name in wanted]


def plan_for_nodes(plan: Plan, job: Job, counters: str | None) -> Plan:
    """`plan` as the nodes of a cluster carry it out: a target that only compiles here has devices
    there.

    Raises:
        RequestError: the nodes cannot do what is requested.
    """
    for is_asked, problem in (
        (len(plan.targets) != 1, f"serves one target, and --device names {len(plan.targets)}"),
        (plan.settings.devices, "chooses the devices, and --devices names some of this machine"),
        (not job.uses_device, "measures and verifies; compiling alone runs on this machine"),
        (job.leaves_files,
         "does not record traces, which stay on the machine where they are recorded"),
        (counters is not None, "does not collect hardware counters"),
    ):  # fmt: skip
        if is_asked:
            raise RequestError(
                f"the executor {plan.settings.executor} {problem}",
                hint="Leave out --executor; --shard K/N splits a plan over commands on any "
                "machine.",
            )
    (target,) = plan.targets
    if target.index is None:
        target = dataclasses.replace(target, index=0)
    return dataclasses.replace(plan, targets=(target,))


MAX_GROUP = 64
"""The most dispatches that are open at once. More would lengthen a round, and with it the drift
between the first and the last candidate, beyond the seconds over which a machine is steady."""

SMALL_OPERATION_FLOPS = 1e8
"""Operations up to this size share a group: a launch takes at most milliseconds, and starting a
group costs as much."""

ASSUMED_CACHE_BYTES = 256 << 20
"""The last-level cache assumed while grouping, which is that of AMD's MI300X (Infinity Cache), the
largest of current devices. Sets of inputs are sized by the actual cache."""

UNKNOWN_GPU_BUDGET_BYTES = 4 << 30
"""The budget of the first group on a GPU whose driver does not report its free memory."""


class Budget:
    """The memory that open executables of one device may use together, each in `processes`
    processes."""

    def __init__(self, target: Target, job: Job, processes: int = 1, *, devices: int = 1) -> None:
        """`devices`: how many share the work."""
        self.most_shared = max(1, MAX_GROUP // devices)
        """The most dispatches of different operations in a group. Small operations would otherwise
        all be the work of one device."""
        self.most_open = 1 if job.works_alone else MAX_GROUP
        self._job = job
        self._settings = job.settings
        self._processes = processes
        self._free_bytes = None if target.is_gpu else free_memory_bytes()
        self._expected_bytes: int | None = None

    def expect(self, free_bytes: int) -> None:
        """Note what the driver reports as free before a worker does; the least of several devices
        counts. Zero is not known."""
        if free_bytes > 0:
            self._expected_bytes = min(self._expected_bytes or free_bytes, free_bytes)

    def observe(self, free_bytes: int) -> None:
        """Note the device's free memory; the largest value seen is that of the idle device."""
        if free_bytes > 0:
            self._free_bytes = max(self._free_bytes or 0, free_bytes)

    @property
    def is_known(self) -> bool:
        """Whether the limit is not a guess."""
        return self._free is not None or self._settings.memory_budget_bytes > 0

    @property
    def _free(self) -> int | None:
        return self._expected_bytes if self._free_bytes is None else self._free_bytes

    @property
    def limit_bytes(self) -> int:
        """``settings.memory_budget_bytes``, or half of the free memory."""
        if self._settings.memory_budget_bytes > 0:
            return self._settings.memory_budget_bytes
        free_bytes = self._free
        return UNKNOWN_GPU_BUDGET_BYTES * self._processes if free_bytes is None else free_bytes // 2

    def needed_bytes(self, candidate: Candidate) -> int:
        """An estimate for one open dispatch: its rotating sets of inputs, see
        measurement/launches.py."""
        one_set = max(1, candidate.operation.bytes)
        sets = 1
        if self._settings.cold_cache and self._job.samples:
            wanted = math.ceil(CACHE_FACTOR * ASSUMED_CACHE_BYTES / one_set)
            sets = min(max(FEWEST_SETS, wanted), MAX_SETS)
        return one_set * sets * self._processes


def groups(candidates: Iterable[Candidate], budget: Budget) -> Iterator[list[Candidate]]:
    """Split candidates (in plan order) into groups. An operation is split only where it does not
    fit in a group of its own, so that its candidates are compared in the same rounds."""
    group: list[Candidate] = []
    used = 0
    for _, one_operation in groupby(candidates, key=lambda candidate: candidate.operation_name):
        members = list(one_operation)
        whole = sum(map(budget.needed_bytes, members))
        if group and (
            len(group) + len(members) > budget.most_shared or used + whole > budget.limit_bytes
        ):
            yield group
            group, used = [], 0
        for candidate in members:
            needed = budget.needed_bytes(candidate)
            fits = len(group) < budget.most_open and used + needed <= budget.limit_bytes
            if group and not (fits and _share(group[-1], candidate)):
                yield group
                group, used = [], 0
            group.append(candidate)
            used += needed
    if group:
        yield group


def longest_first(candidates: Iterable[Candidate], most_shared: int) -> list[Candidate]:
    """The candidates in the order of groups that several devices finish at about the same time
    (Graham, *SIAM J. Appl. Math.* 17, 1969): groups that take long first, which are those with more
    dispatches, as each is sampled to about the same width, then those of larger operations. What
    runs alone stays last. `most_shared`: see :class:`Budget`."""
    units: list[list[Candidate]] = []
    for _, one_operation in groupby(candidates, lambda one: (one.runs_alone, one.operation_name)):
        members = list(one_operation)
        shares = units and _share(units[-1][-1], members[0])
        if shares and len(units[-1]) + len(members) <= most_shared:
            units[-1] += members
        else:
            units.append(members)
    units.sort(key=lambda of: (of[0].runs_alone, -len(of), -max(c.operation.flops for c in of)))
    return [candidate for members in units for candidate in members]


def _share(last: Candidate, candidate: Candidate) -> bool:
    same = candidate.operation_name == last.operation_name
    small = max(candidate.operation.flops, last.operation.flops) <= SMALL_OPERATION_FLOPS
    return (same or small) and not (candidate.runs_alone or last.runs_alone)
