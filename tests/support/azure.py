"""A real Azure blob server on loopback for tests: Azurite, over a folder of its own.

`python -m tools.azurite` installs it; without it tests skip.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.support.groups import free_port
from tools import azurite

CONTAINER = "weights"
ACCOUNT = "trainers"
KEY = base64.b64encode(b"a key that tests alone have").decode()
OTHER_KEY = base64.b64encode(b"a key that was rotated").decode()
START_S = 150.0


@dataclass(frozen=True)
class AzureServer:
    """A server that runs."""

    port: int
    credentials: Path
    """As a Secret is mounted: one file for each setting."""
    url: str = f"az://{CONTAINER}"


def write_credentials(folder: Path, port: int, *, account: str = ACCOUNT, key: str = KEY) -> Path:
    folder.mkdir(exist_ok=True)
    values = {
        "AZURE_STORAGE_ACCOUNT_NAME": account,
        "AZURE_STORAGE_ACCOUNT_KEY": key,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{account}",
    }
    for name, value in values.items():
        (folder / name).write_text(value)
    return folder


@contextmanager
def azure_server(folder: Path, *, key: str = KEY) -> Iterator[AzureServer]:
    """Starts a server over a folder, with one container; skips where none is installed."""
    script, node = azurite.installed_at(), azurite.node()
    if node is None or not script.exists():
        pytest.skip("there is no Azure blob server on this machine: `python -m tools.azurite` installs one")
    port, log = free_port(), folder / "server.log"
    command = [
        node,
        str(script),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--location",
        str(folder / "data"),
    ]
    command += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    (folder / "data").mkdir(exist_ok=True)
    with log.open("ab") as file:
        process = subprocess.Popen(command, env={"AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"}, stdout=file, stderr=file)
    try:
        _make_container(process, port, key, log)
        yield AzureServer(port, write_credentials(folder / "secret", port, key=key))
    finally:
        process.kill()
        process.wait()


def _make_container(process: subprocess.Popen[bytes], port: int, key: str, log: Path) -> None:
    """As soon as it listens; the protocol's own signature, since nothing here has a client of Azure."""
    ends_at = time.monotonic() + START_S
    while time.monotonic() < ends_at and process.poll() is None:
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        signed = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        text = "PUT" + "\n" * 12 + signed + f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        signature = base64.b64encode(hmac.digest(base64.b64decode(key), text.encode(), hashlib.sha256)).decode()
        headers |= {"Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
        try:
            connection.request("PUT", f"/{ACCOUNT}/{CONTAINER}?restype=container", headers=headers)
            answer = connection.getresponse()
        except OSError:
            time.sleep(0.1)
            continue
        finally:
            connection.close()
        if answer.status in (201, 409):  # made, or there from before
            return
        raise RuntimeError(f"the container could not be made: {answer.status} {answer.reason}")
    raise RuntimeError(f"the Azure server did not start: {log.read_text()[-500:]}")
