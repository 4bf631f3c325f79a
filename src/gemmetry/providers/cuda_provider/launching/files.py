"""The sources of a plan as files."""

from __future__ import annotations

from importlib.resources import files

from gemmetry.devices.cuda_plans import LaunchPlan


def sources_of(plan: LaunchPlan) -> dict[str, bytes]:
    """File name -> content: the sources of all launches, and the headers of their folders."""
    found: dict[str, bytes] = {}
    for source in dict.fromkeys(launch.compilation.source for launch in plan.launches):
        *folders, name = source.split("/")
        folder = files("gemmetry.kernels").joinpath(*folders)
        for entry in folder.iterdir():
            if entry.name == f"{name}.cu" or entry.name.endswith(".cuh"):
                found[entry.name] = entry.read_bytes()
    return found
