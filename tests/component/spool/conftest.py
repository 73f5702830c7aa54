"""Folders for spools: in memory where the system has such a place, so that hundreds of rounds take seconds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY = Path("/dev/shm")  # noqa: S108 -- a file system in memory; the folder below it is ours alone


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose fsync is quick: what is killed here is a process, not the machine."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="syncgroup-spool-") as folder:
        yield Path(folder)
