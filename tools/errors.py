"""The errors of the developer tools: each message is one sentence that says what to do.

ToolError                 anything that ends a developer command
├── BuildError            a program could not be built or fetched
├── HostError             this machine lacks something, or forbids it
└── ClusterError          the dev cluster did not do what was asked
"""

from __future__ import annotations


class ToolError(Exception):
    """Ends a developer command; `str(error)` is what the person reads."""


class BuildError(ToolError):
    """A program could not be built or fetched; nothing half-built was left behind."""


class HostError(ToolError):
    """This machine lacks a program, a permission or room; the message names the remedy."""


class ClusterError(ToolError):
    """The dev cluster refused or failed; the message names the log to read."""
