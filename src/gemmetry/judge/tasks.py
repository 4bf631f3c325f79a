"""Tasks: what a submission has to compute, in the forms in which projects publish them.

=====================  =============================================================================
form                   where it is from
=====================  =============================================================================
an operation's name    gemmetry: ``matmul_512x512x512_bf16t_bf16n_bf16t``
a problem file (.py)   KernelBench: ``Model``, ``get_inputs``, ``get_init_inputs``
``task.yml``           GPU MODE: ``reference.py`` with ``generate_input`` and ``ref_kernel``
a Definition (.json)   FlashInfer-Bench: axes, inputs, outputs, ``reference``; optionally Workloads
=====================  =============================================================================

A task's own files are trusted: they are what the submission is judged by, and run in this process.

Submissions: foreign code that claims to compute a task.

A Python file (also with Triton kernels in it) has the function or class that the task's form names:
``ModelNew`` (KernelBench), ``custom_kernel`` (GPU MODE), ``run`` (FlashInfer-Bench); otherwise the
one that is given as ``file.py:function``. A Solution of FlashInfer-Bench is JSON with the sources.
A ``.cu`` file becomes a Python file that builds it as a torch extension, in the confined process.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from gemmetry.domain.dispatch import parse_operation
from gemmetry.domain.errors import GemmetryError, RequestError
from gemmetry.domain.opening import MOST_TEXT_BYTES, parsed_json, read_whole, why_unreadable
from gemmetry.domain.operation import BF16, F16, F32, F64, Layout, Operation, OperationKind
from gemmetry.domain.units import format_bytes

ARENA_BYTES = 2**32
"""Memory that judge and submission share; only what is used is taken."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Computation that a submission must perform."""

    name: str
    form: str
    """``operation``, ``kernelbench``, ``gpumode`` or ``flashinfer``."""
    make: Callable[[int], tuple[Any, ...]] = field(repr=False)
    """Seed -> new arguments: tensors on the host, numbers, texts."""
    reference: Callable[..., Any] | None = field(default=None, repr=False)
    """Computes the result from such arguments, also in float64; None for an operation."""
    operation: Operation | None = None
    initial: tuple[Any, ...] = ()
    """Arguments of the submission's class."""
    entry: str = ""
    """Name that a submission's function or class has by convention; "": it is given."""
    packs: bool = False
    """The arguments are passed as one tuple."""
    source: str = field(default="", repr=False)
    """Python of the function that submissions are compared with; "": there is none."""
    source_entry: str = ""
    allows_libraries: bool = True
    """Whether a submission may call a vendor's library, such as cuBLAS, or torch's products."""
    seed: int = 0
    """Seed before the submission's class is made, so that its weights are the reference's."""


def read_task(text: str, workloads: Path | None = None) -> Task:
    """The task that `text` names: an operation, or the path of a file or folder.

    Args:
        workloads: FlashInfer-Bench's Workloads (.json or .jsonl), of which the first is taken.

    Raises:
        RequestError: the file does not exist, or is no task.
    """
    path = Path(text)
    if path.is_dir():
        path /= "task.yml"
    if path.suffix in (".yml", ".yaml"):
        return _gpumode(path)
    if path.suffix == ".py":
        return _kernelbench(path)
    if path.suffix == ".json":
        return _flashinfer(path, workloads)
    return _operation(text)


