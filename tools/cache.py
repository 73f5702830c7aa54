"""Where built and fetched things are kept between checkouts, and how a file gets there whole.

Standard library only: the bootstrap imports this before any environment exists.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_root() -> Path:
    """The user's cache folder for this project, honouring XDG_CACHE_HOME."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "syncgroup"


def platform_tag() -> str:
    """Operating system and CPU, as a folder name: a cache on a shared home must not mix them."""
    return f"{sys.platform}-{platform.machine()}"


@contextlib.contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold `lock` for the block, so that two builders of one thing take turns."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; it becomes `target` only if the block succeeds.

    Works for files and for folders. A crash leaves at most a `.tmp-…` name that nothing ever believes in.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    holder = Path(tempfile.mkdtemp(prefix=".tmp-", dir=target.parent))
    try:
        staged = holder / target.name
        yield staged
        if staged.is_dir() and target.exists():
            target.rename(holder / f"{target.name}.old")  # removing it in place could stop half-way
        elif staged.is_file():
            with staged.open("rb") as whole:
                os.fsync(whole)  # a power cut must not leave an empty file under a name that is believed
        staged.replace(target)
    finally:
        shutil.rmtree(holder, ignore_errors=True)
