"""The only place that writes to the terminal: results to standard output, complaints to standard error."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """A result."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def complain(text: str) -> None:
    """What is wrong."""
    sys.stdout.flush()
    sys.stderr.write(text if text.endswith("\n") else f"{text}\n")
