"""The socket that owners dial: one thread each. A process that the GPU failed in ends, so that a new one takes over."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from pathlib import Path

from sync_runtime.errors import LocalError
from sync_runtime.gpu_worker.owner import OwnerLink, refuse
from sync_runtime.library.export_wire import check_peer
from sync_runtime.library.settings import LibrarySettings
from sync_runtime.local.listening import bind

MAX_OWNERS = 64
END_S = 10.0
"""The longest that all owners' sessions together may take to end; their threads do not outlive the process."""
_BACKLOG = 16
_LOOK_S = 0.2
_log = logging.getLogger(__name__)


class WorkerServer:
    """Listens until it is stopped."""

    def __init__(self, path: str, settings: LibrarySettings, uids: frozenset[int] = frozenset()) -> None:
        self._path, self._settings, self._uids = path, settings, uids
        self._stopping = threading.Event()
        self.is_broken = False
        """Whether the GPU failed in this process."""
        self._owners: dict[OwnerLink, threading.Thread] = {}
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bind(self._listener, path, "GPU worker")
            self._listener.listen(_BACKLOG)
        except (OSError, LocalError):
            self._listener.close()
            raise

    def run(self) -> None:
        """Serves owners until `stop`."""
        _log.info("the GPU worker listens at %s", self._path)
        try:
            while not self._stopping.is_set():
                if select.select([self._listener], [], [], _LOOK_S)[0]:
                    self._take(self._listener.accept()[0])
        finally:
            self._listener.close()
            Path(self._path).unlink(missing_ok=True)
            with self._lock:
                owners = dict(self._owners)
            for owner in owners:
                owner.stop()
            deadline = time.monotonic() + END_S
            for thread in owners.values():
                thread.join(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """Ends `run`; from any thread or signal handler."""
        self._stopping.set()

    def _take(self, connection: socket.socket) -> None:
        try:
            check_peer(connection, self._uids)
        except LocalError as error:  # before it is read, and without a place among the owners
            _log.warning("an owner was refused: %s", error)
            refuse(connection, error)
            return
        with self._lock:
            if len(self._owners) >= MAX_OWNERS:
                connection.close()
                return
            owner = OwnerLink(connection, self._settings, self._break)
            thread = threading.Thread(target=self._serve, args=(owner,), name="owner-link", daemon=True)
            self._owners[owner] = thread
        thread.start()

    def _serve(self, owner: OwnerLink) -> None:
        try:
            owner.serve()
        finally:
            with self._lock:
                del self._owners[owner]

    def _break(self) -> None:
        self.is_broken = True
        self.stop()
