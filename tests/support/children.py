"""Child processes of tests that never outlive the block that started them, also where the test fails."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program from the checkout's root, its output piped as text, until the block ends."""
    options.setdefault("stdout", subprocess.PIPE)
    with subprocess.Popen(command, cwd=REPOSITORY, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line the child prints; empty where it has ended."""
    return process.stdout.readline() if process.stdout is not None else ""
