"""A user's own kernel: a function in a file, its parameters, and its configurations by name.

Importing a file may crash or never end, so plans inspect kernels in a separate process:
``python -m gemmetry.providers.user_provider.kernel`` reads a request and prints the reply, one JSON
document each; output of the files themselves goes to standard error.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import inspect
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from types import CodeType, ModuleType
from typing import IO, Any

from gemmetry.domain.dispatch import DEFAULT_CONFIGURATION, Parameter, split_dispatch_name
from gemmetry.domain.errors import GemmetryError, NameSyntaxError, RequestError, UnknownNameError
from gemmetry.domain.opening import MOST_TEXT_BYTES, read_whole
from gemmetry.domain.operation import print_number
from gemmetry.domain.record import Trait

CONFIGURATIONS_ATTRIBUTE = "CONFIGURATIONS"
"""Module-level list of mappings, keyword -> value, used where the request specifies none."""

BACKEND_ATTRIBUTE = "BACKEND"
"""Module-level ``"numpy"`` or ``"torch"``: the array library of the functions."""

DECLARES_ATTRIBUTE = "DECLARES"
"""Module-level list of the traits declared for the functions' arithmetic (``domain/record.py``)."""

ARRAYS = ("numpy", "torch")

RESERVED_KEYWORDS = frozenset(
    {
        "a", "b", "out", "out_dtype", "addend", "scale_a", "scale_b", "bias", "residual",
        "alpha", "beta", "epilogue", "stride", "padding", "slices",
    }
)  # fmt: skip
"""Arguments passed by the operation; a configuration cannot set these."""

_LONGEST_NAME = 80
_ANY_OPERATION = "matmul_1x1x1_f32t_f32t_f32t"


@dataclass(frozen=True, kw_only=True, eq=False)
class UserKernel:
    """A function of a file: ``function(a, b, **configuration)`` returns C, or fills ``out=``."""

    path: Path
    function_name: str
    arrays: str
    """``numpy`` or ``torch``."""
    configurations: Mapping[str, Mapping[str, Parameter]]
    """Configuration's name -> keyword values, in the specified order."""
    signature: inspect.Signature | None = None
    """Signature; None: unknown, as for some functions written in C."""
    declared: tuple[Trait, ...] = ()
    function: Callable[..., Any] | None = None
    """Function; None where another process has loaded it."""

    def __str__(self) -> str:
        return f"{self.path.name}:{self.function_name}"

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Names of its parameters, as far as Python can determine them."""
        if self.signature is None:
            return frozenset()
        by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        items = self.signature.parameters.items()
        return frozenset(name for name, one in items if one.kind in by_keyword)

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits over the file, so that an edited kernel counts as a different
        kernel."""
        return hashlib.sha256(
            read_whole(self.path, "the kernel", most=MOST_TEXT_BYTES)
        ).hexdigest()[:12]

    def refusal(self, keywords: Sequence[str]) -> str | None:
        """Why the function cannot be called with these keywords (and the first configuration's)."""
        missing = [keyword for keyword in keywords if keyword not in self.parameters]
        if missing:
            return f"{self} takes no parameter {', '.join(missing)}, which this operation needs"
        if self.signature is None:
            return None
        own = dict.fromkeys([*keywords, *({"out", "out_dtype"} & self.parameters)])
        try:
            self.signature.bind(None, None, **{**next(iter(self.configurations.values())), **own})
        except TypeError as error:
            return f"{self} cannot be called for this operation: {error}"
        return None

    def check_configurations(self) -> None:
        """Raises:
        RequestError: the function cannot be called with one of its configurations, whatever the
            operation passes.
        """
        if self.signature is None:
            return
        passed = dict.fromkeys(self.parameters & (RESERVED_KEYWORDS - {"a", "b"}))
        for name, values in self.configurations.items():
            try:
                self.signature.bind(None, None, **{**passed, **values})
            except TypeError as error:
                raise RequestError(
                    f"{self} cannot be called with the configuration {name}: {error}",
                    hint=f"Its parameters are {', '.join(self.signature.parameters) or 'none'}; "
                    f"give those without a default in {CONFIGURATIONS_ATTRIBUTE}, a list like "
                    '[{"tile": 32}, {"tile": 64}] in the file.',
                ) from None


