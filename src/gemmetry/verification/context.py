"""One verification: the launches that checks share, and how results are judged.

Caches references across dispatches (in memory) and across runs (on disk).

Float64 products that a device computes, checked on the host: no device vouches for itself.

A product C of the device is tested by Freivalds' method: C·x and A·(B·x) agree, for vectors x of
random signs that only the host knows, within what float64 rounds. It costs O(MN + MK + KN)
operations instead of MNK. A single wrong element is found with certainty; several errors in one row
escape only if they cancel for every vector.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import operator
import tokenize
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from gemmetry.domain.contracts import Buffer, Executable
from gemmetry.domain.files import completed, remove
from gemmetry.domain.operation import F32, TF32, Operation, operation_name
from gemmetry.domain.record import Trait
from gemmetry.numerics.bounds import bound_rule, rounds_to_tf32
from gemmetry.numerics.inputs import GENERATOR_VERSION
from gemmetry.numerics.references import (
    REFERENCE_VERSION,
    Matmul,
    OperandSizes,
    Reference,
    compute_reference,
    to_logical,
)
from gemmetry.numerics.storage import Array, Float64Array, absolute, same_bytes, to_float64
from gemmetry.verification.after_timing import ReferenceOnDevice, digest_of
from gemmetry.verification.checks import CheckOutcome, CheckResult, failed, passed, warned
from gemmetry.verification.companions import Companions
from gemmetry.verification.comparison import (
    ErrorStatistics,
    Evidence,
    Mask,
    compare,
    compare_exactly,
)
from gemmetry.verification.freivalds import FreivaldsResult, Vectors, freivalds, scan
from gemmetry.verification.guess import guess_bug
from gemmetry.verification.inputs.exact import CaseCache, ExactCase, ExactInputs, case_of
from gemmetry.verification.launching import PLAUSIBLE, Launch, Launcher, Placed, sentinel_mask

MAX_FILE_BYTES = 2**30
"""References above 1 GiB are not written: recomputing them takes about as long as reading them."""

FEWEST_FILE_FLOPS = 10**7
"""References of smaller operations are not written: a reference of 128³ is computed in 0.2 ms, and
written or read in 0.4 ms (one core of an x86 server)."""

MEMORY_BYTES = 2**30
"""Memory limit; the newest reference is always kept, whatever its size."""

_MAGNITUDE_IS_VALUE = "magnitude_is_value"

_Key = tuple[Operation, str, int]
"""Operation, distribution and seed."""

_DAMAGE = (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile,
           tokenize.TokenError)  # fmt: skip
"""Exceptions that numpy raises for a missing or invalid file; it reads array headers with Python's
tokenizer."""


class ReferenceCache:
    """References by operation, distribution and seed; one ``.npz`` file each.

    A file is written under a temporary name and renamed, and every array in it has a CRC, so a
    reader finds a complete file or recomputes. An unwritable folder costs time, not results, and is
    silently ignored.

    Args:
        directory: folder of the files, created when first needed; None: memory only.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._memory: OrderedDict[_Key, Reference] = OrderedDict()
        self._held_bytes = 0

    def get(
        self, operation: Operation, distribution: str, seed: int, compute: Callable[[], Reference]
    ) -> Reference:
        """The reference of `operation` for these inputs: from memory, from disk, or computed."""
        key = (operation, distribution, seed)
        if key in self._memory:
            self._memory.move_to_end(key)
            return self._memory[key]
        if self._directory is None or operation.flops < FEWEST_FILE_FLOPS:
            reference = compute()
        else:
            reference = _stored(self._directory, key, compute)
        self._memory[key] = reference
        self._held_bytes += reference.nbytes
        while len(self._memory) > 1 and self._held_bytes > MEMORY_BYTES:
            self._held_bytes -= self._memory.popitem(last=False)[1].nbytes
        return reference


