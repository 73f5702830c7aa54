"""CRDs and roles as files: the same bytes on every run, written whole or not at all, or compared with what is there."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from syncgroup_operator.crdgen.definitions import custom_resource_definitions
from syncgroup_operator.manifests.roles import role_documents

_HEADER = "# Generated from {source} by `python -m syncgroup_operator.crdgen`. Do not edit.\n"


@functools.cache  # the contract cannot change while we run, and YAML is slow to write
def rendered_files() -> Mapping[str, str]:
    """The text of every CRD by the name of its file."""
    header = _HEADER.format(source="sync_runtime/contract")
    files = {name: header + _yaml(definition) for name, definition in custom_resource_definitions().items()}
    return MappingProxyType(files)


@functools.cache
def rendered_roles() -> Mapping[str, str]:
    """The text of every file of roles by its name."""
    header = _HEADER.format(source="operator/syncgroup_operator/manifests/roles.py")
    files = {name: header + "---\n".join(map(_yaml, documents)) for name, documents in role_documents().items()}
    return MappingProxyType(files)


def write_files(folder: Path, files: Mapping[str, str] | None = None) -> list[Path]:
    """Write the files (the CRDs if not given) into a folder, which is made if missing; returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in (rendered_files() if files is None else files).items():
        path = folder / name
        # A reader sees the old file or the new one, never half of one.
        partial = path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
        written.append(path)
    return written


def outdated_files(folder: Path, files: Mapping[str, str] | None = None) -> list[Path]:
    """The files of the folder that are missing, differ, or should not be there."""
    wanted = rendered_files() if files is None else files
    differing = [folder / name for name, text in wanted.items() if _text_or_none(folder / name) != text]
    return sorted([*differing, *(path for path in folder.glob("*.yaml") if path.name not in wanted)])


def _yaml(document: Mapping[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
    return text


def _text_or_none(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
