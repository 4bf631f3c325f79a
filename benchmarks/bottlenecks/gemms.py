"""Launch products of cuBLAS and of our Triton kernel, for a profiler.

    gemmetry counters collect --nvtx profiled -o gemms -- python benchmarks/bottlenecks/gemms.py
    python benchmarks/bottlenecks/gemms.py torch:matmul_512x512x512_bf16t_bf16n_bf16t

Each product is ``provider:operation`` or ``provider:operation:configuration``. It is launched
without being profiled first (libraries are loaded, kernels are chosen); all kernels of the further
launches are in the NVTX range "profiled". Requires torch, and triton for those products.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch, Target, parse_operation
from gemmetry.hardware.torch_device import open_device
from gemmetry.numerics.inputs import make_inputs
from gemmetry.providers.registry import load_provider

PRODUCTS = (
    "torch:matmul_4096x4096x4096_bf16t_bf16n_bf16t",
    "torch:matmul_8192x1024x8192_bf16t_bf16n_bf16t",
    "torch:matmul_4096x4096x4096_f16t_f16n_f16t",
    "torch:matmul_4096x4096x4096_e4m3t_e4m3n_bf16t",
    "torch:matmul_4096x4096x4096_tf32t_tf32n_f32t",
    "torch:matmul_2048x2048x2048_f32t_f32n_f32t",
    "torch:matmul_16x28672x4096_bf16t_bf16n_bf16t",
    "triton:matmul_4096x4096x4096_bf16t_bf16n_bf16t:default",
    "triton:matmul_4096x4096x4096_bf16t_bf16n_bf16t:tile_64x64x32_warps4_stages2_group1",
    "triton:matmul_16x28672x4096_bf16t_bf16n_bf16t:default",
)
"""Large and small, of each format that tensor cores have on Hopper and of f32, which has none;
decoding with 16 tokens is limited by reading the weights."""

WARM_UPS = 2


@contextmanager
def profiled(target: Target) -> Iterator[None]:
    """The NVTX range "profiled" around all that is submitted and run; nothing on the CPU."""
    if not target.is_gpu:
        yield
        return
    torch.cuda.synchronize()
    with torch.cuda.nvtx.range("profiled"):
        yield
        torch.cuda.synchronize()


def launch(product: str, device: str, launches: int = 1) -> str | None:
    """Launch one product; the reason where it cannot be.

    Args:
        product: ``provider:operation[:configuration]``.
        device: ``cuda:0`` …, or ``cpu``.
        launches: in the range.

    Raises:
        UnknownNameError, RequestError: there is no such provider, operation or configuration.
    """
    name, described, *configurations = product.split(":")
    provider, operation = load_provider(name), parse_operation(described)
    target = next((one for one in provider.targets() if one.device == device), None)
    if target is None:
        return f"the provider does not have {device}"
    if reason := provider.supports(operation, target):
        return reason
    wanted = configurations[0] if configurations else "default"
    configuration = provider.parse_configuration(wanted, operation, target)
    if configuration is None:
        return f"the provider has no configuration {wanted}"
    dispatch = Dispatch(operation, configuration, name, target)
    with tempfile.TemporaryDirectory() as folder:
        executable = provider.build(dispatch, Workspace(generated=Path(folder)))
        opened = open_device(target)
        arrays = make_inputs(operation, distribution="uniform", seed=0)
        inputs = [
            opened.upload(array, spec) for array, spec in zip(arrays, operation.inputs, strict=True)
        ]
        output = opened.allocate(operation.output)
        for _ in range(WARM_UPS):
            executable.run(inputs, output)
        with profiled(target):
            for _ in range(launches):
                executable.run(inputs, output)
        executable.close()
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Launch the products in order, and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("products", nargs="*", default=PRODUCTS)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--launches", type=int, default=1, help="of each product, in the range")
    parser.add_argument("--json", type=Path, help="write what was launched, in order, to this file")
    options = parser.parse_args(arguments)
    done = []
    for product in options.products:
        reason = launch(product, options.device, options.launches)
        print(product, f"left out: {reason}" if reason else "launched", flush=True)
        done += [] if reason else [product] * options.launches
    if options.json:
        options.json.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
