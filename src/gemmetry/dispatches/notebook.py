"""Writes a function of a notebook or prompt to a file, so that worker processes can import it.

``@gemmetry.bench``: profile your own function where it is defined.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

from gemmetry.domain.errors import RequestError, StorageError, UnknownNameError
from gemmetry.engine.schema import DEFAULT_FOLDER

if TYPE_CHECKING:
    from gemmetry.dispatches.results import Results


_CONSTANTS = (bool, int, float, str, bytes, type(None))


def write_notebook_kernel(function: Callable[..., Any], folder: Path | None) -> Path:
    """Write `function`, and everything of its notebook that it uses, to ``kernels/`` in `folder`.

    Raises:
        RequestError: the function has no known source, or uses something that cannot be written.
        StorageError: the file cannot be written.
    """
    text = kernel_source(function)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    name = f"kernels/{function.__name__}_{digest}.py"
    path = ((folder or DEFAULT_FOLDER) / name).resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot write the kernel to {path}: {error.strerror}",
            hint="Give run() an experiment folder that you can write to.",
        ) from error
    return path


def kernel_source(function: Callable[..., Any]) -> str:
    """A module's text: imports, constants and helper functions of the notebook that `function`
    uses, then the function without its decorators.

    Raises:
        RequestError: a source is not known, or a value cannot be written as text.
    """
    parts: dict[str, str] = {}
    _collect(function.__name__, function, parts, chain=function.__name__)
    imports = [text for text in parts.values() if text.startswith(("import ", "from "))]
    rest = [text for text in parts.values() if not text.startswith(("import ", "from "))]
    # Annotations stay texts, so that the names in them need not exist.
    return "\n".join(["from __future__ import annotations", *imports, "", *rest])


def _collect(name: str, value: Any, parts: dict[str, str], *, chain: str) -> None:
    """Add the text that defines `name` as `value`, after the definitions that it needs."""
    if name in parts:
        return
    if isinstance(value, ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif (origin := _importable(value)) is not None:
        parts[name] = f"from {origin[0]} import {origin[1]} as {name}"
    elif isinstance(value, FunctionType):
        if value.__closure__:
            raise _cannot(chain, f"{value.__name__} uses variables of a function around it")
        parts[name] = ""  # breaks cycles of functions that call each other
        definition = _definition(value)
        for used in sorted(_global_names(value.__code__) | _default_names(definition)):
            if used in value.__globals__:
                _collect(used, value.__globals__[used], parts, chain=f"{chain} uses {used}")
        del parts[name]
        parts[name] = definition
    elif _is_constant(value):
        parts[name] = f"{name} = {value!r}"
    else:
        raise _cannot(
            chain, f"{name} is a {type(value).__name__}, which cannot be written as source code"
        )


def _cannot(chain: str, why: str) -> RequestError:
    return RequestError(
        f"cannot write the kernel into a file ({chain}): {why}",
        hint="Define it inside the function, or put the kernel into a .py file.",
    )


def _importable(value: Any) -> tuple[str, str] | None:
    """(module, name) from which a worker can import `value`; None if it exists only here."""
    module_name, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    module = sys.modules.get(module_name or "")
    if module is None or name is None or module_name == "__main__":
        return None
    if getattr(module, "__file__", None) is None or getattr(module, name, None) is not value:
        return None
    return str(module_name), str(name)


def _global_names(code: CodeType) -> set[str]:
    """Names that the code and the functions inside it may look up in the module."""
    nested: Iterable[CodeType] = (c for c in code.co_consts if isinstance(c, CodeType))
    return {*code.co_names, *(name for inner in nested for name in _global_names(inner))}


def _default_names(definition: str) -> set[str]:
    """Names in the parameters' defaults, which are looked up when the module is imported."""
    node = ast.parse(definition).body[0]
    if not isinstance(node, ast.FunctionDef):
        return set()
    defaults = [*node.args.defaults, *(value for value in node.args.kw_defaults if value)]
    return {n.id for tree in defaults for n in ast.walk(tree) if isinstance(n, ast.Name)}


def _definition(function: FunctionType) -> str:
    """The function's source from its ``def`` on; decorators are for the notebook only."""
    try:
        lines, _ = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise _cannot(function.__name__, f"its source is not known ({error})") from error
    found = re.search(r"^def .*", textwrap.dedent("".join(lines)), re.MULTILINE | re.DOTALL)
    if found is None:
        raise _cannot(function.__name__, "it is not a def at the top level")
    return found[0].rstrip() + "\n"


def _is_constant(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_constant(item) for item in value)
    return isinstance(value, _CONSTANTS)


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

SIZES = {"m": "problem_m", "n": "problem_n", "k": "problem_k", "b": "problem_b"}
"""Short names of sizes -> keys of a spec."""

_KERNEL_MODULE_PREFIX = "gemmetry_user_kernel_"
"""Prefix of modules of kernels that the provider `user` imports, here and in workers."""

_RUN_ARGUMENTS = ("experiment", "listener", "fresh")