def load_kernel(
    text: str, *, configurations: Any = None, arrays: str | None = None, prefix: bool = False
) -> UserKernel:
    """Import ``path/file.py:function``.

    Args:
        text: file and function; a relative path starts at the current directory.
        configurations: sequence of mappings, keyword -> value; None: the module's list.
        arrays: ``numpy`` or ``torch``; None: decided by :func:`decide_arrays`.
        prefix: put the function's name in front of each configuration's, which distinguishes
            several kernels of one run.

    Raises:
        RequestError: the file is missing or cannot be imported, or the function or a configuration
            is invalid.
        UnknownNameError: the file has no such function.
    """
    file_text, colon, function_name = text.rpartition(":")
    if not colon or not function_name.isidentifier():
        raise RequestError(
            f"{text!r} does not name a kernel", hint="Write path/to/file.py:function."
        )
    path = existing_file(file_text)
    module = import_file(path)
    function = getattr(module, function_name, None)
    if function is None:
        raise UnknownNameError("function", function_name, _functions(module), where=file_text)
    if not callable(function):
        raise RequestError(
            f"{function_name!r} in {file_text} is no function but has the type "
            f"{type(function).__name__}",
            hint="Write --kernel file.py:function with the name of a function of that file.",
        )
    if configurations is None:
        configurations = getattr(module, CONFIGURATIONS_ATTRIBUTE, None) or [{}]
    kernel = UserKernel(
        path=path,
        function_name=function_name,
        function=function,
        arrays=decide_arrays(module, function, arrays),
        configurations=name_configurations(
            configurations, prefix=f"{function_name}_" if prefix else ""
        ),
        signature=_signature(function),
        declared=_declared(module, file_text),
    )
    kernel.check_configurations()
    return kernel


def existing_file(text: str) -> Path:
    """Raises:
    RequestError: there is no such file.
    """
    path = Path(text)
    if not path.is_file():
        raise RequestError(
            f"there is no kernel file {text!r}",
            hint="The path is relative to the directory in which gemmetry was started.",
        )
    return path


def _declared(module: ModuleType, file_text: str) -> tuple[Trait, ...]:
    stated = getattr(module, DECLARES_ATTRIBUTE, ())
    stated = [stated] if isinstance(stated, str) else list(stated)
    for one in stated:
        if one not in list(Trait):
            raise UnknownNameError("declaration", str(one), Trait, where=file_text)
    return tuple(map(Trait, stated))


def call_user_code(
    function: Callable[..., Any],
    explain: Callable[[BaseException], GemmetryError],
    *arguments: Any,
    **keywords: Any,
) -> Any:
    """Call user code; any exception becomes the error that `explain` returns.

    This is the only isolation boundary around a user's code: such code may raise any class,
    including its own, and ``SystemExit`` where a script exits on import.
    """
    try:
        return function(*arguments, **keywords)
    except (Exception, SystemExit) as error:  # the isolation boundary
        raise explain(error) from error


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source each time, because Python's cached bytecode would also be used for a file
    that was edited within a second and kept its size."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def import_file(path: Path) -> ModuleType:
    """Execute a file as a module under a private name; modules next to it can be imported.

    ``import helper`` and ``from .helper import f`` both find ``helper.py`` in the same folder.

    Raises:
        RequestError: the file is not a Python file, or executing it raises.
    """
    folder = str(path.resolve().parent)
    name = f"gemmetry_user_kernel_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    loader = _SourceLoader(name, str(path)) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(
        name, path, loader=loader, submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise RequestError(f"{path} is not a Python file", hint="Its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    # Code that looks its own module up (dataclasses, triton) needs it to be registered.
    sys.modules[name] = module
    sys.path.insert(0, folder)

    def explain(error: BaseException) -> RequestError:
        sys.modules.pop(name, None)
        return RequestError(
            f"importing the kernel file {path} raised {describe_error(error, path)}",
            hint="Run the file with python by itself to see the whole traceback.",
        )

    try:
        call_user_code(spec.loader.exec_module, explain, module)
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    return module


def describe_error(error: BaseException, path: Path) -> str:
    """``ValueError: text (file.py line 12)``, with the line at which the exception passed through
    the file."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{text}{error_line(error, path)}"


def error_line(error: BaseException, path: Path) -> str:
    """`` (file.py line 12)``: the innermost line in the file; empty if the traceback does not
    contain the file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).name == path.name]
    return f" ({path.name} line {lines[-1]})" if lines else ""


