"""A table of a CPU, and a provider of torch products that can go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gemmetry.domain.dispatch import Configuration
from gemmetry.domain.errors import CompileError, LaunchError, UnsupportedError
from gemmetry.domain.record import BuildFacts
from gemmetry.providers.base import BaseProvider
from gemmetry.providers.registry import load_provider
from gemmetry.tuning.dispatcher.table import (
    CUBLAS,
    Certificate,
    DispatchTable,
    MatmulProblem,
    TunedShape,
)

SIGNATURE = "bf16t_bf16n_bf16t"
TILE = {"tile_m": 64, "tile_n": 64, "tile_k": 64}


def entry(m, n, k, signature=SIGNATURE, verdict="faster", **times_ns):
    """An entry with the times of cuBLAS and of configurations of ``blocked``; the first of these
    is chosen if it is faster."""
    times = {CUBLAS if name == "cublas" else f"blocked:{name}": ns for name, ns in times_ns.items()}
    best = min(times, key=lambda name: times[name])
    rival = next((name for name in times if name != CUBLAS), None)
    return TunedShape(
        signature=signature,
        shape=(m, n, k),
        choice=best if verdict == "faster" else CUBLAS,
        verdict=verdict if rival else "",
        ratio=times[rival] / times[CUBLAS] if rival else None,
        times_ns=times,
    )


def certificate(name, signature=SIGNATURE, classes=("any",), digest=""):
    return Certificate(
        signature=signature, candidate=f"blocked:{name}", level="standard", classes=classes,
        operation=f"matmul_128x128x128_{signature}", digest=digest, device="cpu", date="2026-01-01",
    )  # fmt: skip


def table_of(*entries, certified=("a", "b"), target="cpu", device="cpu", **fields):
    names = {name for one in entries for name in one.times_ns if name != CUBLAS}
    signatures = sorted({one.signature for one in entries})
    certificates = [certificate(name, signature) for name in certified for signature in signatures]
    given = {"certificates": tuple(certificates), "parameters": dict.fromkeys(names, TILE)}
    return DispatchTable(target=target, device=device, entries=entries, **given | fields)


class Blocked(BaseProvider):
    """Products by torch in f32, rounded once; each launch is counted. Configurations ``broken``
    and ``failing`` cannot be built and launched, ``illegal`` is refused when it is built, the last
    row of ``wrong`` is."""

    name = "blocked"

    def __init__(self):
        super().__init__()
        self.source = b"source"
        self.launches: list[str] = []
        self.faults: dict[str, Callable[..., None]] = {}
        """Of a configuration, what spoils its results: called with inputs by role and result."""
        self.refuses: Callable[[MatmulProblem], bool] = lambda _problem: False

    def available(self):
        return None

    def supports(self, operation, target):
        m, n, k, _ = operation.matmul_shape
        return "refused" if self.refuses((m, n, k)) else None

    def configurations(self, operation, target):
        return [
            Configuration(name, TILE)
            for name in ("c", "a", "b", "broken", "failing", "illegal", "wrong")
        ]

    def generate(self, dispatches, workspace):
        path = workspace.generated / "kernel.txt"
        path.write_bytes(self.source)
        return [path]

    def build(self, dispatch, workspace):
        from gemmetry.hardware.torch_device import open_device

        if dispatch.configuration.name == "broken":
            raise CompileError("it is broken")
        if dispatch.configuration.name == "illegal":
            raise UnsupportedError("another size, please")
        return BlockedExecutable(self, dispatch, open_device(dispatch.target))


class BlockedExecutable:
    writes_output = True
    facts = BuildFacts()

    def __init__(self, provider, dispatch, device):
        self.provider, self.dispatch, self.device = provider, dispatch, device

    def run(self, inputs, output):
        import torch

        name = self.dispatch.configuration.name
        if name == "failing":
            raise LaunchError("the launch failed")
        self.provider.launches.append(name)
        given = {}
        for tensor, spec in zip(inputs, self.dispatch.operation.inputs, strict=True):
            assert tuple(tensor.shape) == spec.storage_shape
            assert tensor.is_contiguous()
            given[spec.role] = tensor.mT if str(spec.layout) == "n" else tensor
        s = self.dispatch.operation.signature
        value = s.alpha * (given["lhs"].float() @ given["rhs"].float())
        if name == "wrong":
            value[-1] = 0
        if "addend" in given:
            value += s.beta * given["addend"].float()
        for step in s.epilogue:
            is_bias = step == "bias"
            value = value + given[step] if is_bias else getattr(torch.nn.functional, step)(value)
        assert output.is_contiguous()
        output.copy_(value.mT if str(self.dispatch.operation.output.layout) == "n" else value)
        self.provider.faults.get(name, lambda *_: None)(given, output)
        return output

    def close(self):
        pass


@pytest.fixture
def blocked(monkeypatch):
    """The provider, found by its name; all choices are forgotten before and after."""
    from gemmetry.tuning.dispatcher import runtime

    provider = Blocked()
    real = runtime.provider_of
    monkeypatch.setattr(
        runtime, "provider_of", lambda name: provider if name == "blocked" else real(name)
    )
    runtime.use_table(None)
    yield provider
    runtime._tables.clear()
    runtime.reset()


@pytest.fixture
def use(blocked):
    """Use a table whose certificates are of the provider's source."""
    from gemmetry.tuning.dispatcher import runtime
    from gemmetry.tuning.dispatcher.table import dispatch_of, source_digest

    def digest(one):
        dispatch = dispatch_of(one.operation, one.candidate, "cpu", runtime.provider_of)
        return source_digest(blocked, dispatch)

    def run(table):
        certified = tuple(replace(one, digest=digest(one)) for one in table.certificates)
        runtime.use_table(replace(table, certificates=certified))

    return run


def providers(name):
    return Blocked() if name == "blocked" else load_provider(name)
