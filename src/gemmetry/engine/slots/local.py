"""Which devices of this machine serve a target of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmetry.domain.errors import RequestError
from gemmetry.domain.target import Target, parse_target
from gemmetry.engine.planning import LaneProvider

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
    unknown = [name for name in wanted if name not in here]
    if unknown:
        raise RequestError(
            f"there is no device {unknown[0]} that can serve {target.name}",
            hint=f"Such devices here: {', '.join(here)}; --devices all takes all of them.",
        )
    return [here[name] for name in wanted]
