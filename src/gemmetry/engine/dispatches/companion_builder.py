"""Builds the configuration under test for other operations, for checks that need shapes with
tails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import Configuration, Dispatch
from gemmetry.domain.operation import Operation
from gemmetry.domain.target import Target
from gemmetry.verification.checks import CheckResult
from gemmetry.verification.companions import Companions, most_shapes

_Key = tuple[str, object, object]


class CompanionBuilder:
    """Companions of one provider's dispatches. Their results are kept for the worker's lifetime, so
    that a sweep over shapes verifies the tails of a configuration only once."""

    def __init__(
        self,
        provider: Provider,
        workspace: Workspace,
        guard: Callable[[Executable, Dispatch], Executable] = lambda executable, _: executable,
    ) -> None:
        """`guard` wraps each executable that is built for a dispatch."""
        self._guard = guard
        self._provider = provider
        # Forced recompilation is for the dispatches of the plan; their tails may come from the
        # cache.
        self._workspace = replace(workspace, force=False)
        self._known: dict[_Key, dict[str, CheckResult]] = {}

    def companions(self, dispatch: Dispatch, level: str) -> Companions | None:
        """The companions of `dispatch`; None if building them costs more than `level` allows."""
        if level == "quick" or not (self._provider.rebuilds_quickly or level == "paranoid"):
            return None
        configuration = dispatch.configuration
        key = (configuration.name, dispatch.operation.signature, configuration.tile)

        def build(operation: Operation) -> Executable | None:
            return self._build(dispatch, operation)

        return Companions(
            build,
            configuration.tile,
            stages_of(configuration),
            most_shapes=shapes_of(self._provider, dispatch.operation, dispatch.target, level),
            known=self._known.setdefault(key, {}),
        )

    def _build(self, dispatch: Dispatch, operation: Operation) -> Executable | None:
        provider, target = self._provider, dispatch.target
        if provider.supports(operation, target) is not None:
            return None
        configuration = provider.parse_configuration(dispatch.configuration.name, operation, target)
        if configuration is None:
            return None
        built = Dispatch(operation, configuration, dispatch.provider, target)
        return self._guard(provider.build(built, self._workspace), built)


def shapes_of(provider: Provider, operation: Operation, target: Target, level: str) -> int | None:
    """How many shapes of the covering set a configuration of `provider` is tried on; None: all."""
    return most_shapes(target, level, len(list(provider.configurations(operation, target))))


def stages_of(configuration: Configuration) -> int | None:
    """Depth of the configuration's pipeline, if it names one."""
    stages = configuration.parameters.get("stages", configuration.parameters.get("num_stages"))
    return stages if isinstance(stages, int) and stages > 0 else None
