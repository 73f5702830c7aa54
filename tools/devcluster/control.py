"""The control socket of a running dev cluster: one JSON object per line in, one per line out.

Both ends live here. The socket is a file in the cluster's folder, so it also crosses the border of the bubble; it is
reached through an open folder, because a socket's path may have 107 bytes only and a folder's may be longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from tools.errors import ClusterError, ToolError, sentence_for

SOCKET = "control.sock"
MAX_LINE_BYTES = 1 << 20
Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@contextlib.contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET}"
    finally:
        os.close(folder)


async def serve(directory: Path, handler: Handler) -> asyncio.Server:
    """Listen in `directory`; each request goes to `handler`, whose ToolErrors travel back as text."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while line := await _next_line(reader):
                writer.write(json.dumps(await _answer(line, handler)).encode() + b"\n")
                await writer.drain()

    (directory / SOCKET).unlink(missing_ok=True)
    with _short_path(directory) as path:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(path)
    (directory / SOCKET).chmod(0o600)
    sock.listen(64)
    sock.setblocking(False)
    return await asyncio.start_unix_server(connected, sock=sock, limit=MAX_LINE_BYTES)


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """The next request; nothing at the end. One that is too long reads as several broken ones."""
    try:
        return await reader.readline()
    except ValueError:
        return b"too long\n"


async def _answer(line: bytes, handler: Handler) -> dict[str, Any]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return {"error": "a request must be one JSON object on one line"}
    if not isinstance(request, dict) or not isinstance(request.get("op"), str):
        return {"error": "a request must be a JSON object with an `op`"}
    try:
        return await handler(request)
    except ToolError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": sentence_for(error)}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return {"error": f"the request {request['op']!r} lacks or misuses {error}"}


def answers(directory: Path) -> bool:
    """Whether a cluster runs in `directory`; a socket that a killed one left behind does not count."""
    try:
        call(directory, "status", timeout_s=5)
    except ClusterError:
        return False
    return True


def call(directory: Path, op: str, timeout_s: float = 60.0, **arguments: Any) -> dict[str, Any]:
    """Ask a running cluster; raises ClusterError with its sentence where it refuses, or where none runs."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(timeout_s)
        try:
            with _short_path(directory) as path:
                sock.connect(path)
        except OSError as error:
            raise ClusterError(f"No dev cluster runs in {directory}; start one with `make dev-up`.") from error
        try:
            sock.sendall(json.dumps({"op": op, **arguments}).encode() + b"\n")
            with sock.makefile("rb") as stream:
                answer = stream.readline()
        except OSError as error:
            raise ClusterError(f"The dev cluster in {directory} did not answer {op!r}: {error}.") from error
    if not answer.endswith(b"\n"):
        raise ClusterError(f"The dev cluster in {directory} ended while answering {op!r}; see its logs folder.")
    reply: dict[str, Any] = json.loads(answer)
    if "error" in reply:
        raise ClusterError(reply["error"])
    return reply
