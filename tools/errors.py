"""The errors of the developer tools: each message is one sentence that says what to do.

ToolError                 anything that ends a developer command
├── BuildError            a program could not be built or fetched
├── HostError             this machine lacks something, or forbids it
└── ClusterError          the dev cluster did not do what was asked
"""

from __future__ import annotations

import errno


class ToolError(Exception):
    """Ends a developer command; `str(error)` is what the person reads."""


class BuildError(ToolError):
    """A program could not be built or fetched; nothing half-built was left behind."""


class HostError(ToolError):
    """This machine lacks a program, a permission or room; the message names the remedy."""


class ClusterError(ToolError):
    """The dev cluster refused or failed; the message names the log to read."""


def sentence_for(error: OSError) -> str:
    """What the operating system refused, and what to do about it."""
    place = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full{place}; free some room, then run the same command again."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"Permission was denied{place}; mend its mode or owner, or choose another place."
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Too many files are open; raise `ulimit -n` to 4096 or more."
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return f"A file stands where a folder should be, or the other way round{place}; move it away."
    return f"The operating system answered: {error.strerror or error}{place}; mend that, then run the command again."
