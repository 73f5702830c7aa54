"""The errors of the link emulator; each message is one sentence that says what to do.

ToolError
├── ShapeError        the description of a link cannot be read
├── EmulatorError     the emulator refused a command, or is gone
└── HostError         (shared) this machine lacks a program, or forbids namespaces
"""

from __future__ import annotations

from tools.errors import ToolError


class ShapeError(ToolError):
    """The description of a link cannot be read; the message shows the form it should have."""


class EmulatorError(ToolError):
    """The emulator refused a command, could not start, or has ended; the message is its own sentence."""