def _stored(directory: Path, key: _Key, compute: Callable[[], Reference]) -> Reference:
    """The reference read from disk, or computed and written there."""
    operation, distribution, seed = key
    header = {
        "operation": operation_name(operation),
        "distribution": distribution,
        "seed": seed,
        "generator_version": GENERATOR_VERSION,
        "reference_version": REFERENCE_VERSION,
        "numpy": np.__version__,
    }
    text = json.dumps(header, sort_keys=True)
    path = directory / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.npz"
    reference = _read(path, text, operation.output.shape)
    if reference is None:
        reference = compute()
        _write(path, text, reference)
    return reference


def _read(path: Path, header: str, shape: tuple[int, ...]) -> Reference | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if str(arrays["header"]) != header:
                return None
            value = arrays["value"]
            magnitude = value if _MAGNITUDE_IS_VALUE in arrays else arrays["magnitude"]
            extra = arrays.get("extra_rounding")
            sizes = OperandSizes(*map(float, arrays["sizes"])) if "sizes" in arrays else None
    except _DAMAGE:
        # Missing, truncated or damaged: zip members have a CRC that reading checks.
        return None
    if any(part is not None and part.shape != shape for part in (value, magnitude, extra)):
        return None
    return Reference(value, magnitude, extra, sizes)


def _write(path: Path, header: str, reference: Reference) -> None:
    if reference.nbytes > MAX_FILE_BYTES:
        return
    arrays: dict[str, Array] = {"header": np.array(header), "value": reference.value}
    if reference.magnitude is reference.value:
        arrays[_MAGNITUDE_IS_VALUE] = np.array(True)
    else:
        arrays["magnitude"] = reference.magnitude
    if reference.extra_rounding is not None:
        arrays["extra_rounding"] = reference.extra_rounding
    if reference.sizes is not None:
        arrays["sizes"] = np.array(reference.sizes)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("wb") as lock:
            # Of the processes that verify an operation at the same time, one writes; where the file
            # system has no locks, all do.
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            except OSError:
                pass
            try:
                with completed(path) as temporary, temporary.open("wb") as file:
                    np.savez(file, allow_pickle=False, **arrays)
            finally:
                remove(Path(lock.name), inside=path.parent)


VECTORS = 4
"""Number of random vectors: errors that cancel for one with probability 1/2 cancel for all of them
with 1/16, in each row that has any."""

_ROUNDOFF = 2.0**-53


def checked(product: Matmul) -> Matmul:
    """`product`, whose results are replaced by those of the host where they are wrong."""

    def multiply(lhs: Array, rhs: Array) -> Array:
        found = product(lhs, rhs)
        return found if is_product(lhs, rhs, found) else to_float64(lhs) @ to_float64(rhs)

    return multiply


def is_product(lhs: Array, rhs: Array, found: Array) -> bool:
    """Whether `found` is the product of (…, M, K) `lhs` and (…, K, N) `rhs` in float64, as far as
    random vectors show. Rows with numbers that are not finite are not tested.

    The tolerance of row i is (3K + 2N)·2⁻⁵³·(|A||B|·1)_i: at most K roundings in each element of
    the device's sums, and at most N + K on the host on either side (Higham, *Accuracy and Stability
    of Numerical Algorithms*, section 3.1).
    """
    if lhs.ndim > 2:
        return all(is_product(*each) for each in zip(lhs, rhs, found, strict=True))
    depth, columns = rhs.shape
    signs = np.random.default_rng().integers(0, 2, (columns, VECTORS)) * 2.0 - 1.0
    expected = _times(lhs, _times(rhs, signs))
    magnitude = _times(absolute(lhs), _times(absolute(rhs), np.ones((columns, 1))))
    tolerance = (3 * depth + 2 * columns) * _ROUNDOFF * magnitude
    with np.errstate(invalid="ignore"):
        differs = ~(np.abs(_times(found, signs) - expected) <= tolerance)
    return not differs[np.isfinite(tolerance[:, 0]) & np.isfinite(expected).all(axis=1)].any()


def _times(matrix: Array, x: Vectors) -> Float64Array:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(scan(matrix, x=x).right)