def decide_arrays(module: ModuleType, function: Callable[..., Any], requested: str | None) -> str:
    """The function's array library: as requested, else the module's BACKEND, else by the annotation
    of the first parameter, else torch if the module imports torch or triton, else numpy.

    Raises:
        UnknownNameError: the requested library is neither numpy nor torch.
    """
    stated = requested or getattr(module, BACKEND_ATTRIBUTE, None)
    if stated is not None:
        if stated not in ARRAYS:
            raise UnknownNameError("kind of arrays", str(stated), ARRAYS)
        return str(stated)
    first = str(next(iter(getattr(function, "__annotations__", {}).values()), ""))
    for word, arrays in (("torch", "torch"), ("Tensor", "torch"), ("ndarray", "numpy")):
        if word in first:
            return arrays
    imported = {
        value.__name__.partition(".")[0]
        for value in vars(module).values()
        if isinstance(value, ModuleType)
    }
    return "torch" if imported & {"torch", "triton"} else "numpy"


def name_configurations(
    configurations: Any, *, prefix: str = ""
) -> dict[str, Mapping[str, Parameter]]:
    """Names for keyword values: ``{"tile": 32, "stages": 2}`` becomes ``tile32_stages2``.

    Duplicate configurations are kept once; duplicate names are numbered.

    Raises:
        RequestError: the argument is not a sequence of mappings from keywords to numbers, texts or
            booleans.
    """
    if isinstance(configurations, str | Mapping) or not isinstance(configurations, Sequence):
        raise RequestError(
            f"configurations of a kernel are a list of mappings, not {configurations!r}",
            hint='For example [{"tile": 32}, {"tile": 64}].',
        )
    named: dict[str, Mapping[str, Parameter]] = {}
    for values in configurations:
        _check_values(values)
        values = dict(values)
        # {"flag": 1} and {"flag": True} compare equal in Python, and mean different calls.
        if any(repr(values) == repr(known) for known in named.values()):
            continue
        plain = name = _usable_name(prefix + configuration_name(values))
        number = 1
        while name in named:
            number += 1
            name = f"{plain}_{number}"
        named[name] = values
    return named


def configuration_name(values: Mapping[str, Parameter]) -> str:
    """Letters, digits and ``_`` only; not always unique."""
    parts = []
    for key, value in values.items():
        if isinstance(value, bool | str):
            parts.append(f"{key}_{str(value).lower() if isinstance(value, bool) else value}")
        else:
            parts.append(f"{key}{print_number(value)}")
    text = re.sub(r"[^A-Za-z0-9]+", "_", "_".join(parts)).strip("_")
    if len(text) > _LONGEST_NAME:
        digest = hashlib.sha256(repr(values).encode()).hexdigest()[:8]
        text = f"{text[:_LONGEST_NAME].rstrip('_')}_{digest}"
    return text or DEFAULT_CONFIGURATION


def _usable_name(name: str) -> str:
    """The name, with a prefix where its start would be parsed as an operation's modifier."""
    try:
        _, remainder = split_dispatch_name(f"{_ANY_OPERATION}_{name}")
    except NameSyntaxError:
        remainder = ""
    return name if remainder == name else f"config_{name}"


def _check_values(values: Any) -> None:
    problem = ""
    if not isinstance(values, Mapping):
        problem = f"{values!r} is not a mapping from keywords to values"
    else:
        for key, value in values.items():
            if not isinstance(key, str) or not key.isidentifier():
                problem = f"{key!r} is not a keyword"
            elif key in RESERVED_KEYWORDS:
                problem = f"the operation decides {key!r}, a configuration cannot"
            elif not isinstance(value, int | float | str | bool):
                problem = f"{key}={value!r} is not a number, text or boolean"
            elif isinstance(value, float) and not math.isfinite(value):
                problem = f"{key}={value!r} is not finite"
    if problem:
        raise RequestError(
            f"not a configuration of a kernel: {problem}",
            hint='Write keyword values, for example {"tile": 32, "order": "ikj"}.',
        )


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None  # unknown for some functions written in C


def _functions(module: ModuleType) -> list[str]:
    """The public functions: names that begin with an underscore are private."""
    functions = (name for name, value in vars(module).items() if inspect.isfunction(value))
    return [name for name in functions if not name.startswith("_")]


_IMPORT_SECONDS = 120.0
"""Long enough for a first ``import torch`` from a slow disk."""

_POLL_S = 0.005

_TAIL_LINES, _TAIL_BYTES = 12, 1 << 16


