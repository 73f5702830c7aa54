"""The program: `python -m sync_runtime.gpu_worker [--socket PATH] [--sidecar PATH] [--allow-uid UID]`.

Settings come from arguments, else from the environment that library and sidecar read. Ends with 0 when it is told to,
with 1 when it cannot start, with 3 when the GPU failed: whoever started it starts it again.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys

from sync_runtime.errors import SyncError
from sync_runtime.gpu_worker.server import WorkerServer
from sync_runtime.library.settings import LibrarySettings

EXIT_CANNOT_START = 1
EXIT_GPU_FAILED = 3


def main(arguments: list[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m sync_runtime.gpu_worker", description=__doc__)
    parser.add_argument("--socket", help="where owners dial (SYNCGROUP_GPU_WORKER_SOCKET)")
    parser.add_argument("--sidecar", help="the sidecar's socket (SYNCGROUP_SOCKET)")
    parser.add_argument(
        "--allow-uid", type=int, action="append", default=[], help="another user whose processes may dial; repeatable"
    )
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    settings = LibrarySettings.read(chosen.sidecar, worker_socket=chosen.socket)
    try:
        server = WorkerServer(settings.worker_socket, settings, frozenset(chosen.allow_uid))
    except (OSError, SyncError):
        logging.exception("the GPU worker cannot listen at %s", settings.worker_socket)
        return EXIT_CANNOT_START
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run()
    return EXIT_GPU_FAILED if server.is_broken else 0


if __name__ == "__main__":
    sys.exit(main())