HOST_PRODUCT_FLOPS = 1e10
"""Number of FLOPs above which a check's own product is computed in the device's float64, if it has
one: a desktop processor needs about 0.1 s for that many."""

GUESS_LAUNCHES = 6
"""Number of launches that show whether a wrong result changes from one to the next, which exposes
errors in every second to sixth launch."""

_CASES = CaseCache()

INTEGERS = "integers"
"""The check, and the exact run, whose result is kept for comparison with further launches."""


@dataclass
class ExactRun:
    """A launch on exact inputs, judged."""

    case: ExactCase
    launch: Launch
    problem: str
    """Fault of the result's form; such a result is not judged."""
    errors: ErrorStatistics | None

    @property
    def is_right(self) -> bool:
        return self.errors is not None and self.errors.bad is None


@dataclass
class Context:
    """The data that checks examine. Launches are made when they are first needed.

    Two sets of buffers are used. The ``main`` set holds the caller's inputs until the end; the
    other set (:meth:`put`) is allocated while the first is alive, and its contents are replaced in
    place again and again. This gives a kernel that remembers results or descriptors by shape or by
    pointer every opportunity to use a stale one.
    """

    launcher: Launcher
    operation: Operation
    inputs: Sequence[Array]
    reference: Reference | None
    """Reference of `inputs`; None: Freivalds' test is used instead."""
    seed: int
    companions: Companions | None = None
    thorough: bool = False
    """Whether checks with a short and a long form use the long one."""
    check: str = ""
    """Name of the check that runs."""
    evidence: dict[str, Evidence] = field(default_factory=dict)
    """Evidence by check, for failed checks with arrays to save."""
    on_device: ReferenceOnDevice = field(default_factory=ReferenceOnDevice)
    wants_digest: bool = False
    first_digest: str = ""
    """Digest of the first launch's result as it was judged, if `wants_digest`."""
    _exact: dict[str, ExactRun | None] = field(default_factory=dict)
    _other: Placed | None = None
    _kept: list[tuple[Launch, Buffer, str]] = field(default_factory=list)

    @property
    def executable(self) -> Executable:
        return self.launcher.executable

    @cached_property
    def declared(self) -> frozenset[Trait]:
        """The executable's declarations about its arithmetic."""
        return frozenset(self.executable.facts.declared)

    @property
    def may_differ(self) -> bool:
        """Whether launches on the same inputs may differ in their bits."""
        return bool(self.declared & {Trait.NONDETERMINISTIC, Trait.STOCHASTIC_ROUNDING})

    @cached_property
    def _main(self) -> Placed:
        return self.launcher.place(self.inputs)

    @property
    def _main_is_as_given(self) -> bool:
        return all(map(operator.is_, self._main.arrays, self.inputs))

    @property
    def main(self) -> Placed:
        """Buffers with the caller's inputs, which are rewritten where :meth:`put` had to use the
        same buffers."""
        if not self._main_is_as_given:
            self.launcher.rewrite(self._main, self.inputs)
        return self._main

    @cached_property
    def first(self) -> Launch:
        """The launch on the caller's inputs, with the first sentinel, into its own output."""
        launcher = self.launcher
        launch = launcher.launch(self.main, output=launcher.new_output(), check_inputs=True)
        self._keep(launch, "the first launch")
        return launch

    def _keep(self, launch: Launch, what: str) -> None:
        """Copy the result of `launch`, for comparison at the end; not where memory is short."""
        if not launch.returned_type and self.launcher.has_room(self.operation.output.bytes):
            self._kept.append((launch, self.launcher.device.clone(launch.result), what))

    def kept_results(self) -> list[tuple[Launch, Buffer, str]]:
        """Launches whose results nothing may have overwritten since, with a copy of each as it was,
        and what the launch was."""
        return [] if self.second.shares_memory(self.first) else self._kept

    @cached_property
    def second(self) -> Launch:
        """Launch again on the same inputs, into another output with the other sentinel."""
        launcher, first = self.launcher, self.first
        # Where memory is short, the first result is used on the host from here on.
        has_room = launcher.has_room(self.operation.output.bytes) or not first.output.size
        output = launcher.new_output() if has_room else first.result
        sentinel = launcher.sentinels[1]
        launch = launcher.launch(self.main, sentinel=sentinel, output=output, check_inputs=True)
        self._keep(launch, "the second launch")
        return launch

    @property
    def fastest_s(self) -> float:
        """Duration in seconds of the fastest launch so far, of two at least."""
        assert self.first is not None and self.second is not None  # each is made when first needed
        return self.launcher.fastest_s

    @cached_property
    def differs_between_launches(self) -> bool:
        """Whether :data:`GUESS_LAUNCHES` more launches on the caller's inputs give different bits.
        Used only if a result is wrong, to guess why."""
        launcher = self.launcher
        if self.may_differ or self.first.changed_inputs or not self._main_is_as_given:
            return False
        if not launcher.has_room(GUESS_LAUNCHES * self.operation.output.bytes):
            return False
        model, *others = launcher.queue(self.main, GUESS_LAUNCHES, sentinel=launcher.sentinels[0])
        return not all(launch.same_as(model) for launch in others)

    def put(self, inputs: Sequence[Array]) -> Placed:
        """The other buffers with these contents, which are written in place except for the first
        time."""
        if self._other is None:
            size = sum(spec.bytes for spec in self.operation.inputs) + self.operation.output.bytes
            if self.launcher.has_room(size):
                self._other = self.launcher.place(inputs, keep_copies=False)
                return self._other
            self._other = self._main
        if self._other.arrays is not inputs:
            self.launcher.rewrite(self._other, inputs)
        return self._other

    def launch_on(self, inputs: Sequence[Array]) -> Launch:
        """A launch on other inputs in the other buffers, over the first sentinel."""
        return self.launcher.launch(self.put(inputs))

    @cached_property
    def first_errors(self) -> ErrorStatistics:
        """Errors of the first launch; without a reference, those of its sampled elements."""
        if self.reference is None:
            return self.first_sums.statistics
        found = self.compare(self.first, self.reference)
        self._note_digest()
        return found

    @cached_property
    def first_sums(self) -> FreivaldsResult:
        """Result of Freivalds' test on the first launch."""
        found = self.freivalds(self.first)
        self._note_digest()
        return found

    def _note_digest(self) -> None:
        """Note the digest of the first result before a kernel can reuse its memory."""
        if self.wants_digest:
            self.first_digest = digest_of(self.first)

    @cached_property
    def matmul(self) -> Matmul:
        """The matmul for products that checks need themselves."""
        if self.operation.flops > HOST_PRODUCT_FLOPS:
            on_device = self.executable.device.float64_matmul()
            if on_device is not None:
                return checked(on_device)
        return np.matmul

    def reference_of(self, inputs: Sequence[Array]) -> Reference | None:
        """The reference of other inputs; None where that of the main inputs was too expensive."""
        if self.reference is None:
            return None
        return compute_reference(self.operation, inputs, matmul=self.matmul)

    def compare(self, launch: Launch, reference: Reference) -> ErrorStatistics:
        """Compare as :func:`gemmetry.verification.comparison.compare` does, with the executable's
        declarations; on the device if it can, and all elements are within their warn bounds."""
        operation, found = self.operation, None
        is_plain = Trait.STOCHASTIC_ROUNDING not in self.declared
        if is_plain and not operation.signature.lhs.is_integer and not launch.returned_type:
            rule = bound_rule(operation, reference, declared=self.declared)
            found = self.on_device.statistics(
                self.launcher.device, launch.result, operation.output, reference, rule
            )
        return found or compare(operation, launch.output, reference, declared=self.declared)

    def freivalds(self, launch: Launch) -> FreivaldsResult:
        """Test as :func:`gemmetry.verification.freivalds.freivalds` does, with the executable's
        declarations."""
        return freivalds(
            self.operation, launch.inputs, launch.output, seed=self.seed, declared=self.declared
        )

    def case(self, name: str, make: ExactInputs, *, keep: bool = True) -> ExactCase | None:
        """Exact inputs by the name of their check, created once for all dispatches of an operation
        if `keep`.

        Declarations change them: tf32 inputs are integers in tf32, stochastically rounded results
        are compared with a bound of one ulp, and results bounded by norm have no exact sums.
        """
        operation = self.counted(self.operation)

        def fresh() -> ExactCase | None:
            found = make(operation, self.seed, self.matmul, self._rounds_once)
            return None if found is None else self._normwise(operation, found)

        key = (name, self.seed, self._rounds_once, Trait.NORMWISE in self.declared)
        return _CASES.get(operation, key, fresh) if keep else fresh()

    def case_of(
        self, operation: Operation, inputs: tuple[Array, ...], *, signs_are_random: bool = True
    ) -> ExactCase:
        """The exact case of other inputs on which no sum rounds, for a small operation with the
        signature of this one."""
        operation, once = self.counted(operation), self._rounds_once
        found = case_of(operation, inputs, np.matmul, once, signs_are_random=signs_are_random)
        return self._normwise(operation, found)

    @property
    def _rounds_once(self) -> bool:
        return not self.declared & {Trait.NORMWISE, Trait.STOCHASTIC_ROUNDING}

    def counted(self, operation: Operation) -> Operation:
        """`operation` with the input formats whose bits count: tf32 for f32 where that is
        declared."""
        s = operation.signature
        if not rounds_to_tf32(operation, self.declared):
            return operation
        lhs, rhs = (TF32 if dtype is F32 else dtype for dtype in (s.lhs, s.rhs))
        return Operation(replace(s, lhs=lhs, rhs=rhs), operation.shape)

    def _normwise(self, operation: Operation, case: ExactCase) -> ExactCase:
        if Trait.NORMWISE not in self.declared:
            return case
        reference = compute_reference(operation, case.inputs, matmul=self.matmul)
        return ExactCase(case.inputs, None, reference)

    def exact(self, name: str, make: ExactInputs) -> ExactRun | None:
        """The launch on the exact inputs called `name` in the other buffers, made once; None where
        the operation has no such inputs. Only for ``integers`` does its result stay on the
        device."""
        if name not in self._exact:
            case = self.case(name, make)
            self._exact[name] = None if case is None else self.run_exact(name, case)
        return self._exact[name]

    def run_exact(self, name: str, case: ExactCase, placed: Placed | None = None) -> ExactRun:
        """Launch on `case` in the other buffers, or in those of `placed`."""
        placed = placed or self.put(case.inputs)
        sentinel, output = PLAUSIBLE[name == "selects_rhs"], None
        if name == INTEGERS:
            sentinel, output = self.launcher.sentinels[1], self.launcher.new_output()
        return self.judged(case, self.launcher.launch(placed, sentinel=sentinel, output=output))

    def judged(self, case: ExactCase, launch: Launch) -> ExactRun:
        """`launch`, made on the inputs of `case`, with its errors."""
        problem = self.launcher.form_problem(launch)
        errors = None if problem else self.judge_exact(case, launch.output)
        return ExactRun(case, launch, problem, errors)

    def judge_exact(self, case: ExactCase, output: Array) -> ErrorStatistics:
        """Errors of the result `output` on the inputs of `case`."""
        if case.reference is None:
            assert case.expected is not None
            return compare_exactly(self.operation, output, case.expected)
        terms = None if Trait.NORMWISE in self.declared else case.folded_terms
        return compare(
            self.operation, output, case.reference, folded_terms=terms, declared=self.declared
        )

    def verdict_of_exact(self, run: ExactRun, *, guess: bool = True) -> CheckResult:
        """The result of a check from a launch on exact inputs.

        Args:
            guess: as for :meth:`judge`.
        """
        if run.errors is None:
            return failed(run.problem)
        return self.judge(run.launch, run.case.value, run.errors, only_failures=True, guess=guess)

    def judge(
        self,
        launch: Launch,
        expected: Array,
        errors: ErrorStatistics,
        *,
        only_failures: bool = False,
        guess: bool = True,
    ) -> CheckResult:
        """The result of a check from the errors of a launch of the main operation.

        Args:
            guess: state what kind of bug wrong elements suggest; this would mislead where the check
                itself knows more.
        """
        if errors.bad is not None:
            self.keep_evidence(launch, expected, errors.bad)
            text = f"{errors.bad_count} of {errors.elements} elements are wrong"
            if guess:
                text += f" ({self._guess(launch, expected, errors.bad)})"
            return failed(text, errors.first_bad)
        if errors.bias_problem:
            return failed(errors.bias_problem)
        return passed() if only_failures else self.warning(errors)

    def _guess(self, launch: Launch, expected: Array, bad: Mask) -> str:
        """One phrase that describes the wrong elements: they are the output's earlier contents or
        the result of another launch, else where and how they are wrong."""
        mask = sentinel_mask(launch.output, launch.sentinel)
        left = to_logical(mask, self.operation.output).reshape(bad.shape)
        if launch.sentinel and left[bad].all():
            return "unwritten: every wrong element has the previous value of the output"
        source = self._kept_from(launch)
        if source:
            return f"kept: it is the result of {source}, remembered by address, shape or a part"
        tile = self.companions.tile if self.companions is not None else None
        differs = self.differs_between_launches
        return guess_bug(self.operation, launch.output, expected, bad, tile=tile, differs=differs)

    def _kept_from(self, launch: Launch) -> str:
        """Which earlier, correct launch on other inputs gave exactly this result; "" if none."""
        earlier = {
            f"the inputs of {name}": run.launch
            for name, run in self._exact.items()
            if run is not None and run.is_right
        }
        if not self.first_errors.bad_count:
            earlier["the first launch's inputs"] = self.first
        for source, one in reversed(earlier.items()):
            differs = one is not launch and one.inputs is not launch.inputs
            if differs and same_bytes(one.output, launch.output):
                return source
        return ""

    def warning(self, errors: ErrorStatistics) -> CheckResult:
        """Warn where elements are outside the warn bound."""
        if not errors.warned_count:
            return passed()
        return warned(
            f"{errors.warned_count} of {errors.elements} elements have larger errors than usual, "
            f"up to {errors.max_warn_ratio:.2g} times the expected bound"
        )

    def judge_by_bound(self, launch: Launch, reference: Reference | None) -> CheckResult:
        """Judge a launch by its reference, or by Freivalds' test where there is none."""
        problem = self.launcher.form_problem(launch)
        if problem:
            return failed(problem)
        if reference is None:
            return self.judge_sums(launch, self.freivalds(launch))
        return self.judge(launch, reference.value, self.compare(launch, reference))

    def judge_sums(self, launch: Launch, found: FreivaldsResult) -> CheckResult:
        """The result of a check from Freivalds' test."""
        if not found.is_right:
            self.keep_evidence(launch, None, found.mask)
            return failed(found.detail, found.statistics.first_bad)
        result = self.warning(found.statistics)
        return result if result.outcome is CheckOutcome.WARNED else passed(found.detail)

    def keep_evidence(self, launch: Launch, expected: Array | None, bad: Mask | None) -> None:
        """Keep the arrays of a failure for saving."""
        if bad is not None:
            bad = bad.reshape(-1, self.operation.output.shape[-1])
        self.evidence[self.check] = Evidence(
            self.check, self.operation, tuple(launch.inputs), launch.output, expected, bad
        )


def run_check(context: Context, check: Callable[[Context], CheckResult]) -> CheckResult:
    """The result of `check`, under the name of its function."""
    function = check.func if isinstance(check, partial) else check
    context.check = function.__name__.removeprefix("check_")
    result = check(context)
    return result if result.name else replace(result, name=context.check)
