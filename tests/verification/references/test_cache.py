from __future__ import annotations

import fcntl

import ml_dtypes
import numpy as np
import pytest

from gemmetry.domain.dispatch import parse_operation
from gemmetry.numerics.inputs import make_inputs
from gemmetry.numerics.references import compute_reference
from gemmetry.numerics.storage import to_float64
from gemmetry.verification import context as reference_cache
from gemmetry.verification.context import ReferenceCache, checked, is_product

NAME = "matmul_8x6x32_bf16t_bf16t_bf16t_bias"


@pytest.fixture(autouse=True)
def small_operations_have_files(monkeypatch):
    monkeypatch.setattr(reference_cache, "FEWEST_FILE_FLOPS", 0)


class Compute:
    """Computes the reference and counts how often."""

    def __init__(self, name=NAME, distribution="normal"):
        self.operation, self.distribution = parse_operation(name), distribution
        self.calls = 0

    def __call__(self):
        self.calls += 1
        inputs = make_inputs(self.operation, distribution=self.distribution, seed=42)
        return compute_reference(self.operation, inputs)

    def get(self, cache, seed=42):
        """The reference from a cache, or from a new one in a folder."""
        cache = cache if isinstance(cache, ReferenceCache) else ReferenceCache(cache)
        return cache.get(self.operation, self.distribution, seed, self)


def assert_same(left, right):
    np.testing.assert_array_equal(left.value, right.value)
    np.testing.assert_array_equal(left.magnitude, right.magnitude)
    assert left.value.dtype == right.value.dtype
    assert (left.magnitude is left.value) == (right.magnitude is right.value)
    assert (left.extra_rounding is None) == (right.extra_rounding is None)
    assert left.sizes == right.sizes


@pytest.mark.parametrize(("name", "distribution"), [
    (NAME, "normal"), ("matmul_8x6x32_f32t_f32t_f32t", "offset_uniform"),
    ("matmul_8x6x32_s8t_s8t_s32t", "normal"),
])  # fmt: skip
def test_memory_then_disk_then_compute(tmp_path, name, distribution):
    compute, folder = Compute(name, distribution), tmp_path / "made" / "here"
    cache = ReferenceCache(folder)
    first = compute.get(cache)
    assert compute.get(cache) is first
    again = compute.get(folder)
    assert compute.calls == 1
    assert_same(again, first)
    if name == NAME:
        np.testing.assert_array_equal(again.extra_rounding, first.extra_rounding)


