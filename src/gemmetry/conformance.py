"""A conformance suite for providers, in this repository or in a package of its own.

A test file subclasses :class:`ProviderConformance`; pytest (or unittest's runner) does the rest::

    from gemmetry.testing import ProviderConformance

    class TestMine(ProviderConformance):
        provider_class = MyProvider
        operations = ("matmul_37x29x41_f32t_f32n_f32t",)
        refused = ("matmul_8x8x8_s8t_s8t_s32t",)

Each test holds the provider to what ``docs/write-a-provider.md`` and
:class:`gemmetry.domain.contracts.Provider` ask of all of them. pytest is not imported.
"""

from __future__ import annotations

import math
import re
import tempfile
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from gemmetry.domain.contracts import Executable, Provider, Workspace
from gemmetry.domain.dispatch import (
    Configuration,
    Dispatch,
    Target,
    TargetKind,
    parse_operation,
    split_dispatch_name,
)
from gemmetry.domain.errors import DispatchError, UnsupportedError, Verification
from gemmetry.domain.operation import Operation, operation_name
from gemmetry.domain.record import BuildFacts
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.verification.protocol import verify

EVERY_KIND = (
    "matmul_37x29x41_f32t_f32t_f32t",
    "matmul_37x29x41_f64n_f64t_f64n",
    "matmul_37x29x41_f16t_f16n_f16t_accf16",
    "matmul_37x29x41_bf16t_bf16t_f32t_alpha2_beta1_bias_gelu_residual",
    "matmul_37x29x41_tf32t_tf32t_f32t",
    "matmul_37x29x41_s8t_s8n_s32t_beta1_relu",
    "matmul_37x29x41_e4m3t_e5m2n_bf16t_scalerow",
    "matmul_37x29x41_e4m3fnuzt_e4m3fnuzn_f32t",
    "batch_matmul_3x17x5x19_f32n_f32t_f32n_bias",
    "matmul_splitk_16x8x60_f32t_f32n_f32n_slices5",
    "conv2d_2x9x11x5_3x2x7_stride2x1_pad1x2_f32nhwc_f32hwcf_f32nhwc",
    "conv2d_2x9x9x3_3x3x8_stride3x3_pad1x1_s8nhwc_s8hwcf_s32nhwc",
)
"""One operation of every kind, format, modifier and layout that names can express: a provider
takes each on each target, or says why not."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SEED = 7


class ProviderConformance:
    """Tests that every provider must pass. A subclass names the provider and what it can do; its
    tests are skipped, with the provider's reason, where it is not available."""

    provider_class: ClassVar[Callable[[Mapping[str, Any]], Provider]]
    options: ClassVar[Mapping[str, Any]] = {}
    """Given to the provider, as a spec would."""
    target: ClassVar[Target] = Target(TargetKind.CPU)
    """The target of the tests: a device of this machine."""
    operations: ClassVar[Sequence[str]]
    """Names of operations that it computes on the target. Small odd shapes in all the layouts and
    formats that it claims: every configuration of each is built, launched and verified."""
    refused: ClassVar[Sequence[str]] = ()
    """Names of operations that it refuses there."""
    unknown_configuration: ClassVar[str] = "of_nobodys_grammar"
    level: ClassVar[str] = "standard"
    """Level of verification."""

    def test_it_introduces_itself(self) -> None:
        """Name, libraries and notes are what listings and records can show."""
        provider = self.provider()
        _require(
            _NAME.fullmatch(provider.name), f"{provider.name!r} is not a valid name of a provider"
        )
        for library, version in provider.versions().items():
            _require(library and str(version), f"the version of {library!r} is empty")
        _require(all(map(_is_reason, provider.doctor_notes())), "a note for doctor is empty")
        targets = list(provider.targets())
        _require(
            all(isinstance(target, Target) for target in targets),
            "targets() returns something other than Targets",
        )
        kinds = {target.kind for target in targets}
        _require(self.target.kind in kinds, f"targets() lists no {self.target.kind}")

    def test_support_is_claimed_or_refused_with_a_reason(self) -> None:
        """Check that support is claimed by None, and refused by a reason without an exception."""
        provider = self.provider()
        for operation in self._claimed():
            found = provider.supports(operation, self.target)
            _require(found is None, f"{operation_name(operation)} is refused: {found}")
        for name in self.refused:
            found = provider.supports(parse_operation(name), self.target)
            _require(_is_reason(found), f"{name} is refused without a reason: {found!r}")
        for name in (*EVERY_KIND, *self.refused):
            for kind in TargetKind:
                for target in {Target(kind), self.target}:
                    found = provider.supports(parse_operation(name), target)
                    _require(
                        found is None or _is_reason(found),
                        f"supports({name}, {target}) returned {found!r}, which is neither None "
                        "nor a reason",
                    )
                    again = provider.supports(parse_operation(name), target)
                    _require(
                        again == found,
                        f"supports({name}, {target}) returned another answer the second time",
                    )

    def test_configurations_are_listed_alike_each_time(self) -> None:
        """Check that there is at least one, each name once, and the same ones from another
        instance."""
        for operation in self._claimed():
            listed = list(self.provider().configurations(operation, self.target))
            name = operation_name(operation)
            _require(listed, f"{name} has no configuration")
            names = [configuration.name for configuration in listed]
            _require(len(set(names)) == len(names), f"{name} has a name twice: {names}")
            again = list(self.provider().configurations(operation, self.target))
            _require(listed == again, f"{name}: another instance lists other configurations")

    def test_names_parse_back(self) -> None:
        """A listed configuration is found by its name, alone and behind its operation's name."""
        provider = self.provider()
        for operation, configuration in self._listed(provider):
            dispatch = Dispatch(operation, configuration, provider.name, self.target)
            _require(
                split_dispatch_name(dispatch.name) == (operation, configuration.name),
                f"{dispatch.name} is parsed as another operation or configuration",
            )
            found = provider.parse_configuration(configuration.name, operation, self.target)
            _require(found == configuration, f"{dispatch.name} parses to {found}")

    def test_a_name_of_nobodys_grammar_is_none(self) -> None:
        """Check that an unknown name raises nothing: several providers are searched for it in
        turn."""
        provider = self.provider()
        for operation in self._claimed():
            found = provider.parse_configuration(self.unknown_configuration, operation, self.target)
            _require(found is None, f"{self.unknown_configuration!r} parses to {found}")

    def test_what_is_refused_is_not_built_and_costs_no_other(self) -> None:
        """Building a refused dispatch raises its own error; compiled with a good one, it is one of
        two results."""
        provider = self.provider()
        operation, configuration = next(self._listed(provider))
        good = Dispatch(operation, configuration, provider.name, self.target)
        for name in self.refused:
            bad = Dispatch(parse_operation(name), configuration, provider.name, self.target)
            with _workspace() as workspace:
                try:
                    provider.build(bad, workspace).close()
                except UnsupportedError as error:
                    _require(_is_reason(error.message), f"{name} is refused without a reason")
                else:
                    raise AssertionError(f"{name} is refused by supports() and built")
                if not provider.compiles_ahead(self.target):
                    continue
                results = {one.dispatch: one for one in provider.compile([bad, good], workspace)}
                _require(set(results) == {bad, good}, "compile() left a dispatch without a result")
                _require(
                    isinstance(results[bad].error, DispatchError),
                    f"{name} is compiled nevertheless",
                )
                _require(results[good].error is None, f"{good.name}: {results[good].error}")

    def test_every_configuration_is_right(self) -> None:
        """Generated, compiled, built, launched on prepared buffers and verified; closed, and built
        anew."""
        provider = self.provider()
        for operation in self._claimed():
            inputs = make_inputs(operation, distribution="offset_uniform", seed=_SEED)
            reference = compute_reference(operation, inputs)
            with _workspace() as workspace:
                for configuration in provider.configurations(operation, self.target):
                    dispatch = Dispatch(operation, configuration, provider.name, self.target)
                    for path in provider.generate([dispatch], workspace):
                        _require(path.is_file(), f"{dispatch.name}: {path} was not written")
                    executable = provider.build(dispatch, workspace)
                    _check_form(executable, dispatch)
                    verdict = verify(
                        executable, operation, inputs, reference, level=self.level, seed=_SEED
                    )
                    executable.close()
                    _require(
                        verdict.status in (Verification.PASSED, Verification.WARNED),
                        f"{dispatch.name}: {verdict.status}: {verdict.reason}",
                    )
            with _workspace() as workspace:
                executable = provider.build(dispatch, workspace)
                _check_form(executable, dispatch)
                executable.close()

    def test_predictions_are_times(self) -> None:
        """Seconds, or None where the provider has no idea."""
        provider = self.provider()
        for operation, configuration in self._listed(provider):
            dispatch = Dispatch(operation, configuration, provider.name, self.target)
            found = provider.seconds_per_launch(dispatch)
            _require(
                found is None or (math.isfinite(found) and found >= 0),
                f"{dispatch.name} is predicted to take {found} s",
            )

    def provider(self) -> Provider:
        """A new instance.

        Raises:
            unittest.SkipTest: it is not available here; with its reason.
        """
        found = type(self).provider_class(self.options)
        reason = found.available()
        if reason is not None:
            _require(_is_reason(reason), f"available() is {reason!r}: neither None nor a reason")
            raise unittest.SkipTest(reason)
        return found

    def _claimed(self) -> list[Operation]:
        _require(self.operations, "name at least one operation that the provider computes")
        return [parse_operation(name) for name in self.operations]

    def _listed(self, provider: Provider) -> Iterator[tuple[Operation, Configuration]]:
        for operation in self._claimed():
            for configuration in provider.configurations(operation, self.target):
                yield operation, configuration


