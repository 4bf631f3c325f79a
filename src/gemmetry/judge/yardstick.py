"""Results of any function compared with a reference: by the bounds derived for matrix multiplies
where the reference is one, else by the reference's own error.

The yardstick of other functions is empirical. x is the reference in float64, y the reference in
the format of the inputs, r the tested result. Inputs that change by MOST_MEAN·u change x too; where
this, over MOST_MEAN, is more than |y - x|, it takes its place. No algorithm with a small backward
error avoids it (N. Higham, "Accuracy and Stability of Numerical Algorithms", 1.5). r is right where

* it is infinite or NaN exactly where x is (beyond the range of its format, x counts as infinite);
* every |r - x| is at most MOST·(max|y - x| + u·|x|), u the unit roundoff of r's format;
* rms(r - x) is at most MOST_MEAN·(rms(y - x) + u·rms(x)), of root mean squares.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.domain.operation import DType, Operation
from gemmetry.domain.rows import Row, fact

MOST = 8.0
"""Largest error over what the reference's own error allows: another order of summation, or another
algorithm for the same function, errs a few times as much at its worst element."""

MOST_MEAN = 3.0
"""Largest ratio of root mean squares, which the worst element hardly moves. A narrower accumulator
raises them by the ratio of the unit roundoffs, 8 for bf16 in place of f16."""

Reference = str | Callable[..., Any]


class Checked(Row):
    """One function's result compared with the reference."""

    name: str = fact("function")
    verdict: str = fact("right or wrong")
    basis: str = fact("what the allowed error follows from")
    worst: float | None = fact("largest error over what is allowed, of the worst element or mean")
    accuracy: str = fact("accuracy class of a matrix multiply", default="")
    detail: str = fact("why it is wrong", default="")

    @property
    def is_right(self) -> bool:
        """Whether nothing was found."""
        return self.verdict == "right"


def check_results(
    reference: Reference, arguments: Sequence[Any], results: Mapping[str, Any]
) -> list[Checked]:
    """Compare the result of each function for `arguments` with `reference`.

    Args:
        reference: a function of the same arguments, or the name of an operation whose inputs they
            are, such as ``matmul_64x32x16_f16t_f16t_f16t``.

    Raises:
        RequestError: the reference fails, does not compute in float64, or does not fit the
            arguments.
    """
    operation = _operation(reference, arguments)
    if operation is not None:
        return [_by_bounds(name, operation, arguments, found) for name, found in results.items()]
    assert callable(reference)
    exact = _called(reference, [_widened(one) for one in arguments], "in float64")
    usual = _called(reference, arguments, "in the format of the inputs")
    if any(one.dtype != np.float64 for one in exact):
        raise RequestError(
            "the reference does not stay in float64 when its inputs are",
            hint="Leave out conversions to a narrower format in it.",
        )
    unit = max(_precision(one.dtype)[0] for one in usual)
    step = MOST_MEAN * unit  # a result may err so often; where the change is no line, this counts
    moved = [
        _called(reference, [_moved(_widened(one), step, seed) for one in arguments], "in float64")
        for seed in (0, 1)
    ]
    with np.errstate(invalid="ignore"):
        yardstick = [
            (_float64(x), _float64(y), np.maximum(_change(x, z), _change(x, w)))
            for x, y, z, w in zip(exact, usual, *moved, strict=True)
        ]
    for (x, y, _), kept in zip(yardstick, usual, strict=True):
        _check_consistent(x, y, kept.dtype)
    return [_by_reference(name, yardstick, found) for name, found in results.items()]


def _change(exact: npt.NDArray[np.float64], moved: npt.NDArray[Any]) -> Any:
    """The change of a result for one unit roundoff."""
    return np.abs(_float64(moved) - exact) / MOST_MEAN if exact.shape == moved.shape else 0


def _check_consistent(
    exact: npt.NDArray[np.float64], usual: npt.NDArray[np.float64], dtype: np.dtype[Any]
) -> None:
    """Check a reference in its own format: a wrong one would allow any error.

    Raises:
        RequestError: in its own format it has another shape, or loses half of the digits: the
            root mean square of its errors is above sqrt(u) / 2, of integers above 1/16.
    """
    if exact.shape != usual.shape:
        raise RequestError(f"the reference gives {usual.shape}, and in float64 {exact.shape}")
    finite = np.isfinite(exact) & np.isfinite(usual)
    if not finite.any():
        return
    most = np.sqrt(_precision(dtype)[0]) / 2 or 1 / 16
    error, size = _rms(usual[finite] - exact[finite]), _rms(exact[finite])
    if error > most * size:
        raise RequestError(
            f"the reference contradicts itself: in {dtype} it differs by {error:.2g} from its own "
            f"result in float64, of size {size:.2g} (root mean squares)",
            hint="It has to compute the same function in both, in at least the precision of its "
            "result.",
        )


