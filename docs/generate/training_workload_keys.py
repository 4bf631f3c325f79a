"""Prints ``docs/training-workload-keys.md``, the keys of the workload, from their declarations.

A test asserts that the page is up to date.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from gemmetry.results.tables import escape_markdown as escape
from gemmetry.sweeps.keys import TINY, ConfigKey, WorkloadConfig, config_keys

_HEAD = """\
# Keys of the training workload

This page is generated:
`python docs/generate/training_workload_keys.py > docs/training-workload-keys.md`.

Names, sections and defaults are those of the sweep analysis document's `gemm_overlap_comm.yaml`,
which is accepted as it is. *Ours* marks keys that the document lacks. An unknown key is an error
with the names that are similar. [The training workload](training-workload.md) shows how to give
keys.
"""

_UNUSED = """
## Accepted without effect

These keys of the document's file are accepted. Those that a configuration gives are listed at the
start of the run and in `facts_rank0.json`.

| key | reason |
|---|---|
"""

_TINY = """
## The preset `tiny`

It trains within seconds on a CPU. Keys that it does not name have their defaults.

```yaml
"""


def keys_page() -> str:
    """The whole page as Markdown."""
    keys = list(config_keys())
    sections = "".join(_section(name, keys) for name in WorkloadConfig.model_fields)
    unused = "".join(f"| `{key.name}` | {key.text} |\n" for key in keys if not key.is_used)
    tiny = yaml.safe_dump(dict(TINY), sort_keys=False, default_flow_style=None, width=90)
    return f"{_HEAD}{sections}{_UNUSED}{unused}{_TINY}{tiny}```\n"


def _section(name: str, keys: list[ConfigKey]) -> str:
    rows = [key for key in keys if key.is_used and key.name.startswith(f"{name}.")]
    if not rows:
        return ""
    about = str((WorkloadConfig.model_fields[name].annotation or WorkloadConfig).__doc__)
    lines = "".join(map(_row, rows))
    head = "| key | default | meaning |\n|---|---|---|"
    return f"\n## {name}\n\n{about.replace('``', '`')}\n\n{head}\n{lines}"


def _row(key: ConfigKey) -> str:
    # Backticks of a text are markup; everything else is literal.
    meaning = escape(key.text).replace("\\`", "`")
    own = "*Ours.* " if key.is_own else ""
    return f"| `{key.name.partition('.')[2]}` | `{_value(key.default)}` | {own}{meaning} |\n"


def _value(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True).removesuffix("...\n").strip()


if __name__ == "__main__":
    sys.stdout.write(keys_page())