def _check_form(executable: Executable, dispatch: Dispatch) -> None:
    """One launch by hand: the result is where the executable says it is."""
    operation = dispatch.operation
    _require(isinstance(executable.facts, BuildFacts), f"{dispatch.name}: facts are not BuildFacts")
    device = executable.device
    arrays = make_inputs(operation, distribution="offset_uniform", seed=_SEED)
    buffers = [
        device.upload(array, spec) for array, spec in zip(arrays, operation.inputs, strict=True)
    ]
    output = device.allocate(operation.output)
    result = executable.run(buffers, output)
    device.synchronize()
    _require(
        (result is output) == executable.writes_output,
        f"{dispatch.name}: writes_output is {executable.writes_output}, but run() returned "
        f"{'the' if result is output else 'another than the'} buffer that it was given",
    )
    stored = device.download(result, operation.output)
    _require(
        stored.shape == operation.output.storage_shape,
        f"{dispatch.name}: the result has shape {stored.shape}",
    )


def _is_reason(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _require(condition: object, message: str) -> None:
    """`assert` that ``python -O`` keeps, and whose message needs no rewriting by pytest."""
    if not condition:
        raise AssertionError(message)


@contextmanager
def _workspace() -> Iterator[Workspace]:
    with tempfile.TemporaryDirectory(prefix="gemmetry-conformance-") as folder:
        yield Workspace(generated=Path(folder) / "generated")
