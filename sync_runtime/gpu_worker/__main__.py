"""The program: `python -m sync_runtime.gpu_worker [--socket PATH] [--sidecar PATH] [--allow-uid UID] [--supervised]`.

Settings come from arguments, else from the environment that library and sidecar read. Ends with 0 when it is told to,
with 1 when it cannot start, with 3 when the GPU failed, with 4 where there is no torch: whoever started it judges
whether to start it again.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from sync_runtime.errors import SyncError
from sync_runtime.local.supervised import (
    EXIT_CANNOT_START,
    EXIT_GPU_FAILED,
    EXIT_LEFT_ALONE,
    EXIT_NO_TORCH,
    LISTENING,
    SUPERVISED,
)

if TYPE_CHECKING:
    from sync_runtime.gpu_worker.server import WorkerServer

ALONE_S = 15.0
"""What a worker whose parent is gone has to end in; more than its sessions may take."""
_READ_BYTES = 4096


def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT."""
    chosen = _parser().parse_args(arguments)
    # Whoever supervises has a clock in its own log.
    when = "" if chosen.supervised else "%(asctime)s "
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=f"{when}%(levelname)s %(name)s %(message)s")
    try:
        importlib.import_module("torch")  # before anything of ours that needs it, so that one place says so
    except (ImportError, OSError) as error:  # OSError: it is there, but a shared library of it is not
        logging.critical("torch cannot be loaded: %s", error)
        return EXIT_NO_TORCH
    return _serve(chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sync_runtime.gpu_worker", description=__doc__)
    parser.add_argument("--socket", help="where owners dial (SYNCGROUP_GPU_WORKER_SOCKET; else beside the sidecar's)")
    parser.add_argument("--sidecar", help="the sidecar's socket (SYNCGROUP_SOCKET)")
    parser.add_argument(
        "--allow-uid", type=int, action="append", default=[], help="another user whose processes may dial; repeatable"
    )
    parser.add_argument(
        SUPERVISED, action="store_true", help="say on standard output that it listens, and end when standard input does"
    )
    return parser


def _serve(chosen: argparse.Namespace) -> int:
    from sync_runtime.gpu_worker.server import WorkerServer  # noqa: PLC0415 it needs torch
    from sync_runtime.library.settings import LibrarySettings  # noqa: PLC0415 with the rest of the library

    settings = LibrarySettings.read(chosen.sidecar, worker_socket=chosen.socket)
    try:
        server = WorkerServer(settings.worker_socket, settings, frozenset(chosen.allow_uid))
    except (OSError, SyncError):
        logging.exception("the GPU worker cannot listen at %s", settings.worker_socket)
        return EXIT_CANNOT_START
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    if chosen.supervised:
        threading.Thread(target=_end_with_parent, args=(server,), name="parent", daemon=True).start()
        sys.stdout.write(f"{LISTENING}\n")
        sys.stdout.flush()
    server.run()
    return EXIT_GPU_FAILED if server.is_broken else 0


def _end_with_parent(server: WorkerServer) -> None:
    """Standard input ends when the parent does, however it died; a signal would need one of each system."""
    while os.read(0, _READ_BYTES):
        pass
    server.stop()
    time.sleep(ALONE_S)
    os._exit(EXIT_LEFT_ALONE)  # a thread hangs in the GPU; the successor needs the socket


if __name__ == "__main__":
    sys.exit(main())
