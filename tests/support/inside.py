"""Sidecars of a group inside the test's own process: one loop in a thread, real sockets, TLS, spools and mirrors.

Starts in milliseconds, so that many faults fit into one test. What needs `kill -9` uses `groups.Group` instead.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sync_runtime.control.exposition import flat
from sync_runtime.sidecar.brain import Sidecar
from sync_runtime.sidecar.view import View
from sync_runtime.standalone import load_group, settings_of
from tests.support.groups import Group, Member

T = TypeVar("T")
_WAIT_S = 30.0


class InsideGroup(Group):
    """A group whose sidecars are objects here. `stop` is polite; `crash` says goodbye to nobody."""

    def __init__(self, folder: Path, members: Sequence[Member], **settings: object) -> None:
        super().__init__(folder, members, **settings)
        self.sidecars: dict[str, Sidecar] = {}
        self.changes: dict[str, dict[str, Any]] = {}
        """Settings that group.toml cannot say, by member."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sidecars", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        for name in list(self.sidecars):
            self.stop(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something on the sidecars' loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    def call(self, function: Callable[[], T]) -> T:
        """Calls something on the sidecars' loop, where nothing else runs meanwhile."""

        async def there() -> T:
            return function()

        return self.run(there())

    def start(self, *names: str) -> None:
        """Starts sidecars, in this order."""
        for name in names:
            self.sidecars[name] = self.run(self._started(name))

    def stop(self, name: str) -> int:
        """A polite end."""
        self.run(self.sidecars.pop(name).close())
        return 0

    def kill(self, name: str) -> None:
        """The nearest thing to kill -9 that a process can do to a part of itself: a polite end."""
        self.stop(name)

    def ask(self, name: str, path: str) -> Any:
        """A reading of a sidecar, without HTTP."""
        read = getattr(View(self.sidecars[name]), path.rpartition("/")[2])
        return self.call(lambda: flat(read()) if path == "/metrics" else read())

    async def _started(self, name: str) -> Sidecar:
        settings = settings_of(load_group(self.config), name, self.config)
        sidecar = Sidecar(dataclasses.replace(settings, **self.changes.get(name, {})), self.environment)
        await sidecar.start()
        return sidecar
