"""Products of few rows on a Hopper GPU: our kernel next to torch, and to reading as many bytes.

    python benchmarks/decode/run.py [--dtype bf16|f16|e4m3] [--shapes 4096x4096 …] [--m 1 4 16]
        [--search]

The variants are those that a sweep tries; ``--search`` adds many more. Weights rotate through
copies of at least three times the L2 cache, so that they come from memory. All candidates of a
shape are captured in graphs of the same number of launches, and the graphs are replayed in turn,
round after round: a time is the median over the rounds, for one launch. ``share`` is the fraction
of the bandwidth with which a plain kernel reads the same weights in the same rounds (the best of a
few of its forms). Before it is timed every variant is checked against float64 on rows of the result
that are drawn at random.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_longlong, c_void_p
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from gemmetry.domain.dispatch import parse_operation
from gemmetry.hardware.cuda_compiler import Cubin, compile_file, compile_kept
from gemmetry.hardware.cuda_driver import Kernel, LoadedPlan, PreparedLaunch
from gemmetry.hardware.cuda_plans import Compilation, Grid
from gemmetry.providers.cuda_provider.decode import KERNELS, DecodeVariant, parse_variant

SHAPES = ("4096x4096", "14336x4096", "4096x14336", "8192x8192", "28672x8192")
"""N and K of weights in models of 8 and 70 billion parameters."""
FORMATS = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
FIELDS = ("direct", "rows", "warps", "stages", "depth", "split", "ahead")
ROUNDS = 9
BYTES_PER_GRAPH = 2e9
(DECODE,) = KERNELS
CACHE = Path(tempfile.gettempdir()) / "gemmetry-decode"

Launch = Callable[[int, int], None]
"""Launches on one copy of the weights and a stream."""


def compiled(compilation: Compilation) -> Cubin:
    return compile_kept(compilation, "sm_90a", CACHE)


def variants() -> list[DecodeVariant]:
    """Many more than the provider tries."""
    found = []
    for rows, warps, depth, ring, ahead in product(
        (16, 32, 64, 112), (4, 8), (1, 2), (48, 96, 176), (False, True)
    ):
        one = DecodeVariant(rows=rows, warps=warps, stages=1, depth=depth, ahead=ahead)
        stages = ring * 1024 // (warps * one.stage_bytes(1, 1))
        if stages >= 2:
            found.append(replace(one, stages=stages))
    found += [
        replace(one, split=2) for one in found
        if one.rows in (32, 64) and one.warps == 8 and one.ahead
    ]  # fmt: skip
    found += [
        DecodeVariant(direct=True, rows=rows, warps=warps, stages=stages)
        for rows, warps, stages in ((16, 16, 2), (32, 16, 1), (32, 8, 2), (64, 8, 1))
    ]
    return found


class Weights:
    """Copies of B, A, and the reference."""

    def __init__(self, m: int, n: int, k: int, dtype: str) -> None:
        generator = torch.Generator("cuda").manual_seed(7)
        size = torch.empty(0, dtype=FORMATS[dtype]).itemsize
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.bytes = n * k * size
        self.copies = max(2, -(-3 * l2 // self.bytes))
        first = torch.randn(n, k, device="cuda", generator=generator).to(FORMATS[dtype])
        self.b = [first, *(first.clone() for _ in range(self.copies - 1))]
        self.a = torch.randn(m, k, device="cuda", generator=generator).to(FORMATS[dtype])
        out = torch.bfloat16 if dtype == "e4m3" else FORMATS[dtype]
        self.c = torch.empty(m, n, device="cuda", dtype=out)
        self.rows = torch.randint(n, (min(n, 512),), device="cuda", generator=generator)
        self.rows = torch.cat([self.rows, torch.tensor([0, n - 1], device="cuda")])
        wide_a, wide_b = self.a.double(), first[self.rows].double()
        self.want, self.size = wide_a @ wide_b.T, wide_a.abs() @ wide_b.abs().T

    def problem(self) -> str:
        """Why C is wrong; "" if it is right."""
        error = (self.c[:, self.rows].double() - self.want).abs()
        roundoff = 2**-8 if self.c.dtype == torch.bfloat16 else 2**-11
        allowed = roundoff * self.want.abs() + 2e-6 * self.size
        worst = float((error / allowed).nan_to_num(1e9).max())
        return "" if worst <= 1 else f"{worst:.3g} times the allowed error"


def launcher(variant: DecodeVariant, weights: Weights, name: str) -> Launch | str:
    """The variant, after it was checked on one launch; else the reason why not."""
    operation = parse_operation(name)
    if reason := DECODE.why_not(operation, variant.configuration):
        return reason
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    plan = DECODE.plan(operation, variant.configuration, processors)
    keep: list[torch.Tensor] = []

    def allocate(size: int) -> int:
        keep.append(torch.zeros(size, dtype=torch.uint8, device="cuda"))
        return int(keep[-1].data_ptr())

    roles = [spec.role for spec in (*operation.inputs, operation.output)]
    loaded = LoadedPlan(plan, roles, compiled, allocate)
    one = torch.ones(1, device="cuda")
    addresses = [
        [
            {"lhs": weights.a, "rhs": b, "result": weights.c}.get(role, one).data_ptr()
            for role in roles
        ]
        for b in weights.b
    ]
    keep.append(one)

    def launch(copy: int, stream: int, keep: Sequence[torch.Tensor] = keep) -> None:
        loaded(addresses[copy], stream)

    for copy in (0, 1, 0):
        weights.c.fill_(float("nan"))
        launch(copy, torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        if problem := weights.problem():
            return f"WRONG: {problem}"
    return launch


def torch_launchers(weights: Weights, dtype: str) -> dict[str, Launch]:
    a, c = weights.a, weights.c
    turned = [b.T for b in weights.b]

    def mm(copy: int, stream: int) -> None:
        torch.mm(a, turned[copy], out=c)

    if dtype != "e4m3":
        return {"torch": mm}
    one = torch.ones((), device="cuda")
    found: dict[str, Callable[[int, int], None]] = {}
    for fast in (False, True):

        def scaled(copy: int, stream: int, fast: bool = fast) -> None:
            torch._scaled_mm(
                a, turned[copy], scale_a=one, scale_b=one, out_dtype=torch.bfloat16,
                use_fast_accum=fast,
            )  # fmt: skip

        found[f"torch{'_fast' if fast else ''}"] = scaled
    return found


def readers(weights: Weights) -> dict[str, Launch]:
    """Kernels that only read the weights."""
    found: dict[str, Launch] = {}
    never = torch.zeros(1, dtype=torch.int32, device="cuda")
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    for name, at_once, per_processor in (
        ("read", 1, 0), ("read", 2, 0), ("read", 4, 0), ("read", 2, 4), ("read", 4, 2),
        ("read", 4, 4), ("read", 8, 2), ("copy", 6, 1), ("copy", 12, 1), ("copy", 24, 1),
        ("copy", 12, 2),
    ):  # fmt: skip
        code = compile_file(
            Path(__file__).parent, "read", (("AT_ONCE", at_once),), "sm_90a", kept_in=CACHE
        )
        kernel = Kernel(code, name)
        blocks = per_processor * processors or -(-weights.bytes // (512 * 16 * at_once))
        dynamic = at_once * 8192 if name == "copy" else 0
        if dynamic:
            kernel.allow_shared_memory(dynamic)
        threads = 32 if dynamic else 512
        prepared = PreparedLaunch(
            kernel, Grid(blocks=(blocks, 1, 1), threads=(threads, 1, 1), dynamic_bytes=dynamic),
            [c_void_p(), c_longlong(weights.bytes), c_void_p(never.data_ptr())],
        )  # fmt: skip

        def launch(
            copy: int, stream: int, prepared: Any = prepared, keep: Any = (kernel, never)
        ) -> None:
            prepared.arguments[0].value = weights.b[copy].data_ptr()
            prepared(stream)

        found[f"{name}_{at_once}x{per_processor}"] = launch
    return found


def times(launchers: dict[str, Launch], weights: Weights) -> dict[str, float]:
    """Microseconds of one launch."""
    count = max(int(BYTES_PER_GRAPH / weights.bytes / weights.copies), 1) * weights.copies
    graphs: dict[str, Any] = {}
    for name, launch in launchers.items():
        for copy in range(weights.copies):
            launch(copy, torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        graphs[name] = graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stream = torch.cuda.current_stream().cuda_stream
            for index in range(count):
                launch(index % weights.copies, stream)
    found: dict[str, list[float]] = {name: [] for name in graphs}
    names = list(graphs)
    for number in range(ROUNDS):
        events = {}
        for name in names[number:] + names[:number]:
            events[name] = (
                torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            )  # fmt: skip
            events[name][0].record()
            graphs[name].replay()
            events[name][1].record()
        torch.cuda.synchronize()
        for name, (start, end) in events.items():
            found[name].append(start.elapsed_time(end) * 1e3 / count)
    return {name: statistics.median(values) for name, values in found.items()}


def swept(name: str) -> list[DecodeVariant]:
    """Those that a sweep of the provider tries for an operation."""
    found = (parse_variant(one.name) for one in DECODE.configurations(parse_operation(name)))
    return [one for one in found if one is not None]


def compile_all(wanted: dict[str, list[DecodeVariant]]) -> None:
    """Compile what the run needs on all cores."""
    needed: dict[Any, None] = {}
    for name, variants_of_it in wanted.items():
        operation = parse_operation(name)
        for variant in variants_of_it:
            if DECODE.why_not(operation, variant.configuration) is None:
                plan = DECODE.plan(operation, variant.configuration, 132)
                needed.update((launch.compilation, None) for launch in plan.launches)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, needed))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", choices=FORMATS, default="bf16")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="NxK of the weights")
    parser.add_argument("--m", nargs="+", type=int, default=[1, 4, 16])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--variants", nargs="+", help="instead of those that a sweep tries")
    which.add_argument("--search", action="store_true", help="many more than a sweep tries")
    parser.add_argument("--top", type=int, default=8)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    asked = [one for name in given.variants or () if (one := parse_variant(name))]
    names = {}
    for shape in given.shapes:
        n, k = map(int, shape.split("x"))
        for m in given.m:
            formats = f"{given.dtype}t_{given.dtype}n_"
            formats += "bf16t_scaletensor" if given.dtype == "e4m3" else f"{given.dtype}t"
            names[m, n, k] = f"matmul_{m}x{n}x{k}_{formats}"
    wanted = {
        name: asked or [*dict.fromkeys(swept(name) + (variants() if given.search else []))]
        for name in names.values()
    }
    compile_all(wanted)
    rows = []
    gains: dict[int, list[float]] = {}
    shares: dict[int, list[float]] = {}
    for (m, n, k), name in names.items():
        weights = Weights(m, n, k, given.dtype)
        others = torch_launchers(weights, given.dtype) | readers(weights)
        own: dict[str, Launch] = {}
        for variant in wanted[name]:
            made = launcher(variant, weights, name)
            if callable(made):
                own[str(variant)] = made
            elif made.startswith("WRONG"):
                print(f"  {variant} {made}")
        measured = times(others | own, weights)
        library = min(t for one, t in measured.items() if one.startswith("torch"))
        reading = min(t for one, t in measured.items() if one.startswith(("read", "copy")))
        rate = weights.bytes / 1e6
        print(
            f"M={m:<2} {n}x{k} {given.dtype}: torch {library:.2f} us ({rate / library:.2f} TB/s), "
            f"read {reading:.2f} us ({rate / reading:.2f} TB/s), {len(own)} variants", flush=True,
        )  # fmt: skip
        print("   " + ", ".join(f"{one} {t:.2f}" for one, t in measured.items() if one not in own))
        ranked = sorted(own, key=measured.__getitem__)
        for best_one in ranked[: given.top]:
            took = measured[best_one]
            print(
                f"   {took:8.2f} us  x{library / took:.3f}  share {reading / took:.3f}  {best_one}"
            )
        gains.setdefault(m, []).append(library / measured[ranked[0]])
        shares.setdefault(m, []).append(reading / measured[ranked[0]])
        for field in FIELDS if given.search else ():
            best: dict[Any, float] = {}
            for own_one in ranked:
                best.setdefault(getattr(parse_variant(own_one), field), measured[own_one])
            values = ", ".join(f"{value}: {best[value]:.2f}" for value in sorted(best))
            print(f"     best by {field}: {values}")
        rows.append({"m": m, "n": n, "k": k, "dtype": given.dtype, "us": measured})
        del weights, own, others
        torch.cuda.empty_cache()
    for m in gains:
        print(
            f"M={m:<2} geometric means of the fastest: x{statistics.geometric_mean(gains[m]):.3f} "
            f"of torch, share {statistics.geometric_mean(shares[m]):.3f}"
        )
    if given.json:
        given.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
