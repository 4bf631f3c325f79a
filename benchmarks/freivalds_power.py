"""How often Freivalds' test finds planted bugs, and how often it raises a false alarm.

    python benchmarks/freivalds_power.py --size 512x512x1024 --trials 300

The result of a right kernel (float32 BLAS, rounded once to bf16) is spoilt at random places, one
bug at a time, and judged by ``gemmetry.verification.freivalds`` with other random signs
each time. Printed for each bug are the trials in which it was found, and in brackets those in which
the sums alone found it, without the sample of rows and columns. Deterministic for a seed but for
the BLAS.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.storage import quantize, to_float32, to_float64
from gemmetry.verification.freivalds import freivalds, largest_right_deviation

Matrix = npt.NDArray[np.float64]
Bug = Callable[[Matrix, np.random.Generator, Matrix, Matrix], None]


def right(c: Matrix, rng: np.random.Generator, a: Matrix, b: Matrix) -> None:
    pass


def element_zero(c: Matrix, rng: np.random.Generator, a: Matrix, b: Matrix) -> None:
    c[rng.integers(c.shape[0]), rng.integers(c.shape[1])] = 0


def row_zero(c: Matrix, rng: np.random.Generator, a: Matrix, b: Matrix) -> None:
    c[rng.integers(c.shape[0])] = 0


def last_columns_zero(c: Matrix, rng: np.random.Generator, a: Matrix, b: Matrix) -> None:
    c[:, -8:] = 0


def tiles_exchanged(c: Matrix, rng: np.random.Generator, a: Matrix, b: Matrix) -> None:
    i = 64 * int(rng.integers(c.shape[0] // 64))
    rows = slice(i, i + 64)
    c[rows, :64], c[rows, 64:128] = c[rows, 64:128].copy(), c[rows, :64].copy()


def fragment_rows_exchanged(c: Matrix, rng: np.random.Generator, a: Matrix, b: Matrix) -> None:
    i = int(rng.integers(c.shape[0] - 8))
    c[[i, i + 8]] = c[[i + 8, i]]


def product_lost(c: Matrix, rng: np.random.Generator, a: Matrix, b: Matrix) -> None:
    k = int(rng.integers(a.shape[1]))
    c -= np.outer(a[:, k], b[k])


BUGS: tuple[Bug, ...] = (
    right, element_zero, row_zero, last_columns_zero, tiles_exchanged, fragment_rows_exchanged,
    product_lost,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="512x512x1024", help="MxNxK; M and N from 128 on")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--distributions", default="uniform,normal")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    operation = parse_operation(f"matmul_{options.size}_bf16t_bf16t_bf16t")
    m, n, _, _ = operation.matmul_shape
    for distribution in options.distributions.split(","):
        inputs = make_inputs(operation, distribution=distribution, seed=options.seed)
        a, b = (to_float64(array) for array in inputs)
        product = to_float64(to_float32(inputs[0]) @ to_float32(inputs[1]))
        for vectors in (1, 2, 4):
            limit = largest_right_deviation(vectors, m + n)
            rng = np.random.default_rng(options.seed)
            cells = []
            for bug in BUGS:
                found = by_sums = 0
                for trial in range(options.trials):
                    changed = product.copy()
                    bug(changed, rng, a, b)
                    output = quantize(changed, operation.output.dtype)
                    result = freivalds(operation, inputs, output, seed=trial, vectors=vectors)
                    found += not result.is_right
                    by_sums += result.largest_deviation > limit
                cells.append(f"{bug.__name__} {found} ({by_sums})")
            print(f"{distribution}, {vectors} vectors, of {options.trials}: {', '.join(cells)}")


if __name__ == "__main__":
    main()