def test_seed_distribution_and_operation_are_kept_apart(tmp_path):
    cache = ReferenceCache(tmp_path)
    Compute().get(cache, seed=1)
    Compute().get(cache, seed=2)
    Compute(distribution="uniform").get(cache, seed=1)
    Compute("matmul_8x6x32_bf16t_bf16t_bf16t").get(cache, seed=1)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("damage", [
    lambda content, array: content[: len(content) // 2],
    lambda content, array: content.replace(array[:4], bytes(4), 1),
    lambda content, array: b"",
    lambda content, array: b"not a zip file at all",
])  # fmt: skip
def test_damaged_file_is_computed_again_and_replaced(tmp_path, damage):
    compute = Compute()
    first = compute.get(tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    damaged = damage(content, first.value.tobytes()[:16])
    assert damaged != content
    path.write_bytes(damaged)
    for _ in range(2):
        assert_same(compute.get(tmp_path), first)
        assert compute.calls == 2


def test_file_of_another_operation_is_not_taken(tmp_path):
    compute = Compute()
    for one in (Compute("matmul_8x6x31_bf16t_bf16t_bf16t_bias"), compute):
        one.get(tmp_path / str(one.operation.matmul_shape.k))
    ((other,), (own,)) = ((tmp_path / k).iterdir() for k in ("31", "32"))
    own.write_bytes(other.read_bytes())
    compute.get(own.parent)
    assert compute.calls == 2


def test_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path):
    (tmp_path / "file").write_text("")
    compute, cache = Compute(), ReferenceCache(tmp_path / "file" / "below")
    assert compute.get(cache) is compute.get(cache)
    assert compute.calls == 1


def _full_disk(*args, **kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("module", "name", "value"), [
    (reference_cache, "FEWEST_FILE_FLOPS", 2 * 8 * 6 * 32 + 1),
    (reference_cache, "MAX_FILE_BYTES", 100), (np, "savez", _full_disk),
])  # fmt: skip
def test_what_is_sooner_computed_than_read_too_large_or_half_written_is_no_file(
    tmp_path, monkeypatch, module, name, value
):
    compute, cache = Compute(), ReferenceCache(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(module, name, value)
        assert compute.get(cache) is compute.get(cache)
    assert compute.calls == 1
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(reference_cache, "FEWEST_FILE_FLOPS", 2 * 8 * 6 * 32)
    compute.get(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_one_of_several_processes_writes(tmp_path):
    """Whoever computes while another one writes has the reference and leaves the file to it; what
    an ended process left hinders nobody."""
    compute = Compute()
    compute.get(tmp_path)
    (path,) = tmp_path.iterdir()
    path.unlink()
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_same(compute.get(tmp_path), compute())
        assert not path.exists()
    compute.get(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_memory_keeps_the_newest_within_its_limit(monkeypatch):
    first, second = Compute(), Compute("matmul_8x6x31_bf16t_bf16t_bf16t_bias")
    monkeypatch.setattr(reference_cache, "MEMORY_BYTES", first().nbytes)
    cache = ReferenceCache()
    for compute in (first, second, second):
        compute.get(cache)
    assert (first.calls, second.calls) == (2, 1)
    first.get(cache)
    assert first.calls == 3


RNG = np.random.default_rng(1)


def _factors(dtype):
    lhs, rhs = RNG.standard_normal((40, 500)), RNG.standard_normal((30, 500))
    return lhs.astype(dtype), rhs.astype(dtype).T  # B as a column-major matrix


def _product(lhs, rhs):
    return to_float64(lhs) @ to_float64(rhs)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16, np.int8])
def test_products_in_float64_pass_in_any_order_of_summation(dtype):
    lhs, rhs = _factors(dtype)
    assert is_product(lhs, rhs, _product(lhs, rhs))
    backwards = _product(np.ascontiguousarray(lhs[:, ::-1]), np.ascontiguousarray(rhs[::-1]))
    assert is_product(lhs, rhs, backwards)


def test_errors_fail():
    lhs, rhs = _factors(np.float32)
    right = _product(lhs, rhs)
    assert not is_product(lhs, rhs, to_float64(lhs @ rhs)), "sums in float32"
    for place in ((0, 0), (17, 29), (39, 3)):
        wrong = right.copy()
        wrong[place] += 1e-7
        assert not is_product(lhs, rhs, wrong)
    for lost in (0, np.nan):
        wrong[5] = lost
        assert not is_product(lhs, rhs, wrong)


def test_batches_are_tested_matrix_by_matrix():
    lhs, rhs = RNG.standard_normal((3, 5, 7)), RNG.standard_normal((3, 7, 4))
    right = lhs @ rhs
    assert is_product(lhs, rhs, right)
    right[2, 4, 3] += 1e-6
    assert not is_product(lhs, rhs, right)


def test_rows_that_are_not_finite_are_not_tested():
    lhs, rhs = _factors(np.float64)
    lhs[3, 4] = np.inf
    assert is_product(lhs, rhs, _product(lhs, rhs))


def test_a_device_that_is_wrong_is_replaced_by_the_host():
    lhs, rhs = _factors(np.float32)
    for factor in (1.001, 1.0):
        calls = []

        def device(a, b, factor=factor, calls=calls):
            calls.append(1)
            result = _product(a, b)
            result[1, 1] *= factor
            return result

        np.testing.assert_array_equal(checked(device)(lhs, rhs), _product(lhs, rhs))
        assert calls == [1]
