"""The CRDs as files: the same bytes on every run, written whole or not at all, or compared with what is there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from syncgroup_operator.crdgen.definitions import custom_resource_definitions

_HEADER = "# Generated from sync_runtime/contract by `python -m syncgroup_operator.crdgen`. Do not edit.\n"


@functools.cache  # the contract cannot change while we run, and YAML is slow to write
def rendered_files() -> Mapping[str, str]:
    """The text of every CRD by the name of its file."""
    files = {
        name: _HEADER + yaml.safe_dump(definition, sort_keys=False, width=120, allow_unicode=True)
        for name, definition in custom_resource_definitions().items()
    }
    return MappingProxyType(files)


def write_files(folder: Path) -> list[Path]:
    """Write the CRDs into a folder, which is made if it is missing; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in rendered_files().items():
        path = folder / name
        # A reader sees the old file or the new one, never half of one.
        partial = path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
        written.append(path)
    return written


def outdated_files(folder: Path) -> list[Path]:
    """The files of the folder that are missing, differ, or should not be there."""
    wanted = rendered_files()
    differing = [folder / name for name, text in wanted.items() if _text_or_none(folder / name) != text]
    return sorted([*differing, *(path for path in folder.glob("*.yaml") if path.name not in wanted)])


def _text_or_none(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
