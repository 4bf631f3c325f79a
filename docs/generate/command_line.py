"""Prints ``docs/command-line.md``, the reference of all commands and options, from the commands.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import sys
from typing import Any

from typer.core import TyperGroup, TyperOption

from gemmetry.cli.main import every_command, read_examples
from gemmetry.domain.options import KEYS, PANELS, RETIRED
from gemmetry.domain.settings import Form

_HEAD = """\
# Command line

This page is generated: `python docs/generate/command_line.py > docs/command-line.md`.

`gemmetry COMMAND --help` shows the same on a terminal. `gemmetry --install-completion` enables
completion of commands, options, providers, dtypes, kinds and layouts in the shell.

## Conventions

- **Lists** are written with commas, with spaces, or by repeating the option:
  `--dtypes f32,bf16`, `--dtypes f32 bf16`, `--dtypes f32 --dtypes bf16`.
- **Flags** are `--flag`, `--flag=true`, `--flag=false` or `--no-flag`. Underscores may replace
  hyphens (`--problem_m`).
- **Ranges**: `64:1024:128` excludes its end, `log2:64:8192` doubles and includes it. M, N and K
  must be given together: a missing size is an error.
- **Shapes**: `MxNxK`, `BxMxNxK`, conv2d `NxHxWxC_RxSxF[_strideAxB][_padAxB]`, presets (`first`,
  `first_gpu`, `squares`, `llm`, `legacy`, `conv`), files (`.csv`, `.yaml`, `.txt`), and single
  numbers, which are squares. `64,64,64` is ambiguous and is refused: write `64x64x64`, or
  `64 64 64` for squares.
- **Output files** (`--output`) are lists too: `-o a.csv,b.json`.
- **Selection** (`--dispatches`, `--exclude`): a glob on the dispatch's name or on
  `provider:name`; a regular expression, `re:REGEX`, in which `re:` may be left out if the pattern
  can be nothing else (`matmul_.*_f32t_.*`; a line on stderr reports this); or `key=value` on a
  column known before the run (`kind=conv2d`, `m=64:512:64`, `dtype={f16,bf16}`). Commas separate
  patterns; inside brackets they belong to the pattern. A dispatch named in full is *created*,
  whatever the other options select; so is the operation at the beginning of a glob.
- **Spec files**: every option under a panel below is a key of a [spec file](specs.md), with `_`
  instead of `-`. Options override the file; `--save-spec` writes the request to a file; `--spec -`
  reads standard input.
- **stdout** receives only the results, with `--json` exactly one JSON document
  (`gemmetry schema results`); progress, notes and errors go to stderr. Each error is an `error:`
  line with what is wrong and why, followed by a `hint:` line with the next step.
- **Exit status**: 0 done (a configuration that its compiler or device rejected is a row, as long as
  its operation has another that is ok); 1 something was wrong, crashed, timed out or ran out of
  memory, an operation or `--kernel` has no ok dispatch, or a comparison found a regression; 2 the
  request was wrong; 3 the machine failed (disk full, folder not writable, device lost); 70 an error
  in gemmetry itself, in one sentence (`GEMMETRY_TRACEBACK=1` adds where); 130 interrupted. The same
  command continues where the last one stopped.

## Without options

`gemmetry profile` measures three f32 shapes (256³, 512³ and the odd 257×129×65) with every
provider that works on the device, in less than a minute on a laptop; on a GPU it measures bf16 at
1024³, 4096³ and 1023×511×257. `gemmetry generate` and `gemmetry compile` use the IREE dispatch
profiler's own set instead: IREE for CUDA sm_80, 109 dispatches of 17 operations. (The dispatch
profiler wrote them to 13 files, because the slices of a split-k overwrote each other.) With
`--device cpu`, `hip-gfx942` or another target, the same 17 operations get that target's
configurations. Shapes that you specify replace that set, with every configuration that the provider
has; `--shapes legacy,768x512x1024` keeps the old matmul shapes too.

With `--generated-dir` and no problem of their own, `gemmetry compile`, `profile` and `verify run`
use what `gemmetry generate` wrote there
([an example](iree.md#one-folder-for-three-commands)).
"""


def command_reference() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for name, command in every_command():
        if not isinstance(command, TyperGroup):
            parts.append(_section(name, command))
    parts.append(_request_options())
    parts.append(_retired_options())
    return "\n".join(parts)


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(["gemmetry", name, "[OPTIONS]", *(a.metavar for a in arguments)])
    lines = [f"## gemmetry {name}", "", f"    {usage}", "", command.help or "", ""]
    examples = "\n".join(f"# {text}\n{line}" for text, line in read_examples()[name])
    lines += ["```sh", examples, "```", ""]
    takes_request = any(parameter.name == "problem_m" for parameter in command.params)
    if takes_request:
        lines += ["Takes the [options of a request](#options-of-a-request), and:", ""]
    options = [p for p in command.params if isinstance(p, TyperOption) and not p.hidden]
    own = [p for p in options if not (takes_request and _is_shared(p))]
    rows = [(a.metavar, a.help or "") for a in arguments]
    rows += [(_names(option), option.help or "") for option in own]
    lines += _table(("argument or option", "what it does"), rows)
    return "\n".join([*lines, ""])


def _is_shared(option: TyperOption) -> bool:
    """True for an option of a request that is the same, default included, in all commands."""
    key = KEYS.get(option.name or "")
    return key is not None and (option.help or "").startswith(key.help())


def _names(option: TyperOption) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    return f"{names} {option.metavar}" if option.metavar else names


def _request_options() -> str:
    lines = ["## Options of a request", ""]
    for panel in PANELS:
        rows = []
        for key in (key for key in KEYS.values() if key.panel == panel):
            also = [f"--{alias.replace('_', '-')}" for alias in key.aliases]
            aliases = f" Also: {', '.join(f'`{name}`' for name in also)}." if also else ""
            names = ", ".join(name for name in (key.option, key.short) if name)
            is_spec_only = key.form is Form.SPEC_ONLY
            title = f"{key.name} (spec or --set)" if is_spec_only else f"{names} {key.metavar}"
            rows.append((title.strip(), f"{key.help()}{aliases}"))
        lines += [f"### {panel}", "", *_table(("option", "what it does"), rows), ""]
    return "\n".join(lines)


def _retired_options() -> str:
    rows = [
        (", ".join((old.option, *old.aliases)), f"{old.reason[0].upper()}{old.reason[1:]}.")
        for old in RETIRED
    ]
    return "\n".join(
        [
            "## Options of the dispatch profiler without effect",
            "",
            "They are accepted and ignored, and a line on stderr reports this.",
            "",
            *_table(("option", "why"), rows),
            "",
        ]
    )


def _table(heads: tuple[str, str], rows: list[tuple[str, str]]) -> list[str]:
    body = [f"| `{name}` | {_escape(text)} |" for name, text in rows]
    return [f"| {heads[0]} | {heads[1]} |", "| --- | --- |", *body]


def _escape(text: str) -> str:
    text = text.replace("|", r"\|")
    return text.replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")


if __name__ == "__main__":
    sys.stdout.write(command_reference())