class Benchmarked(Protocol[P, R_co]):
    """The decorated function: called as before, and with ``run``."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def run(self, **overrides: Any) -> Results:
        """Verify and measure the function; keywords replace those of the decorator."""


@overload
def bench(function: Callable[P, R], /) -> Benchmarked[P, R]: ...


@overload
def bench(
    *,
    against: Sequence[str] | None = None,
    configurations: Sequence[Mapping[str, Any]] | None = None,
    **keywords: Any,
) -> Callable[[Callable[P, R]], Benchmarked[P, R]]: ...


def bench(
    function: Callable[P, R] | None = None,
    /,
    *,
    against: Sequence[str] | None = None,
    configurations: Sequence[Mapping[str, Any]] | None = None,
    **keywords: Any,
) -> Callable[[Callable[P, R]], Benchmarked[P, R]] | Benchmarked[P, R]:
    """Give a function ``f(a, b, **configuration) -> C`` a method that profiles it.

    The function itself is unchanged and gains ``run(**overrides) -> Results``, which sends it
    through the same verification, timing and comparison as every other provider::

        @gemmetry.bench(m=[256, 512], n=256, k=256, dtypes=["f32"], tile=[16, 32])
        def my_gemm(a, b, tile=16):
            '''a: (M, K), b: (K, N) numpy arrays; returns (M, N).'''
            ...

        if __name__ == "__main__":
            print(my_gemm.run().best())

    ``@gemmetry.bench`` alone leaves every choice to ``run``.

    Args:
        function: the function itself, where the decorator has no parentheses.
        against: providers to compare with; default torch if it is installed, else numpy.
        configurations: keyword values of the function, one mapping per configuration.
        keywords: a parameter of the function with its values (all combinations become
            configurations); ``m``, ``n``, ``k``, ``b`` with sizes; any key of a spec
            (``dtypes``, ``layouts``, ``time_budget``, ``device`` ...).

    ``run`` also takes ``experiment`` (folder), ``listener`` and ``fresh``; see
    :func:`gemmetry.profile`. A function of a notebook is written to a file next to the results,
    with the imports and values of the notebook that it uses.

    Raises:
        UnknownNameError: a keyword is none of these.
        RequestError: the function cannot be found again by its file and name.
    """

    def decorate(function: Callable[P, R]) -> Benchmarked[P, R]:
        _split(function, keywords)
        decorated = cast(Any, function)

        def run(**overrides: Any) -> Results:
            return _run(function, against, configurations, {**keywords, **overrides})

        decorated.run = run
        return cast(Benchmarked[P, R], decorated)

    return decorate if function is None else decorate(function)


def _run(
    function: Callable[..., Any],
    against: Sequence[str] | None,
    configurations: Sequence[Mapping[str, Any]] | None,
    keywords: Mapping[str, Any],
) -> Results:
    from gemmetry.dispatches.profile import profile
    from gemmetry.providers.base import kernel_provider

    keywords = dict(keywords)
    against = keywords.pop("against", against)
    configurations = keywords.pop("configurations", configurations)
    how = {name: keywords.pop(name) for name in _RUN_ARGUMENTS if name in keywords}
    axes, values = _split(function, keywords)
    user: dict[str, Any] = {"name": kernel_provider()}
    # Without axes, the product is one empty choice.
    product = itertools.product(*axes.values()) if axes else ()
    chosen = [*(configurations or ()), *(dict(zip(axes, one, strict=True)) for one in product)]
    if chosen:
        user["configurations"] = chosen
    request = {
        "name": function.__name__,
        **values,
        "kernel": [kernel_text(function, how.get("experiment"))],
        "providers": [user, *({"name": name} for name in _baselines(against))],
    }
    return profile(request, **how)


def _baselines(against: Sequence[str] | None) -> Sequence[str]:
    if against is not None:
        return [against] if isinstance(against, str) else against
    from gemmetry.providers.base import baseline_names
    from gemmetry.providers.registry import load_provider, provider_names

    libraries = baseline_names(provider_names())
    return [next(name for name in libraries if load_provider(name).available() is None)]


def _split(
    function: Callable[..., Any], keywords: Mapping[str, Any]
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Axes of the function's configurations, and keys of the spec.

    Raises:
        UnknownNameError: a keyword is neither.
        RequestError: it is a size's name and a parameter of the function.
    """
    from gemmetry.domain.specs.model import ProfileSpec

    parameters = list(inspect.signature(function).parameters)[2:]
    axes: dict[str, list[Any]] = {}
    values: dict[str, Any] = {}
    for name, value in keywords.items():
        if name in SIZES and name in parameters:
            raise RequestError(
                f"{name!r} is both a size and a parameter of {function.__name__}",
                hint="Rename the parameter.",
            )
        if name in parameters:
            axes[name] = list(value) if isinstance(value, list | tuple | range) else [value]
        elif name in SIZES:
            values[SIZES[name]] = list(value) if isinstance(value, range) else value
        elif name in ProfileSpec.model_fields:
            values[name] = value
        elif name not in _RUN_ARGUMENTS:
            known = [*parameters, *SIZES, *ProfileSpec.model_fields]
            raise UnknownNameError("keyword", name, known, where=f"bench of {function.__name__}")
    return axes, values


def kernel_text(function: Callable[..., Any], experiment: Any = None) -> str:
    """``file.py:function``, writing the file if the function lives in a notebook.

    Raises:
        RequestError: workers could not find the function: it is nested in another, its source is
            not known, or its file is being imported by a worker at this moment.
        StorageError: the file cannot be written.
    """

    if function.__module__.startswith(_KERNEL_MODULE_PREFIX):
        raise RequestError(
            f"{function.__name__}.run() was called while its own file was being imported",
            hint='Put the call under: if __name__ == "__main__":',
        )
    if function.__qualname__ != function.__name__:
        raise RequestError(
            f"{function.__qualname__} is not at the top level of its file",
            hint="Workers import the file and look up the name: move the function to the top "
            "level.",
        )
    try:
        source = Path(inspect.getsourcefile(function) or "").resolve()
    except TypeError:
        source = Path()
    # IPython may write single cells to files.
    is_cell = source.parent.name.startswith("ipykernel_") or "ipython-input" in source.name
    if not source.is_file() or source.suffix != ".py" or is_cell:
        source = write_notebook_kernel(function, None if experiment is None else Path(experiment))
    return f"{source}:{function.__name__}"