def _operation(reference: Reference, arguments: Sequence[Any]) -> Operation | None:
    """The operation that the reference stands for; None for another function."""
    if isinstance(reference, str):
        return parse_operation(reference)
    torch = sys.modules.get("torch")
    products = {operator.matmul, np.matmul, *(() if torch is None else (torch.matmul, torch.mm))}
    if reference not in products or len(arguments) != 2:
        return None
    formats = [_format(one) for one in arguments]
    shapes = [tuple(getattr(one, "shape", ())) for one in arguments]
    if None in formats or formats[0] is not formats[1] or [len(s) for s in shapes] != [2, 2]:
        return None
    (m, k), (_, n), name = *shapes, formats[0]
    return parse_operation(f"matmul_{m}x{n}x{k}_{name}t_{name}t_{name}t") if name else None


def _by_bounds(name: str, operation: Operation, arguments: Sequence[Any], found: Any) -> Checked:
    from gemmetry.numerics.bounds import accuracy_class
    from gemmetry.numerics.references import compute_reference
    from gemmetry.verification.comparison import compare

    def wrong(detail: str) -> Checked:
        return Checked(name=name, verdict="wrong", basis=basis, worst=None, detail=detail)

    basis = "bound derived for the operation"
    specs = operation.inputs
    arrays = [
        _host(one, spec.dtype, spec.role) for one, spec in zip(arguments, specs, strict=False)
    ]
    shapes = [spec.storage_shape for spec in specs]
    if [one.shape for one in arrays] != shapes:
        raise RequestError(
            f"the arguments have the shapes {[one.shape for one in arrays]}, "
            f"the operation has {shapes}",
            hint="Pass its operands as they are stored, in the order of its name.",
        )
    try:
        result = _host(_only(found), operation.output.dtype, "result")
    except RequestError as error:
        return wrong(str(error))
    if result.shape != operation.output.storage_shape:
        return wrong(f"its shape is {result.shape}, not {operation.output.storage_shape}")
    errors = compare(operation, result, compute_reference(operation, arrays))
    bad = errors.bad_count
    return Checked(
        name=name,
        verdict="wrong" if bad else "right",
        basis=basis,
        worst=float(errors.max_ratio),
        accuracy=accuracy_class(operation, errors.largest_error),
        detail=f"{bad:,} of {errors.elements:,} elements beyond it" if bad else "",
    )


def _by_reference(name: str, yardstick: Sequence[tuple[Any, ...]], found: Any) -> Checked:
    basis = "error of the reference in the inputs' format (empirical)"
    results = _results(found)
    detail, worst = "", 0.0
    if len(results) != len(yardstick):
        detail = f"it returns {len(results)} results, the reference {len(yardstick)}"
    for place, (result, (exact, usual, moves)) in enumerate(zip(results, yardstick, strict=False)):
        where = f"result {place + 1}: " if len(yardstick) > 1 else ""
        if result.shape != exact.shape:
            detail = detail or f"{where}its shape is {result.shape}, not {exact.shape}"
            continue
        here, what = _ratio(result, exact, usual, moves)
        worst = max(worst, here)
        if what and not detail:
            detail = f"{where}{what}"
    verdict = "wrong" if detail else "right"
    return Checked(name=name, verdict=verdict, basis=basis, worst=worst, detail=detail)


