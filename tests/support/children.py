"""Child processes of tests that never outlive the block that started them, also where the test fails."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]


def _heed_interrupts() -> None:
    """A shell's background job ignores SIGINT, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program from the checkout's root, its output piped as text, until the block ends."""
    options.setdefault("stdout", subprocess.PIPE)
    options = {"preexec_fn": _heed_interrupts} | options
    with subprocess.Popen(command, cwd=REPOSITORY, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line the child prints; empty where it has ended."""
    return process.stdout.readline() if process.stdout is not None else ""
