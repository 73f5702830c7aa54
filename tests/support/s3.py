"""A real S3 server on loopback for tests: versitygw, over a folder of its own.

`python -m tools.kube build s3` builds it; without it tests skip.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.kube import build, catalog

BUCKET = "weights"
ACCESS, SECRET = "tests-access", "tests-secret-key"


@dataclass(frozen=True)
class S3Server:
    """A server that runs."""

    port: int
    folder: Path
    """What it keeps, as files: `folder / BUCKET / key`."""
    credentials: Path
    """As a Secret is mounted: one file for each setting."""

    @property
    def url(self) -> str:
        return self.url_through(f"http://127.0.0.1:{self.port}")

    def url_through(self, address: str) -> str:
        return f"{address}/{BUCKET}"


def program() -> Path:
    """The server; skips the test where it was not built."""
    known = catalog.load()
    path = build.installed_at(known.family("versitygw"), "versitygw")
    if not path.exists():
        pytest.skip("there is no S3 server on this machine: `python -m tools.kube build s3` builds one")
    return path


def write_credentials(folder: Path, access: str = ACCESS, secret: str = SECRET) -> Path:
    folder.mkdir(exist_ok=True)
    for name, value in (("AWS_ACCESS_KEY_ID", access), ("AWS_SECRET_ACCESS_KEY", secret), ("AWS_REGION", "us-east-1")):
        (folder / name).write_text(value)
    return folder


def server_command(folder: Path, address: str) -> list[str]:
    """What starts a server over a folder, which is made where it is not there; skips where none was built."""
    data, meta = folder / "data", folder / "meta"
    (data / BUCKET).mkdir(parents=True, exist_ok=True)
    meta.mkdir(exist_ok=True)
    return [str(program()), "--port", address, "--health", "/health", "posix", "--sidecar", str(meta), str(data)]


def server_environment(access: str = ACCESS, secret: str = SECRET) -> dict[str, str]:
    """Whom it lets in."""
    return {"ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret, "PATH": os.environ.get("PATH", "")}


@contextmanager
def s3_server(
    folder: Path, *, port: int | None = None, access: str = ACCESS, secret: str = SECRET
) -> Iterator[S3Server]:
    """Starts a server over a folder, which may hold what an earlier one kept."""
    port = port or _free_port()
    command = server_command(folder, f"127.0.0.1:{port}")
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=server_environment(access, secret), stdout=log, stderr=log)
    try:
        _wait_until_it_listens(process, port, folder / "server.log")
        yield S3Server(port, folder / "data", write_credentials(folder / "secret", access, secret))
    finally:
        process.kill()
        process.wait()


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    ends_at = time.monotonic() + 15
    while time.monotonic() < ends_at and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"the S3 server did not start: {log.read_text()[-500:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
