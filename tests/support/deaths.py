"""kill -9 at an exact moment: a process arms itself and dies by SIGKILL before or after the n-th call of a function.

    module:attribute:before:1       such as sync_runtime.bucket.writer:ObjectWriter.commit:after:1

The process is a real one and its death is real: no handler runs, nothing is flushed.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import threading
from typing import Any

VARIABLE = "SYNCGROUP_TEST_DEATH"


def arm(spec: str) -> None:
    """In the process that shall die."""
    module_name, path, when, count = spec.split(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = getattr(owner, name)
    left, lock = [int(count)], threading.Lock()

    def die_at_last() -> None:
        with lock:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    @functools.wraps(original)
    def deadly(*args: Any, **kwargs: Any) -> Any:
        if when == "before":
            die_at_last()
        found = original(*args, **kwargs)
        if when == "after":
            die_at_last()
        return found

    setattr(owner, name, deadly)
