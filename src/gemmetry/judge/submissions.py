"""Submissions: foreign code that claims to compute a task.

A Python file (also with Triton kernels in it) has the function or class that the task's form names:
``ModelNew`` (KernelBench), ``custom_kernel`` (GPU MODE), ``run`` (FlashInfer-Bench); otherwise the
one that is given as ``file.py:function``. A Solution of FlashInfer-Bench is JSON with the sources.
A ``.cu`` file becomes a Python file that builds it as a torch extension, in the confined process.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gemmetry.domain.errors import RequestError
from gemmetry.judge.tasks import Task, read_small


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
        return Submission(
            name=path.stem, files={path.name: content, "built.py": loader}, main="built.py",
            entry=entry,
        )  # fmt: skip
    if path.suffix != ".py":
        raise RequestError(f"{path} is no submission", hint="Suffixes are .py, .cu and .json.")
    names = _names(path, content)
    entry = entry or task.entry or next(iter(names), "")
    if entry not in names:
        raise RequestError(
            f"{path} defines no {entry or 'function'}",
            hint=f"It defines {', '.join(names) or 'nothing'}; give {path}:NAME.",
        )
    return Submission(name=path.stem, files={path.name: content}, main=path.name, entry=entry)


def _names(path: Path, text: str) -> list[str]:
    """What a module assigns or defines, functions and classes first; nothing is run."""
    try:
        body = ast.parse(text, str(path)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RequestError(f"{path} is not Python: {error}") from error
    defined = [
        one.name for one in body
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]  # fmt: skip
    for one in body:
        if isinstance(one, ast.Assign):
            defined += [target.id for target in one.targets if isinstance(target, ast.Name)]
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            defined += [(name.asname or name.name).partition(".")[0] for name in one.names]
    return defined


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
