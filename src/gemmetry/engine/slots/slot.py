"""A slot: one device that serves a target of the plan, on this machine or another."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gemmetry.domain.record import Environment
from gemmetry.domain.target import Target, TargetKind
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.workers.process import WorkerContext
from gemmetry.store.rows import StoredRound


@dataclass(frozen=True, slots=True)
class Slot:
    """A device that measures groups of a target, and where its workers run."""

    target: Target
    """The plan's target, with the index and the product of this device."""
    device_id: str
    """What distinguishes it from others of its kind; see :func:`device_id`."""
    environment_id: str
    context: WorkerContext
    """Of its workers."""
    alike: Collection[str] = ()
    """The ids of environments that agree with its own."""
    name: str = ""
    """For messages."""
    is_only: bool = True
    """Whether no other device can have served the target."""

    def adopt(self, group: Iterable[Candidate]) -> None:
        """Bind candidates to this device, where they are measured and reported."""
        for candidate in group:
            candidate.lane = dataclasses.replace(candidate.lane, target=self.target)

    def continues(self, rounds: Iterable[StoredRound]) -> bool:
        """Whether `rounds` were all taken here, so that more can be added to them."""
        return all(
            one.environment in self.alike
            and one.document.get("device_id", "") in ("", self.device_id)
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