def read_small(path: Path) -> str:
    """The text of a file of a task or submission.

    Raises:
        RequestError: the file cannot be read, is too large, or is no UTF-8.
    """
    try:
        return read_whole(path, most=MOST_TEXT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RequestError(f"{path}: {why_unreadable(error)}") from error


@contextmanager
def _foreign(what: str) -> Iterator[None]:
    """Run a task's code inside, and convert its exceptions into the task's error.

    Raises:
        RequestError: the code raised, or ended the process.
    """
    try:
        yield
    except GemmetryError:
        raise
    except (Exception, SystemExit) as error:  # a task's file is foreign code
        raise RequestError(f"{what}: {type(error).__name__}: {error}") from error


def _checked(path: Path, make: Callable[[int], Any]) -> Callable[[int], tuple[Any, ...]]:
    """`make` with its errors as the task's, and its result as a tuple of arguments."""

    def made(seed: int) -> tuple[Any, ...]:
        with _foreign(f"{path} makes no inputs"):
            found = make(seed)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        size = sum(getattr(one, "nbytes", 0) for one in found)
        if not size:
            raise RequestError(f"{path} makes no inputs", hint="Return at least one tensor.")
        check_size(size, str(path))
        return found

    return made


def _reference(path: Path, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` without gradients, with its errors as the task's."""
    import torch

    def reference(*arguments: Any) -> Any:
        with _foreign(f"the reference of {path} fails"), torch.no_grad():
            found = function(*arguments)
        if found is None:
            raise RequestError(f"the reference of {path} returns nothing")
        return found

    return reference


def check_size(size_bytes: int, what: str) -> None:
    """Reject what the shared memory cannot hold several times.

    Raises:
        RequestError: it has more than an eighth of that memory.
    """
    if size_bytes > ARENA_BYTES // 8:
        raise RequestError(
            f"{what} takes {format_bytes(size_bytes)} a launch",
            hint=f"At most {format_bytes(ARENA_BYTES // 8)} are judged; choose smaller shapes.",
        )


def _operation(name: str) -> Task:
    from gemmetry.numerics.inputs import make_inputs

    operation = parse_operation(name)
    check_size(operation.bytes, name)
    return Task(
        name=name,
        form="operation",
        operation=operation,
        make=lambda seed: make_inputs(operation, distribution="offset_uniform", seed=seed),
        source=_product(operation),
        source_entry="product",
    )


def _product(operation: Operation) -> str:
    """Torch's own product; "" for operations that are more than one product of one format."""
    s = operation.signature
    plain = (
        operation.kind is OperationKind.MATMUL and not s.epilogue and s.alpha == 1 and not s.beta
    )
    if not plain or not s.lhs == s.rhs == s.result or s.lhs not in (F64, F32, F16, BF16):
        return ""
    a, b, c = (
        ".t()" if spec.layout is Layout.COLUMN else ""
        for spec in (*operation.inputs, operation.output)
    )
    result = f"(a{a} @ b{b}){c}" + (".contiguous()" if c else "")
    return f"def product(a, b):\n    return {result}\n"


CUBLASLT = """\
from pathlib import Path

import torch

from gemmetry.domain.contracts import Workspace
from gemmetry.domain.dispatch import Dispatch
from gemmetry.domain.dispatch import parse_operation
from gemmetry.hardware.torch_device import gpu_targets, stored_shape, torch_dtype
from gemmetry.providers.cublaslt_provider.provider import CublasLtProvider

operation = parse_operation("{name}")
provider, target = CublasLtProvider({{}}), gpu_targets()[torch.cuda.current_device()]
if reason := provider.supports(operation, target):
    raise ValueError(reason)
configuration = provider.parse_configuration("best", operation, target)
executable = provider.build(
    Dispatch(operation, configuration, provider.name, target), Workspace(generated=Path.cwd())
)
shape, dtype = stored_shape(operation.output), torch_dtype(operation.output.dtype)


def product(*operands):
    return executable.run(operands, torch.empty(shape, dtype=dtype, device=operands[0].device))
"""
"""Python of the best algorithm of cuBLASLt for the operation `name`, in a function ``product``."""


def _module(path: Path, text: str, needed: Sequence[str]) -> Any:
    """The module of a task's file, which has the names `needed`.

    Raises:
        RequestError: the file does not import, or lacks a name.
    """
    module = type(sys)(f"task_{abs(hash(text))}")
    module.__file__ = str(path)
    sys.path.insert(0, str(path.parent))
    try:
        with _foreign(f"{path} does not import"):
            exec(compile(text, str(path), "exec"), module.__dict__)
    finally:
        sys.path.remove(str(path.parent))
    for name in needed:
        if not hasattr(module, name):
            raise RequestError(f"{path} has no {name}", hint=f"A task has {', '.join(needed)}.")
    return module


def _torch(what: str) -> Any:
    if importlib.util.find_spec("torch") is None:
        raise RequestError(
            f"{what} needs torch", hint="Install gemmetry[torch], or torch for your device."
        )
    import torch

    return torch


def _kernelbench(path: Path) -> Task:
    torch = _torch("a KernelBench problem")
    module = _module(path, read_small(path), ("Model", "get_inputs"))
    with _foreign(f"{path}: get_init_inputs fails"):
        initial = tuple(getattr(module, "get_init_inputs", list)())

    def make(seed: int) -> Any:
        torch.manual_seed(seed)
        return module.get_inputs()

    def reference(*arguments: Any) -> Any:
        torch.manual_seed(0)
        model = module.Model(*initial).eval()
        tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
        if any(one.dtype == torch.float64 for one in tensors):
            model = model.double()
        return model(*arguments)

    return Task(
        name=path.stem, form="kernelbench", make=_checked(path, make), initial=initial,
        reference=_reference(path, reference), entry="ModelNew", source=read_small(path),
        source_entry="Model",
    )  # fmt: skip


def _gpumode(path: Path) -> Task:
    import yaml

    _torch("a GPU MODE task")
    text = read_small(path)
    try:
        facts = yaml.safe_load(text)
        tests = facts["tests"]
        first = {key: value for key, value in tests[0].items() if key != "seed"}
    except (yaml.YAMLError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise RequestError(
            f"{path} is no task of GPU MODE ({type(error).__name__}: {error})",
            hint="It is YAML with a list `tests` of arguments of generate_input.",
        ) from error
    source = path.parent / "reference.py"
    module = _module(source, read_small(source), ("generate_input", "ref_kernel"))
    make = _checked(source, lambda seed: module.generate_input(**first, seed=seed))

    def reference(*arguments: Any) -> Any:
        return module.ref_kernel(arguments if len(arguments) > 1 else arguments[0])

    packs = len(make(0)) > 1
    return Task(
        name=path.parent.name, form="gpumode", make=make, reference=_reference(source, reference),
        entry="custom_kernel", packs=packs, source=read_small(source), source_entry="ref_kernel",
    )  # fmt: skip


def _flashinfer(path: Path, workloads: Path | None) -> Task:
    torch = _torch("a FlashInfer-Bench Definition")
    facts = _json(path)
    workload: Any = {} if workloads is None else _json(workloads)
    if isinstance(workload, list) and workload:
        workload = workload[0]
    try:
        given = workload.get("workload", workload).get("axes", {})
        axes = {
            name: int(axis["value"] if axis["type"] == "const" else given.get(name, 64))
            for name, axis in facts["axes"].items()
        }
        inputs = {
            name: ([axes[one] for one in spec["shape"] or ()], spec["dtype"], spec["shape"] is None)
            for name, spec in facts["inputs"].items()
        }
        code, name = facts["reference"], str(facts["name"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestError(
            f"{path} is no Definition of FlashInfer-Bench ({type(error).__name__}: {error})",
            hint="A Definition has name, axes, inputs, outputs and reference.",
        ) from error
    module = _module(path, code, ("run",))
    for shape, _, _ in inputs.values():
        check_size(math.prod(shape), str(path))

    def make(seed: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        found: list[Any] = []
        for shape, dtype, is_scalar in inputs.values():
            kind = getattr(torch, dtype)
            if is_scalar:
                found.append(1.0 if kind.is_floating_point else 1)
            elif kind.is_floating_point:
                found.append(torch.randn(shape, generator=generator).to(kind))
            else:
                found.append(torch.randint(0, 2, shape, generator=generator).to(kind))
        return tuple(found)

    return Task(
        name=name, form="flashinfer", make=_checked(path, make), entry="run",
        reference=_reference(path, module.run), source=code, source_entry="run",
    )  # fmt: skip


def _json(path: Path) -> Any:
    text = read_small(path)
    try:
        return parsed_json(text.partition("\n")[0] if path.suffix == ".jsonl" else text)
    except ValueError as error:
        raise RequestError(f"{path} is not JSON: {error}") from error


def variations(arguments: Sequence[Any], rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """Other arguments of the same shapes: floats scaled to both sides, with a share of zeros, with
    constant rows, in another order, of one sign. Integers and other values stay."""
    import torch

    def changed(change: Callable[[Any], Any]) -> tuple[Any, ...]:
        return tuple(
            change(one).to(one.dtype).contiguous()
            if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel()
            else one
            for one in arguments
        )

    mask_seed = int(rng.integers(2**31))

    def with_zeros(x: Any) -> Any:
        generator = torch.Generator().manual_seed(mask_seed)
        return x * (torch.rand(x.shape, generator=generator) < 0.5).to(x.device)

    return [
        changed(lambda x: x.double() / 64),
        changed(lambda x: x.double() * 8),
        changed(lambda x: x.double() * 1024),
        changed(with_zeros),
        changed(lambda x: x.flip(-1)),
        changed(lambda x: x[..., :1].expand(x.shape).clone() if x.ndim else x),
        changed(lambda x: x.abs()),
        changed(lambda x: -x),
    ]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The files of a submission, and what to call."""

    name: str
    files: dict[str, str]
    """Relative path -> text."""
    main: str
    """The file that is imported."""
    entry: str


_CUDA_LOADER = """\
from pathlib import Path

from torch.utils.cpp_extension import load

_built = load("submission_cuda", [str(Path(__file__).with_name({name!r}))], verbose=False)
{entry} = _built.{entry}
"""


def read_submission(text: str, task: Task) -> Submission:
    """The submission at ``path``, or ``path:function``.

    Raises:
        RequestError: no such file, another form, or a source without the function.
    """
    path, entry = Path(text), ""
    if not path.exists():
        head, colon, tail = text.rpartition(":")
        if colon and tail.isidentifier():
            path, entry = Path(head), tail
    content = read_small(path)
    if path.suffix == ".json":
        return _solution(path, content)
    if path.suffix == ".cu":
        if not entry:
            raise RequestError(
                f"{path}: which function is called?", hint=f"Give {path}:NAME, bound by pybind11."
            )
        loader = _CUDA_LOADER.format(name=path.name, entry=entry)
        files = {path.name: content, "built.py": loader}
        return Submission(name=path.stem, files=files, main="built.py", entry=entry)
    if path.suffix != ".py":
        raise RequestError(f"{path} is no submission", hint="Suffixes are .py, .cu and .json.")
    names, imported = _names(path, content)
    entry = entry or task.entry or next(iter(names), "")
    if entry not in (*names, *imported):
        raise RequestError(
            f"{path} defines no {entry or 'function'}",
            hint=f"It defines {', '.join(names) or 'nothing'}; give {path}:NAME.",
        )
    return Submission(name=path.stem, files={path.name: content}, main=path.name, entry=entry)


def _names(path: Path, text: str) -> tuple[list[str], list[str]]:
    """Names that a module defines or assigns, functions and classes first, and names that it
    imports; nothing is run."""
    try:
        body = ast.parse(text, str(path)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RequestError(f"{path} is not Python: {error}") from error
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined, imported = [one.name for one in body if isinstance(one, kinds)], []
    for one in body:
        if isinstance(one, ast.Assign):
            defined += [target.id for target in one.targets if isinstance(target, ast.Name)]
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            imported += [(name.asname or name.name).partition(".")[0] for name in one.names]
    return defined, imported


def _solution(path: Path, text: str) -> Submission:
    try:
        facts = json.loads(text)
        main, _, entry = facts["spec"]["entry_point"].partition("::")
        files = {str(one["path"]): str(one["content"]) for one in facts["sources"]}
        name = str(facts["name"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError(
            f"{path} is no Solution of FlashInfer-Bench ({type(error).__name__}: {error})",
            hint="A Solution has name, spec.entry_point (file::function) and sources.",
        ) from error
    for one in files:
        inside = PurePosixPath(one)
        if inside.is_absolute() or ".." in inside.parts or not inside.parts:
            raise RequestError(f"{path}: the source {one!r} is outside of the submission")
    if main not in files or not main.endswith(".py"):
        raise RequestError(
            f"{path}: its entry point is {facts['spec']['entry_point']!r}",
            hint="It names a Python file among the sources, and a function in it.",
        )
    return Submission(name=name, files=files, main=main, entry=entry)
