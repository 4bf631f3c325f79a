"""Whether settings took effect, for launches as NCCL's sources give them and for planted ones."""

from __future__ import annotations

from gemmetry.sweeps.nccl_settings import collective_kinds, setting_verdicts, sweep_verdicts

KIND = ("library", "is_no_tree", "is_point_to_point", "launches", "duration_ns", "bytes", "ranks",
        "judged", "channels", "block", "unlike")  # fmt: skip


def judged(case, point, facts, launch):
    """Kinds of collectives and verdicts of each point; after a line ``sweep`` also of all."""
    made = []
    calls = case.calls()
    for what, _, given in calls:
        if what == "point":
            made.append((point(**given), {}, []))
        elif what == "rank":
            made[-1][1].update(given)
        elif what == "launch":
            made[-1][2].append(launch(**given))
    points = []
    for one, head, launches in made:
        ranks = [facts(*launches, **head)]
        points.append((one, setting_verdicts(one, ranks), ranks))
        yield f"{one.label}:"
        for kind in collective_kinds(ranks):
            yield (kind.label, {name: getattr(kind, name) for name in KIND})
        for found in points[-1][1]:
            values = {name: getattr(found, name) for name in ("seen", "verdict", "reason")}
            yield (found.name, values)
            for kind in found.collectives:
                yield (f"  {kind.operation}", {"verdict": kind.verdict})
    for found in sweep_verdicts(points) if calls[-1][0] == "sweep" else ():
        values = {name: getattr(found, name) for name in ("values", "verdict", "reason")}
        yield (f"all: {found.name}", values)


def test_verdicts(case, point, facts, launch):
    case.check(judged(case, point, facts, launch))
