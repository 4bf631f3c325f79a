"""Which small shapes verification will build, so that they are compiled before it needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from gemmetry.domain.contracts import Provider
from gemmetry.domain.names import operation_name
from gemmetry.domain.operation import Operation
from gemmetry.domain.settings import RunSettings
from gemmetry.engine.dispatches.candidate import Candidate
from gemmetry.engine.dispatches.companion_builder import shapes_of, stages_of
from gemmetry.verification.checks.contents import contents_sizes
from gemmetry.verification.checks.long_axes import long_sizes
from gemmetry.verification.companions import (
    DEFAULT_TILE,
    Companions,
    covering_operations,
    rounded_options,
    tail_operations,
    whole_tile,
)


class CompanionsAhead:
    """Lists the shapes with which level standard tests a configuration, once for each.

    They are compiled in parallel while the first dispatches are built and verified; a shape that is
    not ready, or that does not compile, is built where it is tested.
    """

    def __init__(self, providers: Mapping[int, Provider], settings: RunSettings) -> None:
        """`providers`: by the number of their lanes."""
        self._providers = providers
        self._is_needed = settings.verify and settings.verification_level != "quick"
        self._seed, self._level = settings.seed, settings.verification_level
        self._known: set[tuple[object, ...]] = set()
        self._number = 0

    def of(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The shapes that verifying `candidates` needs, other than for earlier ones, as candidates
        whose numbers are those of no dispatch."""
        found: list[Candidate] = []
        for candidate in candidates if self._is_needed else ():
            lane, configuration = candidate.lane, candidate.configuration
            provider = self._providers[lane.id]
            key = (
                lane.id, configuration.name, candidate.operation.signature, configuration.tile,
            )  # fmt: skip
            if key in self._known or not provider.rebuilds_quickly:
                continue
            self._known.add(key)
            for operation in _shapes(candidate, provider, self._seed, self._level):
                self._number -= 1
                own = provider.parse_configuration(configuration.name, operation, lane.target)
                if own is not None:
                    name = operation_name(operation)
                    found.append(Candidate(self._number, lane, operation, name, own))
        return found


def _shapes(candidate: Candidate, provider: Provider, seed: int, level: str) -> Iterator[Operation]:
    operation, configuration = candidate.operation, candidate.configuration
    companions = Companions(
        lambda _: None,
        configuration.tile,
        stages_of(configuration),
        most_shapes=shapes_of(provider, operation, candidate.lane.target, level),
    )
    whole = whole_tile(operation, companions)
    choices = chain(
        () if whole is None else ((whole,),),
        tail_operations(operation, companions, thorough=False),
        (
            rounded_options(operation, sizes)
            for sizes in long_sizes(configuration.tile or DEFAULT_TILE)
        ),
        (
            rounded_options(operation, sizes, as_batch=True)
            for sizes in chain(*contents_sizes(companions, seed))
        ),
        covering_operations(operation, companions, seed),
    )
    listed = set()
    for options in choices:
        supported = [
            one for one in options if provider.supports(one, candidate.lane.target) is None
        ]
        if supported and supported[0] not in listed:
            listed.add(supported[0])
            yield supported[0]
