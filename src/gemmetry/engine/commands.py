"""``--save-cmds``: writes the commands of each dispatch to a file, with their output next to it."""

from __future__ import annotations

import shutil
from pathlib import Path

from gemmetry.domain.record import Record
from gemmetry.engine.dispatches.evidence_folders import path_of


def save_commands(folder: Path, record: Record, experiment: Path) -> Path:
    """Write ``<folder>/<target>/<provider>/<dispatch>.txt``. Returns its path.

    If the provider ran tools such as a compiler or assembler, what they printed about the dispatch
    (standard output and error together) is copied next to it as ``<dispatch>.stdout``.

    Args:
        folder: the folder of the commands of all dispatches.
        record: the record of the dispatch.
        experiment: the folder to which the record's paths are relative.

    Raises:
        OSError: the files cannot be written.
    """
    place = path_of(record.device or record.target, record.provider, record.dispatch)
    path = folder / place.with_name(f"{place.name}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [
        ("again with gemmetry", record.reproduce),
        ("compile", record.facts.compile_command),
        ("run", record.facts.run_command),
    ]
    lines = [f"# {title}\n{command}\n" for title, command in parts if command]
    lines.append(f"# outcome: {record.outcome}\n")
    printed = "\n".join(text for text in (record.reason, record.output_tail) if text)
    if printed:
        lines.append(f"# output\n{printed}\n")
    source = experiment / (record.facts.tool_output_path or "")
    if source.is_file():
        kept = path.with_suffix(".stdout")
        shutil.copyfile(source, kept)
        lines.append(f"# what the tools printed: {kept.name}\n")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