def inspect_kernels(
    texts: Sequence[str],
    *,
    configurations: Any = None,
    arrays: str | None = None,
    prefix: bool = False,
) -> list[UserKernel]:
    """The information that :func:`load_kernel` would return, without importing a file into this
    process.

    Args:
        texts: ``path/file.py:function`` each.
        configurations, arrays, prefix: as for :func:`load_kernel`.

    Raises:
        RequestError: a kernel cannot be loaded, or loading it crashes or takes too long.
    """
    if configurations is not None:
        name_configurations(configurations)  # refuses here what JSON cannot carry
    options = {"arrays": arrays, "configurations": configurations, "prefix": prefix}
    request = {"kernels": list(texts), "options": options}
    return [_read(document) for document in _ask(json.dumps(request).encode(), texts)]


def _ask(request: bytes, texts: Sequence[str]) -> list[dict[str, Any]]:
    # Started like workers, so that modules that can be imported here can be imported there.
    command = [sys.executable, "-m", "gemmetry.providers.user_provider.kernel"]
    with TemporaryFile() as asked, TemporaryFile() as answers, TemporaryFile() as output:
        asked.write(request)
        asked.seek(0)
        process = subprocess.Popen(
            command, stdin=asked, stdout=answers, stderr=output, start_new_session=True
        )
        try:
            in_time = _await_end(process, _IMPORT_SECONDS)
        finally:
            # The leader has not been waited for, so that its number is no other group's.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answer, printed = _tail(answers, None), _tail(output, _TAIL_BYTES)
    if not in_time:
        raise _failure(texts, f"took more than {_IMPORT_SECONDS:g} s", printed)
    try:
        document = json.loads(answer)
    except ValueError:
        raise _failure(texts, f"ended the process {_ending(process.returncode)}", printed) from None
    if "message" in document:
        raise RequestError(document["message"], hint=document["hint"])
    kernels: list[dict[str, Any]] = document["kernels"]
    return kernels


def _await_end(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until `child` ends, and leave its number occupied. Returns False after `seconds`."""
    ends = time.monotonic() + seconds
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > ends:
            return False
        time.sleep(_POLL_S)
    return True


def _tail(file: IO[bytes], most: int | None) -> bytes:
    """The last bytes of `file`, `most` of them; all if that is None."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0 if most is None else max(0, size - most))
    return file.read()


def _ending(status: int) -> str:
    if status >= 0:
        return f"with exit status {status}"
    try:
        return f"with {signal.Signals(-status).name}"
    except ValueError:
        return f"with signal {-status}"


def _failure(texts: Sequence[str], what: str, printed: bytes) -> RequestError:
    files = ", ".join(dict.fromkeys(text.rpartition(":")[0] for text in texts))
    tail = printed.decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
    output = "".join(f"\n    {line}" for line in tail)
    return RequestError(
        f"importing the kernel file {files} {what}{output}",
        hint="Run the file with python by itself; its import should take little time.",
    )


def _read(document: dict[str, Any]) -> UserKernel:
    signature, defaults = None, {True: None, False: inspect.Parameter.empty}
    if document["signature"] is not None:
        parameters = [
            inspect.Parameter(name, inspect._ParameterKind(kind), default=defaults[has_default])
            for name, kind, has_default in document["signature"]
        ]
        signature = inspect.Signature(parameters)
    return UserKernel(
        path=Path(document["path"]),
        function_name=document["function"],
        arrays=document["arrays"],
        configurations=document["configurations"],
        signature=signature,
    )


def _write(kernel: UserKernel) -> dict[str, Any]:
    signature = None
    if kernel.signature is not None:
        listed = kernel.signature.parameters.values()
        signature = [(one.name, int(one.kind), one.default is not one.empty) for one in listed]
    return {
        "path": str(kernel.path),
        "function": kernel.function_name,
        "arrays": kernel.arrays,
        "configurations": {name: dict(values) for name, values in kernel.configurations.items()},
        "signature": signature,
    }


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        kernels = [load_kernel(text, **request["options"]) for text in request["kernels"]]
    except GemmetryError as error:
        return {"message": error.message, "hint": error.hint}
    return {"kernels": [_write(kernel) for kernel in kernels]}


def main() -> None:
    """Reply on the standard output that the process was started with."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        json.dump(_answer(json.load(sys.stdin)), answers)
    sys.stderr.flush()
    # Threads and exit handlers of the files must not delay the reply.
    os._exit(0)


if __name__ == "__main__":
    main()