def _ratio(
    result: npt.NDArray[Any],
    exact: npt.NDArray[np.float64],
    usual: npt.NDArray[np.float64],
    moves: Any,
) -> tuple[float, str]:
    """The largest share of what is allowed, and what is wrong."""
    values = _float64(result)
    unit, largest = _precision(result.dtype)
    exact = np.where(np.abs(exact) > largest * (1 + unit), np.copysign(np.inf, exact), exact)
    with np.errstate(invalid="ignore"):
        same = (np.isnan(values) & np.isnan(exact)) | (values == exact)
        differs = ~same & ~(np.isfinite(values) & np.isfinite(exact))
    if differs.any():
        place = tuple(map(int, np.argwhere(differs)[0]))
        return np.inf, f"{values[place]} at {place}, where the reference has {exact[place]}"
    finite = np.isfinite(exact) & np.isfinite(usual)
    moves = np.nan_to_num(moves, posinf=0.0)
    if not finite.any():
        return 0.0, ""
    error = np.abs(values[finite] - exact[finite])
    own = np.maximum(
        np.abs(usual[finite] - exact[finite]), np.broadcast_to(moves, exact.shape)[finite]
    )
    size = np.abs(exact[finite])
    allowed = MOST * (own.max() + unit * size)
    mean = MOST_MEAN * (_rms(own) + unit * _rms(size))
    element = float(np.max(np.divide(error, allowed, out=np.where(error > 0, np.inf, 0.0),
                                     where=allowed > 0)))  # fmt: skip
    average = _rms(error) / mean if mean > 0 else (np.inf if _rms(error) > 0 else 0.0)
    if element > 1:
        place = tuple(map(int, np.argwhere(finite)[np.argmax(error - allowed)]))
        return max(element, average), (
            f"{values[place]:.6g} at {place}, where float64 gives {exact[place]:.6g}"
        )
    if average > 1:
        return average, (
            f"its errors are {_rms(error) / max(_rms(own), 1e-300):.1f} times the reference's "
            "(root mean square)"
        )
    return max(element, average), ""


def _rms(values: npt.NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _precision(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Unit roundoff and largest number of a format; integers and booleans are exact."""
    if dtype.kind in "iub":
        return 0.0, np.inf
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    return float(info.eps) / 2, float(info.max)


def _called(reference: Callable[..., Any], arguments: Sequence[Any], how: str) -> list[Any]:
    try:
        with np.errstate(all="ignore"):  # narrow formats overflow where they should
            found = _results(reference(*arguments))
    except GemmetryError:
        raise
    except (Exception, SystemExit) as error:  # a reference is foreign code
        raise RequestError(
            f"the reference fails {how}: {type(error).__name__}: {error}",
            hint="It has to accept the same arguments in float64.",
        ) from error
    if not found:
        raise RequestError("the reference returns no array", hint="It has to return its results.")
    return found


def _results(found: Any) -> list[npt.NDArray[Any]]:
    """The arrays that a function has returned; a list of numbers is one."""
    parts = found if isinstance(found, (tuple, list)) else (found,)
    if parts and all(isinstance(one, (int, float, np.generic)) for one in parts):
        return [np.asarray(found)]
    return [_array(one) for one in parts if one is not None]


def _only(found: Any) -> Any:
    if isinstance(found, (tuple, list)):
        if len(found) != 1:
            raise RequestError(f"it returns {len(found)} results, the operation has one")
        return found[0]
    return found


def _array(value: Any) -> npt.NDArray[Any]:
    """A host array of a tensor or of anything that numpy takes, in its own format."""
    if _is_tensor(value):
        value = value.detach()
        dtype = _format(value)
        if dtype is None:
            return np.asarray(value.cpu().numpy())
        from gemmetry.hardware.torch_device import to_host

        return np.asarray(to_host(value, dtype))
    return np.asarray(value)


def _host(value: Any, dtype: DType, role: str) -> npt.NDArray[Any]:
    """A host array in the format `dtype`.

    Raises:
        RequestError: it has another format.
    """
    from gemmetry.numerics.storage import numpy_dtype

    array = _array(value)
    if array.dtype != numpy_dtype(dtype):
        raise RequestError(f"the {role} is {array.dtype}, the operation has {dtype}")
    return np.ascontiguousarray(array)


def _format(value: Any) -> DType | None:
    """The format of a tensor's or array's elements; None if operations have no such format."""
    if not isinstance(value, np.ndarray) and not _is_tensor(value):
        return None
    from gemmetry.domain.operation import BF16, E4M3, E5M2, F16, F32, F64, S8, S32
    from gemmetry.numerics.storage import numpy_dtype

    name = str(value.dtype).removeprefix("torch.")
    known = (F32, F64, F16, BF16, E4M3, E5M2, S8, S32)
    return next((one for one in known if numpy_dtype(one).name == name), None)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _float64(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    from gemmetry.numerics.storage import to_float64

    return to_float64(array)


def _moved(value: Any, unit: float, seed: int) -> Any:
    """Floats changed by the relative size `unit` to either side at random, by the seed."""
    if getattr(value, "ndim", 0) == 0 or "float64" not in str(value.dtype):
        return value
    count = math.prod(value.shape)
    signs = np.random.default_rng((count, seed)).choice((-unit, unit), value.shape) + 1
    return value * (value.new_tensor(signs) if _is_tensor(value) else signs)


def _widened(value: Any) -> Any:
    """The argument with floats in float64, on the same device."""
    if _is_tensor(value):
        return value.detach().double() if value.is_floating_point() else value
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "iub" else _float64(value)
    return value
